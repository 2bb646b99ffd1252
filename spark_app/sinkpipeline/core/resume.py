"""What a driver in a pod gets beside its configuration: earlier progress, open circuits, an owner to adopt.

The operator writes it into the ConfigMap `<name>-resume`, outside the configuration's hash: it changes nothing of what
the driver must run. Its sinks have the shape of `status.sinks`, of which they are copies.

    {"v": 1, "identity": "shop.orders",
     "sinks": [{"name": "enriched", "epoch": 0, "dataTopicId": ..., "progressTopicId": ...,
                "frontier": [{"topic": "orders-raw", "topicId": ..., "next": [120, 118]}],
                "rowsDelivered": 230, "deadLettered": 2, "dropped": 0, "lost": 0,
                "deadLetters": [{"class": "WrongType", "stage": "decode", "count": 2, "dropped": 0}],
                "circuit": {"openedAt": "2026-01-31T12:00:00Z", "configHash": "8f14e45f"},
                "error": {"reason": "CircuitOpen", "message": ..., "remedy": ...}}],
     "adopt": {"cluster": <uid of kube-system>, "name": "<namespace>/<name>"}}

A sink without `frontier` is one that nobody remembers; `circuit`, its `error` and `adopt` are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.status import dead_letters, frontier, timestamp
from sinkpipeline.core.topic_ids import to_status
from sinkpipeline.core.topics import Memory, recall

VERSION = 1

_NOBODY = Owner(cluster="nobody", name="nobody")


@dataclass(frozen=True, kw_only=True)
class OpenCircuit:
    """A circuit that opened, and the configuration under which it did."""

    opened_at: int
    """Unix milliseconds, in whole seconds."""
    config_hash: str
    message: str = ""
    """What the sink's error said; empty where nobody knows."""
    remedy: str = ""

    @property
    def error(self) -> SinkPipelineError:
        return SinkPipelineError(
            Reason.CIRCUIT_OPEN,
            self.message or f"the circuit has been open since {timestamp(self.opened_at)} for this configuration",
            self.remedy or "mend the cause, then change the spec or spec.restartNonce",
        )


@dataclass(frozen=True, kw_only=True)
class Resume:
    """What a driver goes on from, by sink; empty for one that nobody told anything."""

    identity: str
    memories: Mapping[str, Memory] = field(default_factory=lambda: MappingProxyType({}))
    circuits: Mapping[str, OpenCircuit] = field(default_factory=lambda: MappingProxyType({}))
    adopt: Owner | None = None
    """Whose identity may be taken over; any other foreign owner is refused as ever."""

    def open_circuits(self, config_hash: str | None) -> dict[str, OpenCircuit]:
        """Those that stay open: a circuit closes with another configuration, and for a run without one."""
        return {sink: each for sink, each in self.circuits.items() if each.config_hash == config_hash}


def parse(document: object, identity: str) -> Resume:
    """Reads the document of a ConfigMap.

    Raises:
        SinkPipelineError: StatusFileInvalid, also where it is of another identity or of an unknown version.
    """
    if isinstance(document, Mapping) and document.get("v") != VERSION:
        raise _invalid(f"its version is {document.get('v')!r}, known is {VERSION}")
    resume = from_status(document, identity)
    try:
        known = _sinks(document)
        circuits = {name: _circuit(sink) for name, sink in known.items() if sink.get("circuit") is not None}
        adopt = _owner(document["adopt"]) if document.get("adopt") is not None else None  # type: ignore[index,attr-defined]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _invalid(f"{type(error).__name__}: {error}") from error
    return Resume(identity=identity, memories=resume.memories, circuits=MappingProxyType(circuits), adopt=adopt)


def from_status(document: object, identity: str, *, adopt: Owner | None = None) -> Resume:
    """What a status document remembers: the resource's, or the file of an earlier run, which has no circuits.

    A circuit without a `configHash` is left out: nobody knows when it would close.

    Raises:
        SinkPipelineError: StatusFileInvalid.
    """
    memory_of(document, identity, "")  # refuses what is no status document
    try:
        sinks = _sinks(document)
        circuits = {
            name: _circuit(sink) for name, sink in sinks.items() if (sink.get("circuit") or {}).get("configHash")
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _invalid(f"{type(error).__name__}: {error}") from error
    memories = {name: memory for name in sinks if (memory := memory_of(document, identity, name)) is not None}
    return Resume(
        identity=identity, memories=MappingProxyType(memories), circuits=MappingProxyType(circuits), adopt=adopt
    )


def render(resume: Resume) -> dict[str, Any]:
    """The document, JSON-ready; `parse` gives back an equal one.

    Counts are sums per sink, as in the status: a memory with counts in several partitions comes back with all of them
    in the first one.
    """
    return {
        "v": VERSION,
        "identity": resume.identity,
        "sinks": [
            {
                "name": name,
                **(_memory(resume.memories[name]) if name in resume.memories else {}),
                **(_open(resume.circuits[name]) if name in resume.circuits else {}),
            }
            for name in sorted({*resume.memories, *resume.circuits})
        ],
        **({} if resume.adopt is None else {"adopt": {"cluster": resume.adopt.cluster, "name": resume.adopt.name}}),
    }


def _memory(memory: Memory) -> dict[str, Any]:
    states = memory.partitions.values()
    return {
        "epoch": memory.epoch,
        **to_status(memory.data),
        "progressTopicId": memory.progress,
        "frontier": frontier(recall(memory, _NOBODY)),
        "rowsDelivered": memory.rows,
        "deadLettered": sum(state.dead for state in states),
        "dropped": sum(state.dropped for state in states),
        "lost": sum(state.lost for state in states),
        "deadLetters": dead_letters(states),
        **({} if memory.restored is None else {"mayBeDuplicated": memory.restored}),
        **({} if memory.rolled_back is None else {"rolledBack": memory.rolled_back}),
        **({} if memory.counted is None else {"counted": memory.counted}),
    }


def _open(circuit: OpenCircuit) -> dict[str, Any]:
    document: dict[str, Any] = {
        "circuit": {"openedAt": timestamp(circuit.opened_at), "configHash": circuit.config_hash}
    }
    if circuit.message or circuit.remedy:
        error = {"reason": Reason.CIRCUIT_OPEN.value, "message": circuit.message, "remedy": circuit.remedy}
        document["error"] = error
    return document


def _sinks(document: Any) -> dict[str, Mapping[str, Any]]:
    sinks: dict[str, Mapping[str, Any]] = {}
    for each in document["sinks"]:
        name = _text(each["name"])
        if name in sinks:
            raise ValueError(f"sink {name} is there twice")
        sinks[name] = each
    return sinks


def _circuit(sink: Mapping[str, Any]) -> OpenCircuit:
    circuit, error = sink["circuit"], sink.get("error") or {}
    told = error.get("reason") == Reason.CIRCUIT_OPEN.value
    opened = datetime.strptime(_text(circuit["openedAt"]), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return OpenCircuit(
        opened_at=int(opened.timestamp()) * 1000,
        config_hash=_text(circuit["configHash"]),
        message=str(error.get("message", "")) if told else "",
        remedy=str(error.get("remedy", "")) if told else "",
    )


def _owner(value: Mapping[str, Any]) -> Owner:
    return Owner(cluster=_text(value["cluster"]), name=_text(value["name"]))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a name")
    return value


def _invalid(fact: str) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.STATUS_FILE_INVALID,
        f"what is remembered of this pipeline can't be read: {fact}",
        "run the release that wrote it",
    )
