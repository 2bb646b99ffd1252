"""Redriving the dead letters of one sink: what is pending, and to deliver it.

    survey: every partition up to its last stable offset ─► what is pending (`--dry-run` ends here)
    then, partition by partition: claim it ─► pending letters, chunk by chunk ─► rows ─► a transaction each

A survey changes nothing, and what it has read is final; the claim reads the rest. Letters that come after the survey,
such as those that fail again, are of a later redrive.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from operator import add

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import is_compacted
from sinkpipeline.core.lost_topics import check_several
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, PartitionProgress
from sinkpipeline.core.redrive import MOST_LETTERS, Foreign, Ledger, Letter, Outcome, Wanted, chunks
from sinkpipeline.core.retention import redriven_too_old
from sinkpipeline.core.targets import usage_invalid
from sinkpipeline.core.topic_ids import by_name, ids_of
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.data_topics import data_limits_of, describe_data
from sinkpipeline.kafka.dead_letter_log import DeadLetterLog
from sinkpipeline.kafka.kind import KAFKA
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.redrive_writer import DATA, GONE, LEFT, UNCOUNTED, Destination, RedriveWriter
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.kafka.survey import Matched, PartitionView, Survey
from sinkpipeline.kafka.views import describe, limits_of
from sinkpipeline.sinks.contract import BatchPlan, RowBatch

Transform = Callable[[Sequence[Letter]], RowBatch | None]
"""Rows of letters, with the letters' offsets; a letter that has none was filtered out."""


@dataclass(frozen=True)
class Summary:
    """What a redrive has done, in letters."""

    delivered: int = 0
    returned: int = 0
    """To their source topic."""
    filtered: int = 0
    dead_lettered: int = 0
    """They failed again, and are letters again."""
    repeated: int = 0
    """Another letter of the same record was settled: nothing was written for them."""
    kept: int = 0
    """They failed again, could not be dead-lettered again, and stay pending as they are."""
    uncounted: int = 0
    """Nothing says that their records were handled as dead letters: they stay pending as they are."""
    gone: int = 0
    """Retention or a purge has taken them before they were read."""
    pending: int = 0
    """Not reached."""

    def __add__(self, other: Summary) -> Summary:
        return Summary(*map(add, astuple(self), astuple(other)))

    @property
    def settled(self) -> int:
        told = self.delivered + self.returned + self.filtered + self.dead_lettered + self.repeated
        return told + self.kept + self.uncounted + self.gone


@dataclass(kw_only=True)
class Redrive:
    """One redrive of one sink's letters.

    Raises (all methods):
        SinkPipelineError: UsageInvalid, DataTopicLost, ProgressLost, DeadLetterFailed, Superseded, TopicsChanged, and
            what reads and transactions raise. What was settled before stays settled.
    """

    settings: SinkSettings
    wanted: Wanted
    transform: Transform | None = None
    """Not needed for a survey."""
    rate: float | None = None
    """At most so many letters a second."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Ends it after the open transaction."""
    on_change: Callable[[Summary], None] = lambda _: None
    destination: Destination = DATA
    admin: Admin = field(init=False)
    summary: Summary = field(default_factory=Summary, init=False)
    _total: int = field(default=0, init=False)
    """Letters that were pending when it began."""
    _before: Counter[str] = field(default_factory=Counter, init=False)
    """What became of those of earlier partitions."""
    _run: str = field(default_factory=lambda: str(uuid.uuid4()), init=False)

    def __post_init__(self) -> None:
        self.admin = Admin(self.settings.connection)

    def survey(self, ends: Sequence[int] | None = None) -> Survey | None:
        """What is pending, and changes nothing; None where there is no dead-letter topic.

        Args:
            ends: of each partition, the offset from which on letters are of a later redrive; by default its end.
        """
        topic = describe(self.admin, self._dead_letter.topic.name)
        if topic is None:
            return None
        with self._log(topic) as log:
            extents = log.extents()
            given = dict(enumerate(ends)) if ends is not None else {at: each.high for at, each in enumerate(extents)}
            views = []
            for number, extent in enumerate(extents):
                end = min(extent.high, given.get(number, 0))
                view = PartitionView(number, end, Ledger(topic.id, extent.low), hidden=max(0, end - extent.stable))
                # Also behind the end: there it may say what is settled before it.
                for found in log.read_on(view.ledger, number, extent.stable):
                    self._note(view, found)
                views.append(view)
        return Survey(self.settings.id, topic, views)

    def carry_out(self, survey: Survey) -> Summary:
        """Redrives what was surveyed; `summary` tells how far that got, also after an error."""
        plan = self._plan(survey.topic)
        self._total = survey.pending
        self._tell(Counter())
        # A transaction that does not end holds up none but the partitions that it is in.
        for view in sorted(survey.partitions, key=lambda each: each.hidden > 0):
            if self.stop.is_set() or not view.may_hold(self.settings.id, self.wanted.ids):
                continue
            at = SourcePartition(survey.topic.name, view.number)
            first = min(view.matched, default=0)
            own = replace(
                plan, frontier={at: PartitionProgress(epoch=0, next=first)}, ranges={at: OffsetRange(first, view.end)}
            )
            known = len(view.pending(self.settings.id))
            writer = self._writer(own, survey.topic, view)
            try:
                # Another redrive may have settled some since the survey, and what was hidden may have come.
                pending = view.pending(self.settings.id)
                self._total += len(pending) - known
                self._drain(writer, survey.topic, view.number, pending)
            finally:
                writer.close()
                self._tell(writer.tally)
                self._before += writer.tally
        return self.summary

    def forecast(self, survey: Survey) -> Iterator[str]:
        """What a person should know before this is carried out, one sentence a line; changes nothing."""
        times = [each.timestamp for each in survey.letters() if self.wanted.source_topic in (None, each.source_topic)]
        if not times:
            return
        now = int(time.time() * 1000)
        for topic in filter(None, (describe(self.admin, each) for each in self.settings.data_names)):
            yield from redriven_too_old(topic, times, now)
            if is_compacted(topic.config):
                yield (
                    f"topic {topic.name} is compacted: what is written of a letter replaces the row with its key, or "
                    "deletes it where the value is null, even if that row is newer"
                )

    @property
    def goes_into(self) -> str:
        """Where rows go, for a person."""
        return self.settings.data.name

    def close(self) -> None:
        """Gives up what it is connected with."""

    def _writer(self, plan: BatchPlan, topic: Topic, view: PartitionView) -> RedriveWriter:
        note = partial(self._note, view)
        return RedriveWriter(
            plan, self.settings, topic, view.number, view.ledger, note, self.admin, destination=self.destination
        )

    def _drain(self, writer: RedriveWriter, topic: Topic, number: int, pending: list[int]) -> None:
        if self.transform is None:
            raise ValueError("without a transform nothing can be redriven")
        pace = _Pace(self.rate, self.stop)
        read = 0
        with self._log(topic) as log:
            for chunk in chunks(log.letters(number, pending), most=min(pace.most, self._most_letters)):
                pace.wait_for(len(chunk))
                if self.stop.is_set():
                    return
                writer.check_topics()
                read += len(chunk)
                settling, alive = writer.sift(chunk)
                if settling:
                    writer.deliver(settling, self.transform(alive) if alive else None)
                self._tell(writer.tally)
        writer.tally[GONE] += len(pending) - read

    def _note(self, view: PartitionView, found: Letter | Foreign) -> None:
        if found.id.offset >= view.end:
            return
        if isinstance(found, Foreign):
            view.foreign[found.id.offset] = found.why
        elif self.wanted.matches(found):
            view.matched[found.id.offset] = Matched.of(found)

    def _tell(self, current: Counter[str]) -> None:
        tally = self._before + current
        self.summary = Summary(
            delivered=tally[Outcome.DELIVERED.value],
            returned=tally[Outcome.RETURNED.value],
            filtered=tally[Outcome.FILTERED.value],
            dead_lettered=tally[Outcome.DEAD_LETTERED.value],
            repeated=tally[Outcome.REPEATED.value],
            kept=tally[LEFT],
            uncounted=tally[UNCOUNTED],
            gone=tally[GONE],
            pending=self._total - tally.total(),
        )
        self.on_change(self.summary)

    @property
    def _dead_letter(self) -> DeadLetterSettings:
        if self.settings.dead_letter is None:
            raise usage_invalid(
                f"sink {self.settings.id.sink} has no deadLetter, and so no dead letters", "name a sink that has one"
            )
        return self.settings.dead_letter

    @property
    def _most_letters(self) -> int:
        """Of one transaction."""
        return MOST_LETTERS

    def _log(self, topic: Topic) -> DeadLetterLog:
        return DeadLetterLog(self.settings.connection, topic, self.settings.group_id)

    def _plan(self, topic: Topic) -> BatchPlan:
        """What a batch of the sink would be told, after the same checks."""
        if is_compacted(topic.config):
            raise SinkPipelineError(
                Reason.DEAD_LETTER_FAILED,
                f"the dead-letter topic {topic.name} is compacted, so what was redriven can't be written down in it",
                # No record without a key is kept, however old it is.
                "set its cleanup.policy to delete. What was redriven before may be pending again: compaction removes "
                "the records that say so, and a topic would get it twice. Look at `sinkpipeline dlq list`, and redrive "
                "by time or by ids only what never was",
            )
        return self._plan_of_target(topic, self.meta())

    def _plan_of_target(self, topic: Topic, meta: Meta) -> BatchPlan:
        settings = self.settings
        data, own = describe_data(self.admin, settings.data), self.destination.own_id(meta)
        parts = settings.data.parts
        if data is not None and parts and (data.id != own or len(data.parts) < len(parts)):
            self._check_several(data, own)
        if data is None or data.id != own:
            what = "it does not exist" if data is None else "it is not the one that the sink knows"
            raise self.destination.lost(settings.data.name, what)
        return BatchPlan(
            kind=KAFKA,
            settings=settings,
            run=self._run,
            data_limits=data_limits_of(data),
            letter_limits=limits_of(topic),
            data_topic_id=data.id,
            progress_topic_id=meta.progress or "",
            verified=0,
            ranges={},
            frontier={},
            owners={},
        )

    def _check_several(self, data: Topic, own: str | None) -> None:
        """That the sink knows all topics that the manifest names.

        Raises:
            SinkPipelineError: DataTopicLost, DataTopicRemoved, ProgressLost.
        """
        there = ids_of(data.id) or {}
        check_several(own, None, there, self.settings.data_names)
        new = sorted({each.name for each in self.settings.data.each} - by_name(own, there).keys())
        raise SinkPipelineError(
            Reason.PROGRESS_LOST,
            f"{self.settings.id} does not know {', '.join(new)} of the manifest yet",
            "run the pipeline first; then redrive",
        )

    def meta(self) -> Meta:
        """What the sink says of itself: which data topic is its own."""
        settings = self.settings
        if self.admin.topics([settings.progress.name])[settings.progress.name] is not None:
            with ProgressLog(settings.connection, settings.progress.name, settings.group_id) as log:
                # What is behind it is refused below: a topic's id never comes back.
                return self._known_meta(log.observe(settings.id).meta, settings.progress.name, "data topic")
        return self._known_meta(None, settings.progress.name, "data topic")

    def _known_meta(self, meta: Meta | None, place: str, called: str) -> Meta:
        if meta is None or meta.data is None:
            raise SinkPipelineError(
                Reason.PROGRESS_LOST,
                f"{place} does not say which {called} {self.settings.id} delivers into: "
                f"{'it has no progress' if meta is None else 'it was reset, and has not run since'}",
                "run the pipeline first; then redrive",
            )
        return meta


class _Pace:
    """Holds a rate; a chunk is at most what a second may have."""

    def __init__(self, rate: float | None, stop: threading.Event) -> None:
        self._rate = rate
        self._stop = stop
        self._next = time.monotonic()
        self.most = MOST_LETTERS if rate is None else max(1, min(MOST_LETTERS, int(rate)))

    def wait_for(self, letters: int) -> None:
        """Until so many may go, or it is stopped."""
        if self._rate is None:
            return
        self._stop.wait(max(0.0, self._next - time.monotonic()))
        self._next = max(self._next, time.monotonic()) + letters / self._rate
