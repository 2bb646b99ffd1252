"""Translates a driver's remedies, which are for a run from a file, into commands for a cluster. Pure.

A driver's remedies are of the command, which reads a file. A pipeline of a cluster has no file, and its progress
belongs to the cluster: the command would answer `IdentityInUse`. So a remedy is translated where an operator hears or
finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline_operator.kube.client import ACTION, Ref

KEEP_TOPICS = "sinkpipeline.io/keep-topics"
"""An annotation: the resource is deleted alone, whatever its deletionPolicy is. An API server takes it also where it
refuses any change of the spec: beside a stored one that it would refuse today."""

_RESETS = re.compile(r"`sinkpipeline reset(?: --status-file)?`(?: and this status)?")
_ADOPTS = re.compile(r"annotate it with sinkpipeline\.io/adopt-owner: ([A-Za-z0-9./-]+), and change restartNonce")
_CLOSES = re.compile(r"change the spec or spec\.restartNonce")
_LOOKS = re.compile(r"`sinkpipeline (progress|dlq list)`")
_OPTIONS = (
    # The status of the resource is what is remembered.
    ("; if it has delivered before, give its last --status-file", ""),
    ("give --secrets-dir DIR, where", "create the Secret: it is mounted at DIR, where"),
    ("redrive without --to source", "redrive without `to: Source`"),
    # The identity of a resource never changes.
    (
        "give this pipeline an identity of its own (spec.identity)",
        "make it a new resource, with a spec.identity of its own",
    ),
    ("under another spec.identity", "as a new resource, under another metadata.name and spec.identity"),
)


def in_cluster(remedy: str, pipeline: Ref, sink: str | None) -> str:
    """A remedy of the command, as it is typed for a pipeline of a cluster; any other stays as it is.

    Args:
        remedy: of a driver, or of the code that it shares with the operator.
        pipeline: whose.
        sink: which of its sinks; None where nobody knows.
    """
    adopt = rf"type `kubectl -n {pipeline.namespace} annotate --overwrite sinkpipeline {pipeline.name} "
    remedy = _RESETS.sub(lambda _: f"`{reset(pipeline, sink or 'SINK')}`, and confirm what it shows", remedy)
    remedy = _LOOKS.sub(lambda found: f"`{_look(pipeline, letters=found[1] == 'dlq list')}`", remedy)
    for of_command, of_resource in _OPTIONS:
        remedy = remedy.replace(of_command, of_resource)
    # A driver that runs, for the pipeline's other sinks, was started without the annotation.
    then = f"`, then `{restart(pipeline)}`"
    remedy = _ADOPTS.sub(lambda found: f"{adopt}sinkpipeline.io/adopt-owner={found[1]}{then}", remedy)
    return _CLOSES.sub(lambda _: f"change the spec, or stop and start it: `{restart(pipeline)}`", remedy)


def reset(pipeline: Ref, sink: str) -> str:
    """Asks for a preview of a reset; `earliest` is always there to go on from."""
    return _create(pipeline, {"pipeline": pipeline.name, "sink": sink, "action": "Reset", "to": "earliest"})


def redrive(pipeline: Ref, sink: str) -> str:
    return _create(pipeline, {"pipeline": pipeline.name, "sink": sink, "action": "Redrive"})


def _look(pipeline: Ref, *, letters: bool) -> str:
    if not letters:
        return f"kubectl -n {pipeline.namespace} get sinkpipeline {pipeline.name} -o jsonpath='{{.status.sinks}}'"
    mounted = "-f /etc/sinkpipeline/config/pipeline.json --secrets-dir /etc/sinkpipeline/secrets"
    return f"kubectl -n {pipeline.namespace} exec {pipeline.name}-driver -- sinkpipeline dlq list {mounted}"


def confirm(action: Ref, digest: str) -> str:
    patch = json.dumps({"spec": {"confirm": digest}}, separators=(",", ":"))
    return f"kubectl -n {action.namespace} patch sinkpipelineaction {action.name} --type=merge -p '{patch}'"


def restart(pipeline: Ref) -> str:
    """Whatever is remembered of failures is forgotten by it."""
    on, off = (_suspend(pipeline, suspend=each) for each in (True, False))
    wait = "--for=jsonpath='{.status.phase}'=Suspended --timeout=10m"
    return f"{on} && kubectl -n {pipeline.namespace} wait sinkpipeline {pipeline.name} {wait} && {off}"


def keep_topics(pipeline: Ref) -> str:
    """Lets a resource go whose topics can't be removed; also in a namespace that is being deleted."""
    return f"kubectl -n {pipeline.namespace} annotate --overwrite sinkpipeline {pipeline.name} {KEEP_TOPICS}=true"


def without_topics(pipeline: Ref) -> str:
    return f"to delete the resource alone, and keep its topics: `{keep_topics(pipeline)}`"


def removal_barred(pipeline: Ref, trouble: SinkPipelineError | None, *, has_kafka: bool) -> SinkPipelineError:
    """Why a pipeline's topics can't be removed with it, and how to let it go without.

    Args:
        pipeline: whose.
        trouble: what is wrong with its manifest or a Secret.
        has_kafka: whether the operator may talk to Kafka.
    """
    fact = "the manifest can't be read" if has_kafka else "the operator has no access to Kafka"
    fact = fact if trouble is None else trouble.message
    reason = Reason.MANIFEST_INVALID if trouble is None else trouble.reason
    return SinkPipelineError(reason, f"{fact}, so no topic can be removed", without_topics(pipeline))


def _suspend(pipeline: Ref, *, suspend: bool) -> str:
    patch = json.dumps({"spec": {"suspend": suspend}}, separators=(",", ":"))
    return f"kubectl -n {pipeline.namespace} patch sinkpipeline {pipeline.name} --type=merge -p '{patch}'"


def _create(pipeline: Ref, spec: Mapping[str, Any]) -> str:
    """One line, for any shell."""
    document = {
        "apiVersion": ACTION.api_version,
        "kind": ACTION.kind,
        "metadata": {"generateName": f"{str(spec['action']).lower()}-"},
        "spec": spec,
    }
    return f"echo '{json.dumps(document, separators=(',', ':'))}' | kubectl -n {pipeline.namespace} create -f -"


def error_in_cluster(error: Mapping[str, Any], pipeline: Ref, sink: str | None) -> dict[str, Any]:
    """Of a sink's `error` as a driver tells it."""
    return {**error, "remedy": in_cluster(str(error.get("remedy", "")), pipeline, sink)}


def told_in_cluster(document: Mapping[str, Any], pipeline: Ref) -> dict[str, Any]:
    """Of a driver's status document."""
    told = {**document, "sinks": [sink_in_cluster(each, pipeline) for each in document.get("sinks", ())]}
    source = document.get("source")
    return told if source is None else {**told, "source": sink_in_cluster(source, pipeline)}


def sink_in_cluster(sink: Mapping[str, Any], pipeline: Ref) -> dict[str, Any]:
    """Of a sink's entry, or of the source, which has no name."""
    error = sink.get("error")
    if not isinstance(error, Mapping):
        return dict(sink)
    return {**sink, "error": error_in_cluster(error, pipeline, sink.get("name"))}
