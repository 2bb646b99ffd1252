"""What a kind of sink gives its driver: where progress is kept, how it is read and written; and all of its ports."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Creation, Settings, Source, Target
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress
from sinkpipeline.core.records import Row
from sinkpipeline.core.topics import Topic

Believe = Callable[[Progress], Progress]
"""Returns the part of the progress that was found which counts."""
CheckMeta = Callable[[Meta | None], None]
"""Raises if a newer driver has the sink by now. It is called before a read fences the writer that holds the read
back."""

NOTHING_KNOWN: Final[Mapping[SourcePartition, PartitionProgress]] = MappingProxyType({})


class Into(enum.Enum):
    """Where rows of a batch go."""

    TARGET = "target"
    LETTERS = "letters"


class Hold(Protocol):
    """A sink that is held: nobody else writes its progress.

    Raises (all methods):
        Fenced: another driver has taken it, or it was taken from us for being slow.
        InDoubt: anything else that went wrong; what was written may count or not.
        SinkPipelineError: ProgressTopicInvalid, AuthorizationFailed, ...
    """

    @property
    def delivers(self) -> bool:
        """Whether it takes rows too, and they stand in the target as a task would write them. No kind has to."""

    @property
    def takes_what_it_writes(self) -> bool:
        """Whether the session of a task ends once the progress of its partition is written here."""

    def read(self, believe: Believe, check_meta: CheckMeta) -> Progress:
        """Reads all of the progress, for certain."""

    def read_since(self, end: int, check_meta: CheckMeta) -> Progress:
        """Reads what was written since an earlier read, which saw everything before `end`."""

    def metas(self) -> Mapping[str, Meta | None]:
        """Returns, by key, the `meta` of every sink in the same place of progress; None if it can't be read."""

    def read_no_more(self) -> None:
        """Called once the attempt needs no more reads."""

    def fence(self, partitions: Iterable[SourcePartition]) -> None:
        """Fences the partitions: from then on, no earlier writer of them can write."""

    def write(self, progress: Progress, known: Mapping[SourcePartition, PartitionProgress] = NOTHING_KNOWN) -> None:
        """Writes in one step: all of it counts, or nothing.

        Args:
            progress: what is to stand there.
            known: what the caller is certain to stand there. A store that can go back holds less then, and is refused.
        """

    def replace(self, found: Progress, new: Progress) -> None:
        """Writes `new` in one step, and deletes everything of `found` that is not in it."""

    def remove(self, found: Progress) -> None:
        """Deletes all progress of the sink, in one step."""

    def deliver(
        self, rows: Iterable[tuple[Into, Iterable[Row]]], progress: Mapping[SourcePartition, PartitionProgress]
    ) -> None:
        """Rows, dead letters and the new progress of each partition at once: all of it counts, or nothing.

        Raises:
            RecordRefused, SinkPipelineError: nothing of it counts, and the sink is held as before.
        """

    def still_holds(self) -> bool:
        """Whether nobody has taken the sink since, so that writes still count."""

    def close(self) -> None:
        """Gives the sink up."""


class Follower(Protocol):
    """Sees what others write of the progress, without writing. Not for several threads at a time."""

    @property
    def position(self) -> int:
        """Everything before this position was seen."""

    def poll(self) -> Progress:
        """Returns what was written since the follower began; it never waits."""

    @property
    def tells_all(self) -> bool:
        """Whether the last poll told what stands there by now, whenever it was written."""

    @property
    def store(self) -> str:
        """Which store it has read last, where there may be another one that was the same once; else empty."""

    def close(self) -> None: ...


class Ledger(Protocol):
    """Where the progress of a sink is kept.

    Raises (all methods):
        SinkPipelineError: ProgressCorrupt, ProgressUnreadable, BrokerUnreachable and the like.
    """

    @property
    def name(self) -> str:
        """The name of the place, for people."""

    def place(self) -> Topic | None:
        """The place where the progress is kept; None if it is missing."""

    def create(self) -> Creation:
        """Creates the place, or finds it there. If progress is kept in the target, this creates the target.

        Raises:
            PlaceChanged: it is gone again.
        """

    def check_apart(self, place: Topic, source: Mapping[str, str]) -> None:
        """Checks that the place is not a topic that is read.

        Raises:
            SinkPipelineError: ManifestInvalid.
        """

    def check_same(self, place: Topic) -> None:
        """Checks that the place is still the one that was found.

        Raises:
            PlaceChanged: it is another one.
        """

    def observe(self) -> Progress:
        """Reads what can be seen without writing; others may write meanwhile."""

    def decide(self, place: Topic) -> Progress:
        """Reads progress that is exact if nobody writes meanwhile, and a lower bound otherwise.

        Raises:
            SinkPipelineError: also ProgressTopicInvalid, where progress can't be kept in such a place.
        """

    def look(self, place: Topic, believe: Believe) -> tuple[Progress, bool]:
        """Reads as `decide`, and returns True with it; if that takes too long, what can be seen, and False."""

    def metas(self) -> Mapping[str, Meta | None]:
        """As `Hold.metas`, as far as can be seen while others write."""

    def hold(self, *, source_topics: int) -> Hold:
        """Takes the sink: from then on, whoever held it can't write. `source_topics`: how many the source has."""

    def follow(self, end: int) -> Follower:
        """Follows what others write from `end` on; everything before `end` is known."""

    def with_faults(self) -> Ledger:
        """The same ledger, whose reads return progress that can't be believed as faults instead of raising."""


@dataclass(frozen=True)
class Ids:
    """The ids of what is there now, as one look found it; None if it is missing."""

    source: Mapping[str, str | None]
    target: str | None
    place: str | None


class Ports(Protocol):
    """One sink, as its kind gives it to the protocol."""

    @property
    def settings(self) -> Settings: ...

    @property
    def kind(self) -> Any:
        """What tasks are given: a `sinks.contract.SinkKind`."""

    @property
    def source(self) -> Source: ...

    @property
    def target(self) -> Target: ...

    @property
    def ledger(self) -> Ledger: ...

    def ids(self, topics: Collection[str]) -> Ids:
        """The ids of these source topics, the target, and the place of progress. In few requests: before each batch."""

    def renew_clients(self) -> None:
        """Replaces all clients by new ones, which may begin with any of the servers."""
