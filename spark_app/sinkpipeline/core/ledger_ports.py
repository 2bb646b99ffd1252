"""What a kind of sink gives its driver: where progress is kept, how it is read and written; and all of its ports."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Creation, Settings, Source, Target
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress
from sinkpipeline.core.records import Row
from sinkpipeline.core.topics import Topic

Believe = Callable[[Progress], Progress]
"""What counts of the progress that was found."""
CheckMeta = Callable[[Meta | None], None]
"""Raises where the sink is a newer driver's now: called before a read fences whoever holds it back."""


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

    def read(self, believe: Believe, check_meta: CheckMeta) -> Progress:
        """All of the progress, for certain."""

    def read_since(self, end: int, check_meta: CheckMeta) -> Progress:
        """What was written since a read that saw all before `end`."""

    def metas(self) -> Mapping[str, Meta | None]:
        """By key, the `meta` of every sink in the same place; None is unreadable."""

    def read_no_more(self) -> None:
        """The attempt has read what it had to."""

    def fence(self, partitions: Iterable[SourcePartition]) -> None:
        """Whoever writes one of these writes no more."""

    def write(self, progress: Progress) -> None:
        """At once: all of it counts, or nothing."""

    def replace(self, found: Progress, new: Progress) -> None:
        """Likewise; and nothing else of what was found stays."""

    def remove(self, found: Progress) -> None:
        """Likewise, all of the sink's."""

    def deliver(
        self, rows: Iterable[tuple[Into, Iterable[Row]]], progress: Mapping[SourcePartition, PartitionProgress]
    ) -> None:
        """Rows, dead letters and the new progress of each partition at once: all of it counts, or nothing.

        Raises:
            RecordRefused, SinkPipelineError: nothing of it counts, and the sink is held as before.
        """

    def still_holds(self) -> bool:
        """Whether nobody has taken it since: what is written counts."""

    def close(self) -> None:
        """Gives it up."""


class Follower(Protocol):
    """Sees what others write of the progress, without writing. Not for several threads at a time."""

    @property
    def position(self) -> int:
        """Everything before it was seen."""

    def poll(self) -> Progress:
        """What has been written since it began; it never waits."""

    @property
    def tells_all(self) -> bool:
        """Whether the last poll told what stands there by now, whenever it was written."""

    def close(self) -> None: ...


class Ledger(Protocol):
    """Where the progress of a sink is kept.

    Raises (all methods):
        SinkPipelineError: ProgressCorrupt, ProgressUnreadable, BrokerUnreachable and the like.
    """

    @property
    def name(self) -> str:
        """For a person."""

    def place(self) -> Topic | None:
        """Where it is kept; None where that is missing."""

    def create(self) -> Creation:
        """Makes it, or finds it made. Where progress is kept in the target, that is what is made.

        Raises:
            PlaceChanged: it is gone again.
        """

    def check_apart(self, place: Topic, source: Mapping[str, str]) -> None:
        """That it is not what is read.

        Raises:
            SinkPipelineError: ManifestInvalid.
        """

    def check_same(self, place: Topic) -> None:
        """That it is still the one that was found.

        Raises:
            PlaceChanged: it is another one.
        """

    def observe(self) -> Progress:
        """What is seen without writing."""

    def decide(self, place: Topic) -> Progress:
        """Exact where nobody writes, a lower bound where somebody does.

        Raises:
            SinkPipelineError: also ProgressTopicInvalid, where progress can't be kept in such a place.
        """

    def look(self, place: Topic, believe: Believe) -> tuple[Progress, bool]:
        """Likewise, and True; where that can't be read soon, what is seen, and False."""

    def metas(self) -> Mapping[str, Meta | None]:
        """As `Hold.metas`, as far as can be seen while others write."""

    def hold(self, *, source_topics: int) -> Hold:
        """Takes the sink: whoever held it writes no more. `source_topics`: how many its source has."""

    def follow(self, end: int) -> Follower:
        """`end`: everything before it is known."""

    def with_faults(self) -> Ledger:
        """The same, whose reads tell what can't be believed, and don't refuse it."""


@dataclass(frozen=True)
class Ids:
    """Of what is there now, as one look found it; None is missing."""

    source: Mapping[str, str | None]
    target: str | None
    place: str | None


class Ports(Protocol):
    """One sink, as its kind gives it to the protocol."""

    @property
    def settings(self) -> Settings: ...

    @property
    def kind(self) -> Any:
        """What is told to tasks: a `sinks.contract.SinkKind`."""

    @property
    def source(self) -> Source: ...

    @property
    def target(self) -> Target: ...

    @property
    def ledger(self) -> Ledger: ...

    def ids(self, topics: Collection[str]) -> Ids:
        """Of these source topics, the target, and where the progress is kept: before each batch, so in few requests."""

    def renew_clients(self) -> None:
        """Clients that begin anew, with any of the servers."""
