"""Everything that one run of the model consists of: a broker, a source, sinks, drivers, and the judges of the sinks."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from model import clients
from model.broker import Broker, Log, Row
from model.cells import CellPorts, Store
from model.judge import Judge, Sink, Violation
from model.little_spark import Attempt, Checkpoint, Habits, Job, PythonWorker, ReadAhead, exploded
from model.processes import Driver, Person
from model.scheduler import Process, Scheduler, Thread
from sinkpipeline import kinds
from sinkpipeline.core.earlier_status import write_over
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Mark, Owner
from sinkpipeline.core.progress_records import decode_meta
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.status import SinkReport, SinkState, render
from sinkpipeline.core.targets import Targets
from sinkpipeline.core.topics import Memory, TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KafkaPorts
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings

SOURCE = "source"
PROGRESS = "progress"

_CONNECTION = Connection(bootstrap_servers="model:9092")
_OTHER_NAME = Connection(bootstrap_servers="model-by-another-name:9092")
_PATIENCE_S = 400.0
"""In which whatever can be delivered is delivered once nothing goes wrong any more: a few transaction time-outs."""
_FOREIGN_S = 900.0
_SLOWLY = 4
"""So often a row may be sent over a slow link."""
_BETWEEN_DRIVERS_S = 60.0
_OLD_ANSWERS_APART_S = 1.0
"""Longer than all the looks take of who is about to give up (`SINKPIPELINE_LOOK_AGAIN_S` of the tests)."""
_LAST_WORDS_S = 4.0
_TOGETHER = (
    frozenset({"data", "reset"}),
    frozenset({"data", "progress"}),
    frozenset({"data", "list"}),
    frozenset({"list", "reset"}),
    frozenset({"data", "list", "reset"}),
)
_NOWHERE = "x"
"""A topic that no list has."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What stays the same during a run."""

    partitions: int = 1
    sinks: int = 1
    exactly_once: bool = True
    habits: Habits = field(default_factory=Habits)
    marker_delay_s: float = 0.0
    remembers: bool = True
    """Whether a new driver is given the status document of the earlier ones."""
    small: int = 0
    """The most offsets of a batch that a driver delivers itself."""
    loops: bool = False
    """Whether the sinks write into the source, which is one cluster with them by another name."""
    leaders: bool = False
    """Whether the source's logs may lose their ends."""
    row_s: float = 0.0
    """How long a row takes on its way to a data topic."""
    cells: bool = False
    """Whether progress stands in cells, and rows are committed with them."""
    tears: bool = False
    """Whether the store of the cells writes one after the other."""
    rolls_back: bool = False
    """Whether the store of the cells ends all connections as it goes back; what has lost the progress has lost rows."""
    topics: str = ""
    """A letter for each data topic that the sinks have at first; none where each has one topic, which no row names."""


class Kind(enum.Enum):
    """What becomes of a source record."""

    KEPT = "kept"
    DROPPED = "dropped"
    """The pipeline's `where` leaves it out."""
    LARGE = "large"
    """It doesn't fit into a counted Arrow batch."""
    BAD = "bad"
    """It can't be decoded."""
    REFUSED = "refused"
    """The cluster refuses the row of it, and nobody knows before."""
    SEVERAL = "several"
    """It gives two rows; so do the next ones."""
    SEVERAL_BAD = "several-bad"
    """The second one has an error."""
    SEVERAL_REFUSED = "several-refused"
    """The cluster refuses the second one."""
    ELSEWHERE = "elsewhere"
    """It names a topic that the sink never has."""


class World:
    def __init__(self, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        self.broker = Broker(marker_delay_s=self.shape.marker_delay_s)
        # Over a slow link clients ask often for what comes late.
        limit = 200_000 if self.shape.row_s else 50_000
        self.scheduler = Scheduler(pass_time=self.broker.pass_time, limit=limit)
        self.broker.on_commit = self._judge
        self.broker.refuses = _is_refused
        self.sinks = [_settings(number, self.shape) for number in range(self.shape.sinks)]
        self._lists: set[str] = {self.shape.topics}
        """Every list of topics that drivers had, by the letters."""
        self._names_of_epoch: dict[int, set[str]] = {}
        """The data topics of all drivers that were there in an epoch."""
        self.judges = {
            settings.id.sink: Judge(self.broker, self._judged(settings))
            for settings in self.sinks
            if not self.shape.loops
        }
        self.drivers: list[Driver] = []
        self.people: list[Person] = []
        self.reports: dict[str, SinkReport] = {}
        """The last that was told of a sink by who wrote the status document."""
        self.document: Mapping[str, Any] | None = None
        """The status document, as `--status-file` has it."""
        self._written_by: Driver | None = None
        self.justified: set[Reason] = {Reason.MANIFEST_INVALID} if self.shape.loops else set()
        """Refusals for which something was done that calls for them."""
        self.violation: Violation | None = None
        self.rows_to_refuse = 0
        """The cluster refuses so many rows of plain producers."""
        self._old_answers = 0
        self._old_answer_at = -math.inf
        self.held = False
        """Whether a thread was held, or an answer: then time-outs may pass that nobody else has caused."""
        self._tampered: frozenset[str] = frozenset()
        self._foreign = False
        self._told: SinkPipelineError | None = None
        self._lost_end = False
        self._must_refuse = False
        """Whether what the source lost stood below a mark that was written: no start may go on from there."""
        self._saw_lost_end: dict[Process, bool] = {}
        """Drivers that know it; whether their query has ended since."""
        self._told_lost_end = False
        self._before_told: frozenset[Process] | None = None
        """The drivers that there were when a sink first stopped at a lost end; None before that."""
        self._announced: dict[tuple[str, int], int] = {}
        """The rows that a driver says that it may duplicate in a sink."""
        self._read_to: dict[tuple[Thread, str], int] = {}
        """How far a thread has read a progress topic."""
        self._superseded: dict[tuple[Thread, str], str] = {}
        """Threads that were fenced after a newer run than they know was announced."""
        ReadAhead.scheduler = self.scheduler
        clients.connect(
            clients.Cluster(
                self.broker,
                self.scheduler,
                on_init=self._note_init,
                on_fenced=self._note_fenced,
                on_read=self._note_read,
                refuses_row=self._refuses_row,
                topics_known=self._topics_known,
                has_leaders=self.shape.leaders,
                on_create=self._note_creation,
                on_lost_end=self._note_lost_end,
                on_marked=self._check_marked,
                on_second_verdict=self._note_second_verdict,
                row_s=lambda topic: self.shape.row_s if topic.startswith("data-") else 0.0,
            )
        )
        self.broker.create(SOURCE, self.shape.partitions)
        self.store = Store(
            self.broker,
            PROGRESS,
            tears=self.shape.tears,
            ends_connections=self.shape.rolls_back,
            refuses=_is_refused,
            on_fence=self._note_init,
            on_moved=self._note_fenced,
            on_read=self._note_read,
        )

    def ports(self, settings: SinkSettings, source_admin: Admin, admin: Admin) -> KafkaPorts:
        """Of the kind of this world."""
        if not self.shape.cells:
            return kinds.ports(settings, source_admin, admin)
        found = CellPorts(settings, source_admin, admin)
        found.store = self.store
        return found

    @property
    def topic_of(self) -> Callable[[bytes], str] | None:
        """Which of several topics a record names."""
        return topic_of if self.shape.topics else None

    def close(self) -> None:
        self.scheduler.close()
        clients.connect(None)
        Checkpoint.made.clear()

    @staticmethod
    def keeps_row(value: bytes) -> bool:
        """The pipeline's `where`."""
        return not value.endswith(b":dropped")

    # What happens in the world

    def produce(self, partition: int, records: list[Kind]) -> None:
        """New records in the source."""
        log = self.broker.log(SOURCE, partition)
        for kind in records:
            value = f"{partition}:{log.high}:{kind.value}".encode()
            self.broker.append([Row(SOURCE, partition, b"%d" % log.high, value)])

    def start_driver(self, latency_s: float = 0.001) -> Driver:
        driver = Driver(self, f"driver{len(self.drivers)}", latency_s)
        self.drivers.append(driver)
        self._note_names()
        return driver

    def reset(self, sink: int, targets: Targets) -> None:
        if self._may_tamper("reset"):
            self.people.append(Person(self, f"person{len(self.people)}", self.sinks[sink], targets))

    def alive(self) -> list[Driver]:
        return [driver for driver in self.drivers if not driver.process.dead]

    def jobs(self) -> list[Job]:
        """Those that Spark runs."""
        return [job for driver in self.alive() for job in driver.spark.jobs]

    def tasks(self) -> list[Attempt]:
        """The attempts that Spark waits for."""
        return [attempt for job in self.jobs() for attempt in job.attempts.values() if not attempt.over]

    def workers(self) -> list[PythonWorker]:
        return [worker for driver in self.drivers for worker in driver.spark.workers if not worker.process.dead]

    def memory(self, sink: str) -> Memory | None:
        """What the status document says, by the product's own rendering."""
        if self.document is None or not self.shape.remembers:
            return None
        return memory_of(self.document, "i", sink)

    def note(self, driver: Driver, reports: list[SinkReport]) -> None:
        """One of a driver's reports has changed."""
        for report in reports:
            self._note_report(report)
            self._check_verdict(driver, report)
            lost = report.error is not None and report.error.reason is Reason.SOURCE_DATA_LOST
            self._told_lost_end |= lost
            if lost and self._lost_end and report.state is SinkState.FAILED and self._before_told is None:
                self._before_told = frozenset(each.process for each in self.drivers)
            elif report.state is SinkState.RUNNING and driver.process not in (self._before_told or {driver.process}):
                self.fail(Violation("a sink has stopped at a lost end of the source, and the next driver goes on"))
            if driver.process in self._saw_lost_end:
                was_ended = self._saw_lost_end[driver.process]
                self._saw_lost_end[driver.process] = was_ended or report.state is not SinkState.RUNNING
                if was_ended and report.state is SinkState.RUNNING:
                    self.fail(
                        Violation("a driver has seen that the source lost an end that it has handled, and goes on")
                    )
        status = render(reports, identity="i", generation=None, previous=None, now_ms=0)
        merged = write_over(self.document, status, own=self._written_by in (None, driver))
        if merged is not None:
            self.document, self._written_by = merged, driver
            self.reports = {report.name: report for report in reports}

    def _note_report(self, report: SinkReport) -> None:
        if report.error is not None and report.error is not self._told:
            self._told = report.error
            self.scheduler.tell(f"{report.name}: {report.state.value}: {report.error}")
            self._check_cause(report.error)
        if report.may_duplicate is not None and report.progress is not None and report.progress.meta is not None:
            # What earlier drivers announced is in it, until a reset: each may repeat what it says beyond that.
            key = report.name, report.progress.meta.epoch
            beyond = max(0, report.may_duplicate - self._announced.get(key, 0))
            self._announced[key] = self._announced.get(key, 0) + beyond
            self.judges[report.name].may_repeat += beyond

    # What is done to topics

    def delete_progress(self, *, create: bool, filled: bool = False) -> None:
        """A driver that runs writes its progress back; one that starts later has the status document."""
        if PROGRESS in self.broker.topics and self.shape.remembers and self._may_tamper("progress"):
            self._note_tampering(Reason.PROGRESS_LOST)
            if not self._is_quiet():
                # What a start or a task writes into the new topic, only the driver that remembers it can explain.
                self.justified.add(Reason.PROGRESS_CORRUPT)
                if self.shape.cells:
                    # Who writes into cells that are gone is refused, and looks again after some minutes.
                    self.justified.add(Reason.SINK_REFUSED)
            length = self.broker.log(PROGRESS, 0).high
            self.broker.delete(PROGRESS)
            if create:
                self.broker.create(PROGRESS, 1, self.sinks[0].progress.config)
                # Others write to it, too.
                self.broker.append([Row(PROGRESS, 0, b"foreign", b"")] * (length if filled else 0))

    def _is_quiet(self) -> bool:
        """Whether nobody is about to write to the progress topic."""
        return all(thread.role == "main" or thread.label in ("await", "trigger") for thread in self.scheduler.threads)

    def delete_data(self, settings: SinkSettings, *, create: bool) -> None:
        name = settings.data.name
        if name in self.broker.topics and self._may_tamper("data"):
            self._note_tampering(Reason.DATA_TOPIC_LOST)
            self.broker.delete(name)
            if create:
                self.broker.create(name, 2)

    def delete_one_of_several(self, letter: str, *, create: bool) -> None:
        """Only its rows can't be looked at any more."""
        name = f"data-s0-{letter}"
        if name in self.broker.topics and self._may_tamper("data"):
            self.justified.add(Reason.DATA_TOPIC_LOST)
            self.judges["s0"].gone.add(name)
            self.broker.delete(name)
            if create:
                self.broker.create(name, 2)

    def create_one_of_several(self, letter: str) -> None:
        """Somebody else does, before the sink has it."""
        if f"data-s0-{letter}" not in self.broker.topics:
            self.broker.create(f"data-s0-{letter}", 2)

    def list_topics(self, letters: str) -> None:
        """The list of the drivers that start from now on. One that has fewer topics is refused until a reset."""
        now = self.sinks[0].data
        fewer = not {each.name for each in now.parts} <= {f"data-s0-{each}" for each in letters}
        if fewer and not self._may_tamper("list"):
            return
        # Also one of before, that goes on with its list, has fewer than the next one.
        self.justified.add(Reason.DATA_TOPIC_REMOVED)
        self.sinks[0] = replace(self.sinks[0], data=_data("s0", letters))
        self._lists.add(letters)

    def delete_dead_letters(self, settings: SinkSettings) -> None:
        """With what stands in it, which nobody writes again."""
        if settings.dead_letter is not None and settings.dead_letter.topic.name in self.broker.topics:
            self.judges[settings.id.sink].letters_deleted = True
            self.broker.delete(settings.dead_letter.topic.name)

    def recreate_source(self, records: list[Kind]) -> None:
        """Its new offsets mean other records, so nothing can be compared any more."""
        if not self._may_tamper("source"):
            return
        self._note_tampering(Reason.SOURCE_RECREATED, Reason.SOURCE_DATA_LOST)
        for judge in self.judges.values():
            judge.may_repeat = 1_000_000
        # Not with fewer: a little Spark that reads a partition which is gone knows no better than to crash.
        partitions = len(self.broker.topics[SOURCE].logs) if SOURCE in self.broker.topics else self.shape.partitions
        self.broker.delete(SOURCE)
        self.broker.create(SOURCE, partitions)
        self.produce(0, records)

    def truncate_progress(self, before: int) -> None:
        if PROGRESS in self.broker.topics and self._may_tamper("low end of progress"):
            self._note_tampering(Reason.PROGRESS_UNREADABLE)
            self.broker.topics[PROGRESS].logs[0].truncate(before)

    def truncate_source(self, partition: int, before: int) -> None:
        if self._may_tamper("low end of source"):
            self._note_tampering(Reason.SOURCE_DATA_LOST)
            self.broker.log(SOURCE, partition).truncate(before)

    def remove_key(self, settings: SinkSettings) -> None:
        """Somebody deletes the progress of a partition."""
        if PROGRESS in self.broker.topics and self._may_tamper("key"):
            self._note_tampering(Reason.PROGRESS_CORRUPT, Reason.PROGRESS_REGRESSED)
            key = settings.id.partition_key(SourcePartition(SOURCE, 0)).encode()
            self.broker.append([Row(PROGRESS, 0, key, None)])

    def lose_end_of_source(self, lost: int, records: list[Kind]) -> None:
        """A replica that was behind becomes the leader, and others' records come where those were.

        What was handled above the last mark that was written is lost unseen (docs/design/0022).
        """
        if not self._may_tamper("end of source"):
            return
        self._note_tampering(Reason.SOURCE_DATA_LOST)
        for judge in self.judges.values():
            judge.may_repeat = 1_000_000
        log, partition = self.broker.log(SOURCE, 0), SourcePartition(SOURCE, 0)
        log.lose_end(log.high - lost)
        self._lost_end = True
        mark = self._marks().get(partition)
        self._must_refuse |= mark is not None and mark.offset >= log.high
        self.produce(0, records)

    def _marks(self) -> Mapping[SourcePartition, Mark]:
        """As they stand in the progress topic."""
        topic = self.broker.topics.get(PROGRESS)
        key = self.sinks[0].id.meta_key.encode()
        metas = (
            [] if topic is None else [each for each in topic.logs[0].records if each.key == key and each.is_committed]
        )
        return decode_meta(metas[-1].value, "meta").marks if metas and metas[-1].value is not None else {}

    def _note_lost_end(self) -> None:
        thread = self.scheduler.current
        if thread is not None:
            self._saw_lost_end.setdefault(thread.process, False)

    def _check_marked(self, partition: SourcePartition, before: Mark, now: Mark) -> None:
        """A record that grew again may take the place of a mark whose record is lost only if that was told."""
        log = self.broker.log(partition.topic, partition.partition)
        epochs = {each.offset: each.leader_epoch for each in log.records}
        is_lost = before.offset >= log.high or epochs.get(before.offset, before.leader_epoch) != before.leader_epoch
        if is_lost and epochs.get(now.offset) == now.leader_epoch:
            self.fail(Violation("the mark of a record that the source has lost is forgotten"))

    def add_partition(self) -> None:
        self.broker.topic(SOURCE).logs.append(Log())

    def open_foreign_transaction(self, seconds: float) -> None:
        """Another application writes to the progress topic, and takes its time."""
        if PROGRESS in self.broker.topics:
            self._foreign = True
            self.broker.init("foreign", seconds, self.scheduler.now)
            epoch = self.broker.holder("foreign")
            self.broker.send("foreign", epoch, [Row(PROGRESS, 0, b"foreign", b"")], self.scheduler.now)

    def cut_short(self) -> None:
        """Somebody is killed, or overtaken: he may have delivered one cut that his progress doesn't tell yet."""
        for judge in self.judges.values():
            if judge.may_repeat_cuts is not None:
                judge.may_repeat_cuts += 1

    def make_spark_skip(self, by: int) -> None:
        self.justified.add(Reason.SOURCE_DATA_LOST)
        for driver in self.alive():
            driver.spark.skips[SourcePartition(SOURCE, 0)] = by

    def lose_tail(self, changes: int, *, proved: bool = False) -> None:
        """The store goes back: what it gives then is what it held once, rows and progress alike.

        `proved`: nothing stands in the way of its being found out.
        """
        if self._may_tamper("tail"):
            if not proved:
                self.justified.add(Reason.PROGRESS_REGRESSED)
            self.justified.add(Reason.PROGRESS_CORRUPT)
            self.justified.add(Reason.PROGRESS_LOST)
            self.scheduler.late.clear()
            self.store.go_back(changes)

    def put_back(self, changes: int, lost: int) -> None:
        """A person writes progress as it was, without the rows: what is remembered knows it, where it is all of it.

        `lost`: so much of its tail the store has lost before. Which rows that were, is known of a stream of one's own.
        """
        settings, partition = self.sinks[0], SourcePartition(SOURCE, 0)
        memory = self.memory(settings.id.sink)
        if memory is None or not self._is_quiet() or not self._may_tamper("tail"):
            return
        key = settings.id.partition_key(partition)
        there = self.store.read([key])[key].value
        known = memory.partitions.get(partition)
        if there is not None and known is not None and json.loads(there).get("next") == known.next:
            self.justified.add(Reason.PROGRESS_REGRESSED)
            for judge in self.judges.values():
                judge.blind = True
            if lost and not self.store.others:
                self.scheduler.late.clear()
                self.store.go_back(lost)
            self.store.put_back(key, changes)

    def others_write(self, rows: int) -> None:
        """Then what a store counts proves less."""
        if PROGRESS in self.broker.topics:
            self.justified.add(Reason.PROGRESS_REGRESSED)
            self.store.others_write(self.sinks[0].data.name, rows)

    def _may_tamper(self, what: str) -> bool:
        """What some things together call for, nobody could tell."""
        together = self._tampered | {what}
        if len(together) > 1 and together not in _TOGETHER:
            return False
        self._tampered = together
        return True

    def _note_tampering(self, *reasons: Reason) -> None:
        self.justified.update(reasons)
        for judge in self.judges.values():
            judge.blind = True

    def _refuses_row(self) -> bool:
        self.rows_to_refuse -= 1
        return self.rows_to_refuse >= 0

    def _topics_known(self) -> tuple[str, ...] | None:
        if self._old_answers == 0:
            return None
        self._old_answers -= 1
        self._old_answer_at = self.scheduler.now
        return (SOURCE,)

    def give_old_answers(self, answers: int) -> None:
        """So many descriptions of topics are as old as the source; fewer than somebody who is careful asks for."""
        if self._old_answers == 0 and self.scheduler.now > self._old_answer_at + _OLD_ANSWERS_APART_S:
            self._old_answers = answers

    # What must be so

    def _note_names(self) -> None:
        if self.shape.topics:
            epoch = self.judges["s0"].epoch
            known = self._names_of_epoch.setdefault(epoch, set())
            known.update(each.name for driver in self.alive() for each in driver.settings[0].data.parts)

    def _check_verdict(self, driver: Driver, report: SinkReport) -> None:
        """A reset allows any list, and topics that are missing: who starts after it refuses what came after it."""
        judge = self.judges.get(report.name)
        if not self.shape.topics or report.error is None or judge is None:
            return
        if judge.epoch != driver.born_in[report.name] or self._tampered == {"data", "progress"}:
            return
        removed = self._names_of_epoch[judge.epoch] - {each.name for each in driver.settings[0].data.parts}
        is_removed = report.error.reason is Reason.DATA_TOPIC_REMOVED and not removed
        if is_removed or (report.error.reason is Reason.DATA_TOPIC_LOST and not judge.gone):
            self.fail(Violation(f"{driver.process.name} refuses what a reset has allowed: {report.error}"))

    def _note_creation(self, name: str) -> None:
        """Nothing of ours takes the place of a topic into which rows were committed."""
        for judge in self.judges.values():
            if name in judge.lost():
                self.fail(Violation(f"{name}, into which rows were delivered, was lost, and is created again"))

    def _check_topics(self) -> None:
        """A driver that starts tells the worst of all topics, and doesn't go on without one that has rows."""
        judge, listed = self.judges["s0"], {each.name for each in self.sinks[0].data.parts}
        lost, removed = judge.lost() & listed, {*judge.got_rows.values()} - listed
        if not lost | removed:
            return
        # Which of its topics have rows the sink doesn't know: one that was deleted without any may be missed, too.
        deleted = judge.gone & listed
        allowed = {Reason.DATA_TOPIC_LOST: deleted} if lost | deleted else {}
        if not lost:
            allowed[Reason.DATA_TOPIC_REMOVED] = removed

        def told() -> bool:
            error = self.reports["s0"].error if "s0" in self.reports else None
            return error is not None and any(each in error.message for each in allowed.get(error.reason, ()))

        self.scheduler.run(told, seconds=_PATIENCE_S)
        self.raise_violation()
        if not told():
            error = self.reports["s0"].error if "s0" in self.reports else None
            raise Violation(f"{sorted(lost)} were lost, {sorted(removed)} left out, and the next driver says: {error}")

    def _note_second_verdict(self, verdict: Exception) -> None:
        self.fail(Violation(f"a query was ended by a look, and looked again before that was told: {verdict}"))

    def fail(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
            self.scheduler.tell(f"VIOLATION: {violation}")
        self.scheduler.stopped = True

    def raise_violation(self) -> None:
        if self.violation is not None:
            raise self.violation

    def settle(self) -> None:
        """Nothing goes wrong any more: everything is delivered, or refused for a reason that was given.

        Raises:
            Violation
        """
        for thread in self.scheduler.threads:
            thread.held = False
        self.rows_to_refuse = self._old_answers = 0
        # Also where all was delivered, somebody may be about to do harm.
        self.scheduler.run(seconds=_LAST_WORDS_S)
        # A reset that goes on takes the sink from whoever is started meanwhile.
        self.scheduler.run(lambda: all(person.process.dead for person in self.people), seconds=_PATIENCE_S)
        self.raise_violation()
        rows = sum(log.high for log in self.broker.topic(SOURCE).logs) if SOURCE in self.broker.topics else 0
        patience_s = _PATIENCE_S + (_FOREIGN_S if self._foreign else 0.0) + _SLOWLY * rows * self.shape.row_s
        deadline = self.scheduler.now + patience_s
        while not self._is_complete() and self.scheduler.now < deadline:
            if not any(not driver.stopping for driver in self.alive()):
                self.start_driver()
            self.scheduler.run(lambda: self._is_complete() or not self.alive(), seconds=deadline - self.scheduler.now)
            self.raise_violation()
            self.scheduler.run(self._is_complete, seconds=_BETWEEN_DRIVERS_S)
        if self._tampered or self._foreign:
            self._told_lost_end = False
            self._replace_drivers()
        if self._must_refuse:
            self.scheduler.run(lambda: self._told_lost_end, seconds=_PATIENCE_S)
            if not self._told_lost_end:
                raise Violation("the source lost an end that was handled, and the next driver goes on")
        if self.shape.topics:
            self._check_topics()
        for sink, judge in self.judges.items():
            judge.check()
            if not self._lost_end and not judge.is_complete():
                self._check_refusal(sink)

    def _replace_drivers(self) -> None:
        """A driver needs not notice what was done to records that it remembers; the next one has to.

        And one whose circuit has opened stays as it is.
        """
        for driver in self.alive():
            driver.kill()
        self.start_driver()
        self.scheduler.run(seconds=_LAST_WORDS_S)
        self.scheduler.run(lambda: self._is_complete() or not self.alive(), seconds=_PATIENCE_S)
        self.raise_violation()

    def _is_complete(self) -> bool:
        # What stands where others were lost, may be taken for them.
        return self._lost_end or all(judge.is_complete() for judge in self.judges.values())

    def _check_refusal(self, sink: str) -> None:
        error = self.reports[sink].error if sink in self.reports else None
        if error is None:
            raise Violation(f"{sink}: nothing went wrong any more, and not everything was delivered: a hang")
        in_a_circuit = error.reason is Reason.CIRCUIT_OPEN and any(
            each.value in error.message for each in self.justified
        )
        if error.reason not in self.justified and not in_a_circuit:
            raise Violation(f"{sink}: refused without a cause: {error}")

    def _judge(self) -> None:
        try:
            self._note_names()
            for judge in self.judges.values():
                judge.check()
            self._check_source()
        except Violation as violation:
            self.fail(violation)

    def _check_source(self) -> None:
        """Nothing of ours stands in the source: it would be read, and written, again and again."""
        topic = self.broker.topics.get(SOURCE)
        for log in () if topic is None else topic.logs:
            if any(record.transaction is not None for record in log.history):
                raise Violation("a sink writes what it reads")

    def _check_cause(self, error: SinkPipelineError) -> None:
        """A refusal has a cause, and a read gives up only where something holds it back."""
        passing = error.reason.retry or error.reason in (Reason.SUPERSEDED, Reason.CIRCUIT_OPEN)
        if error.reason is Reason.SUPERSEDED and len(self.drivers) + len(self.people) == 1:
            self.fail(Violation(f"nobody else was there: {error}"))
        if error.reason is Reason.INTERNAL_ERROR or not (passing or error.reason in self.justified):
            self.fail(Violation(f"an error without a cause: {error}"))
        if error.reason is Reason.PROGRESS_UNREADABLE and not (self.held or self._tampered or self._foreign):
            self.fail(Violation(f"a read gave up, and nothing held it back: {error}"))

    def _note_read(self, topic: str, position: int) -> None:
        thread = self.scheduler.current
        if thread is not None:
            self._read_to[thread, topic] = max(position, self._read_to.get((thread, topic), 0))

    def _note_fenced(self, transactional_id: str) -> None:
        """Threads are watched for as long as they all read one and the same progress topic."""
        thread = None if self._tampered else self.scheduler.current
        for sink, judge in self.judges.items():
            if thread is None or not transactional_id.startswith(judge.sink.prefix):
                continue
            read_to = self._read_to.get((thread, judge.sink.progress), 0)
            run = judge.run_announced_since(read_to)
            if run is not None and not self._is_own(thread, sink, run):
                self._superseded[thread, sink] = run

    def _note_init(self, transactional_id: str) -> None:
        """Who was fenced by a newer driver reads that, and doesn't fence it in return."""
        thread = None if self._tampered else self.scheduler.current
        for sink, judge in self.judges.items():
            if thread is None or not transactional_id.startswith(judge.sink.prefix):
                continue
            run = self._superseded.get((thread, sink))
            if run is not None:
                self.fail(Violation(f"{thread} was fenced by the newer run {run}, and fences it in return"))
            run = judge.run_announced_before(self._read_to.get((thread, judge.sink.progress), 0))
            if run is not None and self._has_started(thread, sink) and not self._is_own(thread, sink, run):
                self.fail(Violation(f"{thread} has read of the newer run {run}, and fences it"))

    def _is_own(self, thread: Thread, sink: str, run: str) -> bool:
        for actor in (*self.drivers, *self.people):
            if thread.process is actor.process or thread.process in actor.process.children:
                return run in actor.runs[sink]
        return False

    def _has_started(self, thread: Thread, sink: str) -> bool:
        """A driver that has yet to start is the newer one itself. Tasks claim first, and read for certain then."""
        return any(
            thread.process is driver.process and driver.starters[sink].remembered.is_ours
            for driver in self.drivers
            if thread.role == "runner"
        )

    def _judged(self, settings: SinkSettings) -> Sink:
        return Sink(
            name=settings.id.sink,
            prefix=settings.id.prefix,
            source=SOURCE,
            data=tuple(f"data-s0-{each}" for each in _LETTERS) if self.shape.topics else (settings.data.name,),
            progress=settings.progress.name,
            dead_letters="" if settings.dead_letter is None else settings.dead_letter.topic.name,
            exactly_once=settings.exactly_once,
            keeps_row=self.keeps_row,
            is_bad=self._is_bad if self.shape.topics else is_bad,
            rows_of=lambda value: len(exploded(value)),
            topic_of=self.topic_of,
            may_be_bad=self._may_be_bad if self.shape.topics else lambda _: False,
        )

    def _is_bad(self, value: bytes) -> bool:
        return is_bad(value) or not any(topic_of(value)[-1] in each for each in self._lists)

    def _may_be_bad(self, value: bytes) -> bool:
        """Whether some drivers had the topic of a good record in their lists, and others hadn't."""
        return not self._is_bad(value) and any(topic_of(value)[-1] not in each for each in self._lists)


_LETTERS = "abc"


def topic_of(value: bytes) -> str:
    """The topic that a record names, whatever becomes of it."""
    partition, offset, kind = value.split(b":")
    letter = _NOWHERE if kind == b"elsewhere" else _LETTERS[(int(partition) + int(offset)) % len(_LETTERS)]
    return f"data-s0-{letter}"


def is_bad(value: bytes) -> bool:
    return value.endswith((b":bad", b":refused", b"-bad", b"-refused", b":elsewhere"))


def _is_refused(row: Row) -> bool:
    return row.topic.startswith("data-") and (row.value or b"").endswith((b":refused", b"-refused"))


def _settings(number: int, shape: Shape) -> SinkSettings:
    name = f"s{number}"
    return SinkSettings(
        id=SinkId("i", name),
        owner=Owner(cluster="file", name="model"),
        source=SourceSettings(connection=_CONNECTION, topics=(SOURCE,), starting_offsets=StartingOffsets.EARLIEST),
        connection=_OTHER_NAME if shape.loops else _CONNECTION,
        data=replace(_data(SOURCE if shape.loops else name, shape.topics), progress_beside=shape.rolls_back),
        progress=progress_request(PROGRESS, 1),
        dead_letter=DeadLetterSettings(
            topic=TopicRequest(name=f"dlq-{name}", partitions=1, replication_factor=1, config=MappingProxyType({}))
        ),
        exactly_once=shape.exactly_once,
    )


def _data(sink: str, letters: str) -> TopicRequest:
    def asked(name: str) -> TopicRequest:
        return TopicRequest(name=name, partitions=2, replication_factor=1, config=MappingProxyType({}))

    if not letters:
        return asked(SOURCE if sink == SOURCE else f"data-{sink}")
    parts = tuple(asked(f"data-{sink}-{each}") for each in letters)
    return replace(asked(", ".join(each.name for each in parts)), parts=parts)
