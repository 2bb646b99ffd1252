"""The state of one pipeline, read afresh: its resource, its driver, what the driver says, and what is stored."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline.core.manifest import ManifestError, Problem, SinkPipeline, parse_manifest
from sinkpipeline.core.status import condition_of
from sinkpipeline_operator.child import configs, remedies
from sinkpipeline_operator.child.askedjob import ACTION_LABEL
from sinkpipeline_operator.child.builder import PIPELINE_LABEL, ChildKind, resume_name, token_name
from sinkpipeline_operator.child.configs import Config
from sinkpipeline_operator.child.driverpod import Child, DriverPod
from sinkpipeline_operator.child.runconfig import RunConfig, Runtime, run_config, secret_digest, secret_keys
from sinkpipeline_operator.child.waits import Executor
from sinkpipeline_operator.decide.decision import Observation
from sinkpipeline_operator.decide.restarts import Restarts
from sinkpipeline_operator.kube.client import CONFIG_MAP, PIPELINE, POD, SECRET, ApiRefused, Cluster, Kind, Ref
from sinkpipeline_operator.kube.times import milliseconds
from sinkpipeline_operator.observe.driver_client import Answer
from sinkpipeline_operator.observe.switchboard import Line, Switchboard

PAUSE_ANNOTATION = "sinkpipeline.io/pause-reconciliation"
ADOPT_ANNOTATION = "sinkpipeline.io/adopt-owner"
"""`<uid of kube-system, or "file">/<namespace>/<name>`: whose progress may be taken over."""

_LONGEST_LABEL = 63
_FORBIDDEN = 403
_SPARK_ROLE = "spark-role"
_METADATA = ("name", "namespace", "uid", "generation", "labels", "annotations")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One look at a pipeline."""

    resource: Mapping[str, Any]
    pipeline: SinkPipeline | None
    """None where the manifest is refused."""
    problems: tuple[Problem, ...] = ()
    trouble: SinkPipelineError | None = None
    """Why a valid manifest can't be run: a Secret is missing."""
    run: RunConfig | None = None
    """What is to be run, where that is known."""
    configs: tuple[Config, ...] = ()
    has_resume: bool = False
    """Whether what the driver goes on from is there to be mounted."""
    child: Child | None = None
    pod: DriverPod | None = None
    """The driver's, of that child."""
    executors: tuple[Executor, ...] = ()
    """All executors' pods of the pipeline that are there."""
    is_acted_on: bool = False
    """Whether the pod of an action's Job may still write to Kafka."""
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Of the Secrets that the pipeline refers to, the keys that it names, in base64."""
    token: str | None = field(default=None, repr=False)
    answer: Answer | None = None
    """None where nobody was asked."""
    observation: Observation

    @property
    def dead_letter_topics(self) -> dict[str, str]:
        """Of each sink that has one."""
        sinks = () if self.pipeline is None else self.pipeline.spec.sinks
        return {sink.name: sink.dead_letter.topic.name for sink in sinks if sink.dead_letter is not None}

    @property
    def ref(self) -> Ref:
        meta = self.resource["metadata"]
        return Ref(meta["namespace"], meta["name"])

    @property
    def status(self) -> Mapping[str, Any]:
        return self.resource.get("status") or {}

    def config(self, config_hash: str | None) -> Config | None:
        return next((each for each in self.configs if each.hash == config_hash), None)


@dataclass(frozen=True, kw_only=True)
class Observer:
    """Usable from several threads."""

    cluster: Cluster
    child_kind: ChildKind
    runtime: Runtime
    drivers: Switchboard

    def find(self, ref: Ref) -> Mapping[str, Any] | None:
        """The resource; None where it is gone.

        Raises:
            ApiUnavailable, ApiRefused
        """
        return self.cluster.get(PIPELINE, ref)

    def look(self, resource: Mapping[str, Any]) -> Seen:
        """At a resource that has just been found.

        Raises:
            ApiUnavailable, ApiRefused
        """
        ref = Ref(resource["metadata"]["namespace"], resource["metadata"]["name"])
        child = self._child(ref, resource["metadata"]["uid"])
        pods, executors, is_acted_on = self._pods(ref)
        maps = self._labelled(CONFIG_MAP, ref)
        stored = tuple(config for each in maps if (config := configs.read(each)) is not None)
        pipeline, problems = parsed(resource)
        secrets, trouble = ({}, None) if pipeline is None else self._secrets(pipeline)
        run = None if pipeline is None or trouble is not None else self._wanted(pipeline, secrets)
        pods = tuple(_in_cluster(each, ref, _sinks_of(resource)) for each in pods)
        pod = None if child is None else next((each for each in pods if each.owned_by == child.uid), None)
        token = self._token(ref)
        return Seen(
            resource=resource,
            pipeline=pipeline,
            problems=problems,
            trouble=trouble,
            run=run,
            configs=stored,
            has_resume=any(each["metadata"]["name"] == resume_name(ref.name) for each in maps),
            child=child,
            pod=pod,
            executors=executors,
            is_acted_on=is_acted_on,
            secrets=secrets,
            token=token,
            answer=self._ask(child, pod, token, resource),
            observation=_observation(resource, pipeline, run, trouble, stored, child, pods),
        )

    def ask_again(self, seen: Seen) -> Seen:
        """The same look, with what its driver says now. Never raises."""
        now_ms = int(time.time() * 1000)
        return replace(
            seen,
            answer=self._ask(seen.child, seen.pod, seen.token, seen.resource),
            observation=replace(seen.observation, now_ms=now_ms, healthy_s=_healthy_s(seen.status, now_ms)),
        )

    def has_other_secrets(self, seen: Seen) -> bool:
        """Whether the Secrets that the pipeline refers to are others than they were seen: no watch tells of them.

        Raises:
            ApiUnavailable, ApiRefused
        """
        if seen.pipeline is None:
            return False
        secrets, trouble = self._secrets(seen.pipeline)
        return secrets != seen.secrets or str(trouble) != str(seen.trouble)

    def forget(self, ref: Ref) -> None:
        """The resource is gone."""
        self.drivers.forget(ref)

    def _child(self, ref: Ref, owner: str) -> Child | None:
        document = self.cluster.get(self.child_kind.api, ref)
        if document is None:
            return None
        child = self.child_kind.read(document)
        owners = document["metadata"].get("ownerReferences") or []
        if not any(each["uid"] == owner for each in owners):
            # Somebody else's, or of a resource before this one: it is in the way until it is gone.
            return replace(child, foreign=True)
        return child

    def _labelled(self, kind: Kind, ref: Ref) -> list[dict[str, Any]]:
        """What carries the pipeline's name as our label: nothing does, where that is too long for one."""
        if len(ref.name) > _LONGEST_LABEL:
            return []
        return self.cluster.list(kind, ref.namespace, {PIPELINE_LABEL: ref.name})

    def _pods(self, ref: Ref) -> tuple[tuple[DriverPod, ...], tuple[Executor, ...], bool]:
        found = self._labelled(POD, ref)
        roles = [((each["metadata"].get("labels") or {}).get(_SPARK_ROLE), each) for each in found]
        return (
            tuple(DriverPod.read(each, self.child_kind.driver_container) for role, each in roles if role == "driver"),
            # One that goes waits for nothing any more.
            tuple(
                Executor.read(each)
                for role, each in roles
                if role == "executor" and "deletionTimestamp" not in each["metadata"]
            ),
            any(
                ACTION_LABEL in (each["metadata"].get("labels") or {})
                and (each.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
                for each in found
            ),
        )

    def _secrets(self, pipeline: SinkPipeline) -> tuple[dict[str, dict[str, str]], SinkPipelineError | None]:
        found: dict[str, dict[str, str]] = {}
        for name, keys in secret_keys(pipeline).items():
            try:
                secret = self.cluster.get(SECRET, Ref(pipeline.metadata.namespace, name))
            except ApiRefused as error:
                return found, _forbidden(name, error)
            data = {} if secret is None else secret.get("data") or {}
            if secret is None or keys - data.keys():
                return found, _missing(name, None if secret is None else sorted(keys - data.keys()))
            found[name] = {key: data[key] for key in sorted(keys)}
        return found, None

    def _wanted(self, pipeline: SinkPipeline, secrets: Mapping[str, Mapping[str, str]]) -> RunConfig:
        return run_config(pipeline, self.runtime, {name: secret_digest(data) for name, data in secrets.items()})

    def _token(self, ref: Ref) -> str | None:
        try:
            secret = self.cluster.get(SECRET, Ref(ref.namespace, token_name(ref.name)))
        except ApiRefused as error:
            if error.code != _FORBIDDEN:
                raise
            # A driver can be stopped all the same, and who starts one is told.
            return None
        try:
            # An empty one is none: nobody would be let in by it.
            return base64.b64decode((secret or {})["data"]["token"], validate=True).decode().strip() or None
        except (KeyError, TypeError, ValueError, binascii.Error):
            return None

    def _ask(
        self, child: Child | None, pod: DriverPod | None, token: str | None, resource: Mapping[str, Any]
    ) -> Answer | None:
        """Only the driver in the pod that the child names, and that it owns."""
        if child is None or pod is None or pod.ip is None or pod.phase != "Running" or pod.has_ended:
            return None
        if child.deleting or pod.deleting or child.pod_name not in (None, pod.name):
            return None
        if token is None:
            return Answer(trouble="the Secret of its token is gone, or the operator may not read it")
        identity = spec_of(resource).get("identity") or "{namespace}.{name}".format(**resource["metadata"])
        ref = Ref(resource["metadata"]["namespace"], resource["metadata"]["name"])
        answer = self.drivers.ask(ref, Line(pod.ip, token, identity, child.config_hash))
        told = None if answer.document is None else remedies.told_in_cluster(answer.document, ref)
        return replace(answer, document=told)


def spec_of(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    """As it is stored: an older CRD may have let in what is none."""
    spec = resource.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _sinks_of(resource: Mapping[str, Any]) -> list[str]:
    sinks = spec_of(resource).get("sinks")
    return [str(each.get("name")) for each in sinks if isinstance(each, Mapping)] if isinstance(sinks, list) else []


def _in_cluster(pod: DriverPod, ref: Ref, names: list[str]) -> DriverPod:
    """Its last words, with remedies as they are typed on a cluster."""
    words = pod.last_words
    if words is None:
        return pod
    failed = [str(each.get("name")) for each in words.sinks if (each.get("error") or {}).get("reason") == words.reason]
    sink = next(iter([*failed, *names]), None)
    sinks = tuple(remedies.sink_in_cluster(each, ref) for each in words.sinks)
    source = remedies.sink_in_cluster(words.source, ref)
    remedy = remedies.in_cluster(words.remedy, ref, sink)
    return replace(pod, last_words=replace(words, remedy=remedy, sinks=sinks, source=source))


def parsed(resource: Mapping[str, Any]) -> tuple[SinkPipeline | None, tuple[Problem, ...]]:
    """The manifest of a resource, or why no driver is given it."""
    meta = {key: value for key, value in resource["metadata"].items() if key in _METADATA}
    try:
        pipeline = parse_manifest({**resource, "metadata": meta, "status": None})
    except ManifestError as error:
        return None, tuple(error.problems)
    return pipeline, ()


def _forbidden(name: str, error: ApiRefused) -> SinkPipelineError:
    if error.code != _FORBIDDEN:
        raise error
    return SinkPipelineError(
        Reason.SECRET_NOT_FOUND,
        f"the operator may not read Secret {name}: {error.message}",
        "let it read Secrets of this namespace: see Rights in docs/install.md; the pipeline starts by itself then",
    )


def _missing(name: str, keys: list[str] | None) -> SinkPipelineError:
    fact = f"Secret {name} does not exist" if keys is None else f"Secret {name} has no key {', '.join(keys)}"
    return SinkPipelineError(
        Reason.SECRET_NOT_FOUND, f"{fact} in the pipeline's namespace", "create it; the pipeline starts by itself then"
    )


def _observation(
    resource: Mapping[str, Any],
    pipeline: SinkPipeline | None,
    run: RunConfig | None,
    trouble: SinkPipelineError | None,
    stored: tuple[Config, ...],
    child: Child | None,
    pods: tuple[DriverPod, ...],
) -> Observation:
    meta, status = resource["metadata"], resource.get("status") or {}
    now_ms = int(time.time() * 1000)
    spec = spec_of(resource)
    nonce = spec.get("restartNonce") if _is_number(spec.get("restartNonce")) else None
    wanted = None if run is None else run.hash
    if run is None and child is not None and not child.foreign:
        # What runs goes on while somebody mends the manifest, or its Secrets.
        wanted = child.config_hash
    last = configs.last_that_ran(each for each in stored if each.hash != wanted)
    return Observation(
        now_ms=now_ms,
        deleting="deletionTimestamp" in meta,
        paused=(meta.get("annotations") or {}).get(PAUSE_ANNOTATION) == "true",
        suspended=spec.get("suspend") is True,
        wanted=wanted,
        why_not_wanted=None if trouble is None else trouble.reason,
        nonce=nonce,
        fallback=None if last is None or trouble is not None else last.hash,
        rejected=frozenset(each.hash for each in stored if each.refusal is not None and each.refusal.nonce == nonce),
        child=child,
        pods=pods,
        restarts=Restarts.parse(status),
        healthy_s=_healthy_s(status, now_ms),
        policy=FailurePolicy() if pipeline is None else FailurePolicy.of(pipeline.spec.failure_policy),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _healthy_s(status: Mapping[str, Any], now_ms: int) -> float:
    """For how long the resource has been Ready and worked, as the last status says; 0 where it isn't Ready.

    While records wait, the time since the last commit is none of it: a driver that always dies of a batch, each time
    after an hour, has not been well for an hour.
    """
    ready = condition_of(status, "Ready")
    since = None if ready.get("status") != "True" else milliseconds(ready["lastTransitionTime"])
    if since is None:
        return 0.0
    sinks = status.get("sinks", ())
    until = now_ms
    if any(sink.get("lag") for sink in sinks):
        commits = (milliseconds(sink["lastProgressTime"]) for sink in sinks if sink.get("lastProgressTime"))
        until = max((at for at in commits if at is not None), default=since)
    return max(0.0, (until - since) / 1000)
