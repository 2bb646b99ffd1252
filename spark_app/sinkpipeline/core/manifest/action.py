"""`SinkPipelineAction`: what a person asks for once, of one sink of one pipeline."""

import enum
from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.deadletter import ErrorClass, Stage
from sinkpipeline.core.manifest.base import INT32_MAX, Part
from sinkpipeline.core.manifest.model import Metadata
from sinkpipeline.core.manifest.names import Digest, LetterPlace, Moment, ResourceName, SinkName, TargetList
from sinkpipeline.core.manifest.parse import parse
from sinkpipeline.core.manifest.problems import Fault, fault_error

ACTION_KIND = "SinkPipelineAction"
_WEEK_S = 7 * 24 * 3600
_MAX_LISTED = 1000
DATA, SOURCE = "Data", "Source"


class ActionType(str, enum.Enum):
    """What is to be done."""

    RESET = "Reset"
    REDRIVE = "Redrive"
    PURGE = "Purge"


class LetterFilter(Part):
    """Which dead letters: those that fit all fields that are given."""

    ids: Annotated[tuple[LetterPlace, ...], Field(max_length=_MAX_LISTED)] = ()
    """Only these letters: partition and offset in the dead-letter topic, such as 0:120."""
    stages: Annotated[tuple[Stage, ...], Field(max_length=len(Stage))] = ()
    """Only letters that failed at these stages."""
    classes: Annotated[tuple[ErrorClass, ...], Field(max_length=len(ErrorClass))] = ()
    """Only letters of these error classes."""
    since: Moment | None = None
    """Only letters written since this time: a time, or how long before the action was created."""
    until: Moment | None = None
    """Only letters written before this time: likewise."""


class PurgeBound(Part):
    """How much of the beginning of the dead-letter topic is deleted: exactly one of these."""

    redriven: bool | None = None
    """true deletes, in each partition, everything before the first letter that is pending, of any sink."""
    until: Moment | None = None
    """Deletes everything that was written before this time, pending letters too: a time, or how long before the action
    was created."""
    before_offsets: Annotated[tuple[LetterPlace, ...], Field(max_length=_MAX_LISTED)] = ()
    """Deletes everything before these offsets, pending letters too: one for a partition, such as 0:120."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.redriven is False:
            raise fault_error([Fault("use true, or leave it out", None, ("redriven",))])
        if sum((self.redriven is not None, self.until is not None, bool(self.before_offsets))) != 1:
            raise fault_error([Fault("give exactly one of redriven, until and beforeOffsets", "names no one bound")])
        return self


class ActionSpec(Part):
    """What is to be done, to which sink. Only confirm may change later."""

    pipeline: ResourceName
    """The SinkPipeline, of the same namespace."""
    sink: SinkName
    """The name of one of its sinks."""
    action: ActionType
    """Reset sets where the sink goes on; Redrive delivers its pending dead letters; Purge deletes the beginning of its
    dead-letter topic for good."""
    to: TargetList | None = None
    """For a Reset, where the sink goes on: earliest, latest, a time such as 2026-01-01T00:00:00Z, or a list such as
    orders:0=120,orders:1=latest; a partition that the list doesn't name stays where it is. For a Redrive: Data (the
    default), into the sink's topic or table; or Source, back into the source topic."""
    letters: LetterFilter | None = None
    """For a Redrive, which letters; left out, all that are pending."""
    rate: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    """For a Redrive, at most this many letters a second."""
    up_to: PurgeBound | None = None
    """For a Purge, what is deleted for good."""
    confirm: Digest | None = None
    """The status.digest of the preview that is to be carried out. Nothing is changed without it."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=INT32_MAX)] = _WEEK_S
    """How many seconds after its success or failure the action is deleted."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        faults = [Fault(right, wrong, at) for right, wrong, at, holds in self._rules() if not holds]
        if faults:
            raise fault_error(faults)
        return self

    def _rules(self) -> tuple[tuple[str, str, tuple[str, ...], bool], ...]:
        reset, redrive = self.action is ActionType.RESET, self.action is ActionType.REDRIVE
        ways = (DATA, SOURCE)
        return (
            ("say where a Reset goes on", "is missing", ("to",), not reset or self.to is not None),
            (
                "a Reset goes on at earliest, latest, a time or offsets",
                "is of a Redrive",
                ("to",),
                not reset or self.to not in ways,
            ),
            ("a Redrive goes to Data or Source", "is of a Reset", ("to",), not redrive or self.to in (None, *ways)),
            (
                "leave it out: a Purge has upTo",
                "does not belong to a Purge",
                ("to",),
                reset or redrive or self.to is None,
            ),
            (
                "leave it out: only a Redrive has it",
                "does not belong to this action",
                ("letters",),
                redrive or self.letters is None,
            ),
            (
                "leave it out: only a Redrive has it",
                "does not belong to this action",
                ("rate",),
                redrive or self.rate is None,
            ),
            (
                "give upTo to a Purge, and to no other action",
                "is missing, or does not belong to this action",
                ("upTo",),
                (self.action is ActionType.PURGE) == (self.up_to is not None),
            ),
        )


class SinkPipelineAction(Part):
    """What a person asks for once: shown first, and carried out when it is confirmed."""

    api_version: Literal["sinkpipeline.io/v1alpha1"]
    kind: Literal["SinkPipelineAction"]
    metadata: Metadata
    spec: ActionSpec
    """What is asked for."""


def parse_action(document: object) -> SinkPipelineAction:
    """As `parse_manifest`.

    Raises:
        ManifestError
    """
    return parse(document, SinkPipelineAction)
