"""What an earlier status document remembers of a sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.tally import parse
from sinkpipeline.core.topic_ids import joined
from sinkpipeline.core.topics import Memory


def memory_of(document: object, identity: str, sink: str) -> Memory | None:
    """What an earlier status document remembers of a sink, or None where it remembers no frontier.

    The status has counts per sink only, also those by class; all of them are given to the first partition, so that the
    sums stay true.

    Raises:
        SinkPipelineError: StatusFileInvalid, also where the document is of another identity: its frontier would be
            taken for this one's, and writing over it would forget the other's.
    """
    try:
        of = document["identity"]  # type: ignore[index]
        found = next((each for each in document["sinks"] if each["name"] == sink), None)  # type: ignore[index]
        memory = None if found is None or not found.get("frontier") else _memory(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SinkPipelineError(
            Reason.STATUS_FILE_INVALID,
            f"the earlier status is not a status document ({type(error).__name__}: {error})",
            "name the file of an earlier run of this pipeline, or one that doesn't exist yet",
        ) from error
    if of != identity:
        raise SinkPipelineError(
            Reason.STATUS_FILE_INVALID,
            f"the earlier status is of identity {of}, this pipeline's is {identity}",
            "give every identity a status file of its own",
        )
    return memory


def _memory(found: Mapping[str, Any]) -> Memory:
    epoch = _count(found["epoch"])
    partitions: dict[SourcePartition, PartitionProgress] = {}
    source: dict[str, str] = {}
    for entry in found["frontier"]:
        topic, topic_id = _text(entry["topic"]), entry.get("topicId")
        if topic_id is not None:
            source[topic] = _text(topic_id)
        for number, offset in enumerate(entry["next"]):
            partitions[SourcePartition(topic, number)] = PartitionProgress(epoch=epoch, next=_count(offset))
    first = min(partitions)
    partitions[first] = replace(
        partitions[first],
        rows=_count(found["rowsDelivered"]),
        dead=_count(found["deadLettered"]),
        dropped=_count(found["dropped"]),
        lost=_count(found["lost"]),
        by_class=parse(found.get("deadLetters", ())),
    )
    progress = found.get("progressTopicId")
    return Memory(
        epoch=epoch,
        partitions=MappingProxyType(partitions),
        source=MappingProxyType(source),
        data=_data(found),
        progress=None if progress is None else _text(progress),
        rows=_count(found["rowsDelivered"]),
        restored=_count_or_none(found, "mayBeDuplicated"),
        rolled_back=_count_or_none(found, "rolledBack"),
        counted=_count_or_none(found, "counted"),
    )


def _data(found: Mapping[str, Any]) -> str | None:
    if found.get("dataTopics"):
        return joined({_text(each["topic"]): _text(each["topicId"]) for each in found["dataTopics"]})
    data = found.get("dataTopicId")
    return None if data is None else _text(data)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _count_or_none(found: Mapping[str, Any], name: str) -> int | None:
    return None if found.get(name) is None else _count(found[name])


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a name")
    return value
