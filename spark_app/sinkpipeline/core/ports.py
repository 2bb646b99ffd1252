"""What a kind of sink, and a kind of source, give the protocol: how progress is read, fenced and written with rows.

The protocol (`sinks/`) knows nothing else of where rows go. What stands here has no type of a client's in it.

    Source    what can be read
    Target    where the rows go
    Ledger    where the progress is kept ──► Hold: the sink is held, by its driver     `core/ledger_ports.py`
    Claim     a source partition, to be taken by a task ──► Session: it is taken       `core/task_ports.py`
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sinkpipeline.core.deadletter import SourceRecord, Verdict
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.positions import Positions
from sinkpipeline.core.progress import Mark, Meta, Owner, PartitionProgress
from sinkpipeline.core.starting import SourceView
from sinkpipeline.core.topics import Topic, TopicRequest


class Fenced(Exception):
    """Somebody else has taken the sink or partition, or we lost it for being slow: `meta` tells which."""


OUTAGES = frozenset(
    {Reason.BROKER_UNREACHABLE, Reason.SINK_UNREACHABLE, Reason.SINK_FULL, Reason.SINK_UNDER_REPLICATED}
)
"""Reasons for which a sink is waited for: the fault is not the sink's."""


class InDoubt(Exception):
    """What is open may or may not count, and what wrote it can't be used again.

    `aborted` where it does not count, for certain. `told` is what the table of causes says of it, where it has a cause.
    `share` tells how much of it was acknowledged, 0 to 1, where that is known: what came through in part was too much
    at once. `silent` where the server answers nobody: each further attempt would wait as long for nothing.
    """

    def __init__(
        self,
        text: str,
        *,
        aborted: bool = False,
        told: SinkPipelineError | None = None,
        share: float | None = None,
        silent: bool = False,
    ) -> None:
        super().__init__(text)
        self.aborted = aborted
        self.told = told
        self.share = share
        self.silent = silent

    @property
    def outage(self) -> SinkPipelineError | None:
        """What it was, where it was an outage of the sink."""
        return None if self.told is None or self.told.reason not in OUTAGES else self.told


class RecordRefused(Exception):
    """The client or the server refuses a record for what it is; nothing of what was open counts.

    `index` counts the rows of the call that raised it; None where only the server knows which one it was.
    `open_index` counts all rows that were open, where a commit was refused and the server has told which one it was.
    `topic` is where a record was to go that was refused, where that is known.
    """

    def __init__(
        self,
        verdict: Verdict,
        topic: str | None = None,
        index: int | None = None,
        *,
        open_index: int | None = None,
    ) -> None:
        super().__init__(verdict.text, topic, index)
        self.open_index = open_index
        self.verdict = verdict
        self.topic = topic
        self.index = index

    @property
    def text(self) -> str:
        return self.verdict.text


class ProgressRefused(RecordRefused):
    """The record that is refused is a progress record of ours."""


class HeadersUnreadable(Exception):
    """A record was read, but for its headers: the client can't take names that are not UTF-8, nor the others then."""

    def __init__(self, record: SourceRecord) -> None:
        super().__init__(record)
        self.record = record


class NoDeadLetter(Exception):
    """The dead letter of a record can't be written: why, and what a person can do about it."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(fact, remedy)
        self.fact = fact
        self.remedy = remedy


class PlaceChanged(Exception):
    """The place where the progress is kept was deleted, or deleted and created again, during an attempt."""


class LetterSettings(Protocol):
    """What a person says of dead letters; the rest is the kind's own."""

    @property
    def drop(self) -> bool:
        """Whether a record is dropped that can't even be dead-lettered; else it stops the sink."""


class Settings(Protocol):
    """What the protocol must know of a sink of any kind; the rest is the kind's own."""

    @property
    def id(self) -> SinkId: ...

    @property
    def owner(self) -> Owner: ...

    @property
    def adopt(self) -> Owner | None:
        """Another owner whose progress may be taken over."""

    @property
    def source(self) -> Any:
        """What is read: the source's own settings."""

    @property
    def group_id(self) -> str:
        """The name of the consumer group by which the source is read."""

    @property
    def exactly_once(self) -> bool: ...

    @property
    def refuse_existing_data(self) -> bool: ...

    @property
    def dead_letter(self) -> LetterSettings | None:
        """None where a record that can't be delivered stops the sink."""

    @property
    def data(self) -> TopicRequest:
        """The target, as the manifest asks for it."""


# The source


class Source(Protocol):
    """What a sink reads.

    Raises (all methods):
        SinkPipelineError: BrokerUnreachable and the like.
    """

    @property
    def tells_positions(self) -> bool:
        """Whether a first start goes on from positions of a checkpoint or a group (`positions`)."""

    def topics(self) -> Mapping[str, str]:
        """The topics that are read, with their ids.

        Raises:
            SinkPipelineError: SourceTopicMissing.
        """

    def view(self) -> SourceView:
        """The source as it is now, partition by partition.

        Raises:
            SinkPipelineError: SourceTopicMissing.
        """

    def check_visible(self, meta: Meta | None, found: Collection[str]) -> None:
        """That none of the topics which were read once is hidden from us now.

        Raises:
            SinkPipelineError: AuthorizationFailed.
        """

    def has_others(self, known: Collection[str]) -> bool:
        """Whether there are topics to read beside these."""

    def beginnings(self, partitions: Collection[SourcePartition]) -> Mapping[SourcePartition, int]: ...

    def ends(self, partitions: Collection[SourcePartition], *, readable: bool) -> Mapping[SourcePartition, int]:
        """Up to where records stand; `readable`: of those that are read."""

    def positions_at(
        self, moments: Mapping[SourcePartition, int], ends: Mapping[SourcePartition, int]
    ) -> Mapping[SourcePartition, int]:
        """Of each partition, the first record not older than a moment (Unix milliseconds), or else its end."""

    def positions(self, view: SourceView) -> Positions:
        """The positions of the checkpoint or group from which a first start goes on.

        Raises:
            SinkPipelineError: PositionsRefused.
        """

    def planned(
        self,
        known: Mapping[SourcePartition, PartitionProgress],
        view: SourceView,
        *,
        epoch: int,
        imported: Mapping[SourcePartition, int],
    ) -> dict[SourcePartition, PartitionProgress]:
        """The progress with which a start begins, as the manifest says; see `core.starting.plan_partitions`."""

    def begin_new(self, partition: SourcePartition, known_topics: Collection[str], view: SourceView) -> int:
        """The offset at which a partition without progress begins."""

    def marks(
        self,
        known: Mapping[SourcePartition, Mark],
        frontier: Mapping[SourcePartition, PartitionProgress],
        beginnings: Mapping[SourcePartition, int],
        ends: Mapping[SourcePartition, int],
    ) -> dict[SourcePartition, Mark]:
        """The marks that are known, after all of them were compared, and newer ones where the frontier has moved.

        Raises:
            SinkPipelineError: SourceDataLost.
        """


# Where the rows go


@dataclass(frozen=True, kw_only=True)
class Creation:
    """A target that is there after its creation was asked for."""

    topic: Topic
    is_ours: bool
    """Whether it was certainly this request that created it, and nobody else's, nor one whose answer was lost."""
    ours: str | None = None
    """Of a target of several topics: the ids of those that these requests have created for certain."""
    failed: SinkPipelineError | InDoubt | None = None
    """Why not all of several topics are there, though some of them were created."""


@dataclass(frozen=True, kw_only=True)
class Letters:
    """Where dead letters go, as a start found or made it."""

    topic: Topic | None
    limits: TopicLimits
    drift: tuple[str, ...]


class LetterTarget(Protocol):
    """A topic of the source's cluster that takes the dead letters of a sink of another kind; the driver's side.

    Raises (all methods):
        SinkPipelineError: BrokerUnreachable and the like.
    """

    def check_names(self) -> None:
        """That it is not what is read. Raises SinkPipelineError: ManifestInvalid."""

    def prepare(self, source: Mapping[str, str]) -> Letters:
        """As `Target.prepare_letters`."""

    def take(self, found: Letters) -> None:
        """Takes it for this sink. Raises SinkPipelineError: ManifestInvalid."""

    def limits(self) -> TopicLimits | None:
        """What it takes now; None where it is missing."""


class Target(Protocol):
    """Where the rows of a sink go, and what they must keep to there.

    Raises (all methods):
        SinkPipelineError: BrokerUnreachable and the like.
    """

    def check_names(self) -> None:
        """That nothing is both read and written, also of what doesn't exist yet.

        Raises:
            SinkPipelineError: ManifestInvalid.
        """

    def describe(self, source: Mapping[str, str]) -> Topic | None:
        """As it is there, and whether it holds data; None where it is missing. `source`: the ids of what is read.

        Raises:
            SinkPipelineError: ManifestInvalid, where it is read.
        """

    def id(self) -> str | None:
        """Of what is there."""

    def create(self, there: Topic | None = None) -> Creation:
        """Creates it; of several topics those that a start did not find, of which `there` has the others.

        Raises:
            SinkPipelineError: also TopicCreationFailed, and TopicsChanged where one of the others is gone by now.
            InDoubt: no answer came, so it may have been there for a while. Who starts begins anew.
        """

    def prepare_letters(self, source: Mapping[str, str]) -> Letters:
        """Where dead letters go; created, where that is asked for."""

    def take(self, target: Topic, place: Topic, letters: Letters) -> None:
        """Takes target, place and letters for this sink, in place of those that it had.

        Raises:
            SinkPipelineError: ManifestInvalid where another sink of this driver has some of it.
        """

    def limits_of(self, target: Topic) -> TopicLimits:
        """What it takes, as a start found or made it."""

    def limits(self) -> TopicLimits | None:
        """What it takes now; None where it is missing."""

    def letter_limits(self) -> TopicLimits | None:
        """What takes dead letters, likewise; None too where a sink has none."""

    def durability(self) -> Durability | None:
        """Whether acknowledged rows can be lost if a machine crashes, as the target is configured now.

        None if that is not known, or does not matter, because the guarantee is AtLeastOnce.
        """

    def duplicate_window_ms(self) -> int | None:
        """For so long the target itself knows a row that is sent again; None where it does not, or need not."""

    def counted(self) -> int | None:
        """As in `Topic`: what is written from now on counts beyond it. None too where it is missing."""

    def lost(self, what: str) -> SinkPipelineError:
        """DataTopicLost: why."""

    def delete(self, target: str) -> None:
        """Deletes the target with this id, and all that is in it. One with another id stays, if that can be told.

        Raises:
            SinkPipelineError: also TopicsChanged, where it is another one by now.
        """
