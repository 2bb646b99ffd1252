"""The steps that a decision asks for, as requests to the API server. Each may be repeated, and may be the last.

The order within a step is the order in which its objects need each other: a driver's pod mounts the ConfigMaps and the
Secret of its token, so they are there before its child is.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core import resume
from sinkpipeline.core.errors import ExitCode, SinkPipelineError
from sinkpipeline.core.manifest import SinkPipeline
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.status import SinkState
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline_operator.child import configs
from sinkpipeline_operator.child.builder import (
    NONCE_ANNOTATION,
    ChildKind,
    Order,
    owned,
    resume_name,
    token_name,
)
from sinkpipeline_operator.child.configs import Refusal
from sinkpipeline_operator.child.driverpod import ChildState
from sinkpipeline_operator.child.runconfig import RunConfig, Runtime
from sinkpipeline_operator.decide.decision import Decision, Step
from sinkpipeline_operator.kube.client import (
    CONFIG_MAP,
    PIPELINE,
    SECRET,
    ApiFailed,
    ApiRefused,
    Cluster,
    Conflict,
    Ref,
)
from sinkpipeline_operator.observe.observer import ADOPT_ANNOTATION, Seen

_LOG = logging.getLogger("sinkpipeline.reconcile")

FINALIZER = "sinkpipeline.io/delete-topics"
"""On resources with `deletionPolicy: Delete`, and on no others."""
_TOKEN_BYTES = 32
RESUME_FILE = "resume.json"


@dataclass(frozen=True, kw_only=True)
class Actions:
    """Usable from several threads."""

    cluster: Cluster
    child_kind: ChildKind
    runtime: Runtime

    def settle_finalizer(self, seen: Seen, *, wanted: bool) -> bool:
        """Puts the finalizer on the resource or takes it off; whether something had to be done."""
        meta = seen.resource["metadata"]
        found = list(meta.get("finalizers") or [])
        if wanted == (FINALIZER in found):
            return False
        left = [*found, FINALIZER] if wanted else [each for each in found if each != FINALIZER]
        patch = {"metadata": {"finalizers": left, "resourceVersion": meta["resourceVersion"]}}
        self.cluster.patch(PIPELINE, seen.ref, patch)
        return True

    def restore_token(self, seen: Seen, token: str | None) -> None:
        """The Secret of a driver's token is gone, or no token any more, and its driver runs.

        Written with the token that was there where that is known; a driver takes another one once its mount has it.
        """
        if seen.observation.deleting:
            # The garbage collector takes it, and would go on to.
            return
        if seen.child is not None and not seen.child.foreign and seen.token is None and seen.pipeline is not None:
            self._ensure_token(seen, seen.pipeline, token)

    def restore_mounts(self, seen: Seen) -> None:
        """What a driver's pod has yet to mount is gone: without it the pod would never start."""
        child, pipeline, run = seen.child, seen.pipeline, seen.run
        if child is None or child.foreign or child.deleting or child.state is not ChildState.SUBMITTING:
            return
        if pipeline is None or run is None or run.hash != child.config_hash:
            return
        if seen.config(run.hash) is None:
            self.cluster.apply(CONFIG_MAP, configs.build(pipeline, run))
        if not seen.has_resume:
            self.cluster.apply(CONFIG_MAP, _resume_map(pipeline, seen))

    def before_noting(self, seen: Seen, decision: Decision) -> None:
        """A refusal is written beside the configuration that it is of, before its driver's death is noted."""
        death, child = decision.death, seen.child
        if decision.step is not Step.NOTE or death is None or child is None or death.meaning is not ExitCode.MANIFEST:
            return
        config = seen.config(child.config_hash)
        if config is not None:
            refusal = Refusal(reason=death.reason, message=f"{death.message} ({death.remedy})", nonce=child.nonce)
            self.cluster.patch(CONFIG_MAP, Ref(seen.ref.namespace, config.name), configs.refused_patch(refusal))
            failpoint("operator-after-refusal")

    def settle_and_take(self, seen: Seen, decision: Decision, token: str | None, *, finalizer: bool) -> bool:
        """The step, after what has to be there for it; False where that was something to be done, and the step waits.

        What only a driver needs that runs or starts keeps nobody from stopping one: its refusal is raised after the
        step.

        Args:
            seen: with the status as it was just written.
            decision: has the step.
            token: the driver's, as it was known last.
            finalizer: whether the resource has to carry one.
        """
        refused: ApiRefused | ApiFailed | None = None
        try:
            self.restore_token(seen, token)
            if decision.step is not Step.DELETE:
                self.restore_mounts(seen)
            if not seen.observation.deleting and self.settle_finalizer(seen, wanted=finalizer):
                return False
        except (ApiRefused, ApiFailed) as error:
            if decision.step is Step.START:
                raise
            refused = error
        self.take(seen, decision)
        if refused is not None:
            raise refused
        return True

    def take(self, seen: Seen, decision: Decision) -> None:
        """The step; `seen` has the status as it was just written."""
        child = seen.child
        match decision.step:
            case Step.START if decision.run is not None:
                self._start(seen, decision.run)
            case Step.DELETE if child is not None:
                self.cluster.delete(self.child_kind.api, seen.ref, child.uid)
                failpoint("operator-after-delete")
            case Step.SET_NONCE:
                nonce = {"metadata": {"annotations": {NONCE_ANNOTATION: str(seen.observation.nonce)}}}
                self.cluster.patch(self.child_kind.api, seen.ref, nonce)
            case _:
                pass

    def after_report(self, seen: Seen, told: Mapping[str, Any] | None, status: Mapping[str, Any]) -> None:
        """Remembers a configuration whose driver runs, and drops those that nobody will run again."""
        child, run, pipeline = seen.child, seen.run, seen.pipeline
        config = None if child is None else seen.config(child.config_hash)
        if child is not None and config is None and told is not None and pipeline is not None:
            if run is not None and run.hash == child.config_hash:
                # Somebody has deleted it: it is what a later configuration would be rolled back to.
                self.cluster.apply(CONFIG_MAP, configs.build(pipeline, run))
            return
        running = [sink["state"] for sink in status["sinks"]] == [SinkState.RUNNING.value] * len(status["sinks"])
        if config is None or told is None or not status["sinks"] or not running:
            return
        if config.ran is None:
            patch = configs.ran_patch(seen.observation.now_ms)
            self.cluster.patch(CONFIG_MAP, Ref(seen.ref.namespace, config.name), patch)
        others = [each for each in seen.configs if each.hash not in (config.hash, seen.observation.wanted)]
        before = configs.last_that_ran(others)
        for each in others:
            if each is not before:
                self.cluster.delete(CONFIG_MAP, Ref(seen.ref.namespace, each.name), each.uid)

    def _start(self, seen: Seen, config_hash: str) -> None:
        found = self._configuration(seen, config_hash)
        if found is None:
            return
        pipeline, run = found
        self._ensure_token(seen, pipeline)
        failpoint("operator-after-token")
        if seen.config(run.hash) is None:
            self.cluster.apply(CONFIG_MAP, configs.build(pipeline, run))
        failpoint("operator-after-config")
        self.cluster.apply(CONFIG_MAP, _resume_map(pipeline, seen))
        failpoint("operator-after-resume")
        order = Order(pipeline=pipeline, run=run, runtime=self.runtime, cluster=self.cluster.id)
        # Not applied: another operator may have made it in the same moment. A write to it, even of the same, may let
        # Kubeflow's operator submit it a second time, and fail.
        self.cluster.create(self.child_kind.api, self.child_kind.build(order))
        failpoint("operator-after-child")

    @staticmethod
    def _configuration(seen: Seen, config_hash: str) -> tuple[SinkPipeline, RunConfig] | None:
        if seen.pipeline is not None and seen.run is not None and seen.run.hash == config_hash:
            return seen.pipeline, seen.run
        stored = seen.config(config_hash)
        pipeline = None if stored is None else stored.pipeline(seen.resource["metadata"]["uid"])
        return None if stored is None or pipeline is None else (pipeline, stored.run())

    def _ensure_token(self, seen: Seen, pipeline: SinkPipeline, token: str | None = None) -> None:
        """Written once."""
        if seen.token is not None:
            return
        document = {
            "apiVersion": SECRET.api_version,
            "kind": SECRET.kind,
            "metadata": owned(pipeline, token_name(pipeline.metadata.name)),
            "type": "Opaque",
            "stringData": {"token": token or secrets.token_urlsafe(_TOKEN_BYTES)},
        }
        try:
            self.cluster.create(SECRET, document)
        except Conflict:
            # There, and not readable as a token: by a person, or by an attempt whose answer was lost.
            del document["type"]
            self.cluster.apply(SECRET, document)


def _resume_map(pipeline: SinkPipeline, seen: Seen) -> dict[str, Any]:
    """What the driver goes on from: outside the hash, so that it is written for every start."""
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": owned(pipeline, resume_name(pipeline.metadata.name)),
        "data": {RESUME_FILE: json.dumps(resume.render(_resume(pipeline.identity, seen)))},
    }


def _resume(identity: str, seen: Seen) -> resume.Resume:
    adopt = _owner((seen.resource["metadata"].get("annotations") or {}).get(ADOPT_ANNOTATION))
    if not seen.status.get("sinks") or seen.status.get("identity") != identity:
        return resume.Resume(identity=identity, adopt=adopt)
    try:
        return resume.from_status(seen.status, identity, adopt=adopt)
    except SinkPipelineError as error:
        # Somebody has written into the status. The progress topic is the truth, and goes without a memory.
        _LOG.warning("%s: the status can't be read as a memory: %s", seen.ref, error)
        return resume.Resume(identity=identity, adopt=adopt)


def _owner(text: str | None) -> Owner | None:
    cluster, _, name = (text or "").partition("/")
    return Owner(cluster=cluster, name=name) if cluster and "/" in name else None
