"""What a sink says that stops at a record which it can neither deliver nor dead-letter."""

from __future__ import annotations

from collections.abc import Callable

from sinkpipeline.core.deadletter import Stage, Verdict, reason_of
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import NoDeadLetter


def stopped(partition: SourcePartition, offset: int, verdict: Verdict, cure: Callable[[str], str]) -> SinkPipelineError:
    """The error that stops a sink without dead letters at a record that can't be delivered.

    `cure`: of what the target refuses.
    """
    if verdict.error_class.stage is Stage.WRITE:
        return refused(partition, offset, offset + 1, verdict.text, cure(verdict.text))
    return SinkPipelineError(
        Reason.RECORD_UNDECODABLE,
        f"the record at {_place(partition)}, offset {offset} can't be delivered: "
        f"{verdict.error_class.error(verdict.text)}",
        "everything before it in its partition was delivered; correct decode or transform, or give the sink a "
        "deadLetter; to skip the record, reset the sink to the offset after it",
    )


def not_dead_lettered(
    partition: SourcePartition, offset: int, verdict: Verdict, failure: NoDeadLetter
) -> SinkPipelineError:
    """The error that stops a sink under `onFailure: Stop`."""
    return SinkPipelineError(
        Reason.DEAD_LETTER_FAILED,
        f"the record at {_place(partition)}, offset {offset} can't be delivered "
        f"({verdict.error_class.error(reason_of(verdict.text))}), and its dead letter can't be written: {failure.fact}",
        f"everything before it in its partition was delivered; {failure.remedy}, or let such records go with "
        "onFailure: DropAndContinue",
    )


def refused(partition: SourcePartition, offset: int, end: int, why: str, cure: str) -> SinkPipelineError:
    """The error for records that the target refuses; `end` is exclusive."""
    which = f"offset {offset}" if end == offset + 1 else f"one of offsets {offset} to {end - 1}"
    return SinkPipelineError(
        Reason.RECORD_REFUSED,
        f"the record at {_place(partition)}, {which} was refused: {why}",
        f"{cure}; or leave such records out with transform.where",
    )


def _place(partition: SourcePartition) -> str:
    return f"topic {partition.topic}, partition {partition.partition}"
