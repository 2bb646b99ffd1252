"""What must be so, whatever happens: §4's one rule, read off the model's logs by code that is not the product's.

a source record was delivered, or dead-lettered if it is a bad one, if and only if the committed progress of its
partition is beyond it, once, and in the order of the source
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from model.broker import Broker, Log, Record

CUT_ROWS = 3
"""The most rows that are under way before progress is written."""


class Violation(AssertionError):
    """The protocol broke its word."""


@dataclass(frozen=True, kw_only=True)
class Sink:
    """The names that the judge needs of one sink."""

    name: str
    prefix: str
    source: str
    data: tuple[str, ...]
    """All that it may ever write."""
    progress: str
    dead_letters: str
    exactly_once: bool
    keeps_row: Callable[[bytes], bool]
    is_bad: Callable[[bytes], bool]
    rows_of: Callable[[bytes], int]
    """How many rows a source record gives that is not bad."""
    topic_of: Callable[[bytes], str] | None = None
    """Which data topic a row names, where it names one."""
    may_be_bad: Callable[[bytes], bool] = lambda _: False
    """Whether a record that is not bad may be dead-lettered all the same: not every driver knew its topic."""


@dataclass
class Judge:
    broker: Broker
    sink: Sink
    may_repeat: int = 0
    """Rows that starts have announced that they may duplicate, all together."""
    may_repeat_cuts: int | None = None
    """Of AtLeastOnce: how many cuts of a partition may have been repeated; None where that is not counted."""
    blind: bool = False
    """Its topics were tampered with: only what is delivered twice is looked at, until the end."""
    letters_deleted: bool = False
    """Its dead letters were deleted, and with them what was to be seen."""
    gone: set[str] = field(default_factory=set)
    """Data topics of several that were deleted in this epoch, and with them the rows that were to be seen."""
    got_rows: dict[str, str] = field(default_factory=dict)
    """The id of each topic into which rows of this epoch were committed, with its name."""
    _read_at: int = -1
    _rows: Mapping[int, list[int]] = field(default_factory=dict)
    _letters: Mapping[int, list[int]] = field(default_factory=dict)
    _frontier: Mapping[int, int] = field(default_factory=dict)
    _states: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """The progress of this epoch."""
    _epoch: int = 0
    _since: dict[int, int] = field(default_factory=dict)
    """Where the epoch began; what was delivered before is another story."""
    _before: frozenset[Record] = frozenset()

    def check(self) -> None:
        """At every moment.

        Raises:
            Violation
        """
        self._read()
        for partition, log in enumerate(self._logs(self.sink.source)):
            rows, letters = self._rows.get(partition, []), self._letters.get(partition, [])
            several = {each.offset: self.sink.rows_of(each.value) for each in log.history if each.value is not None}
            self._check_repeats(partition, self.sink.data, rows, several)
            self._check_repeats(partition, (self.sink.dead_letters,), letters, {})
            self._check_either(partition, rows, letters)
            if not self.blind:
                self._check_ends(partition, log, self._rows, bad=False)
                self._check_ends(partition, log, self._letters, bad=True)
                self._check_counts(partition)

    @property
    def epoch(self) -> int:
        self._read()
        return self._epoch

    def lost(self) -> set[str]:
        """Topics into which rows of this epoch were committed, and which are missing, or are others by now."""
        self._read()
        there = self.broker.topics
        return {name for each, name in self.got_rows.items() if name not in there or there[name].id != each}

    def is_complete(self) -> bool:
        """Whether everything in the source was delivered, and the progress says so."""
        self._read()
        return all(
            self._frontier.get(partition, 0) == log.high
            and not self._missing(partition, log, log.high, self._rows, bad=False)
            and not self._missing(partition, log, log.high, self._letters, bad=True)
            for partition, log in enumerate(self._logs(self.sink.source))
        )

    def _check_ends(self, partition: int, log: Log, found: Mapping[int, list[int]], *, bad: bool) -> None:
        """Whether the good ones, or the bad ones, stand where they must, up to the progress."""
        what = "dead-lettered" if bad else "delivered"
        frontier = self._frontier.get(partition, 0)
        missing = self._missing(partition, log, frontier, found, bad=bad)
        if missing:
            raise Violation(f"{self._at(partition)}: {missing} were not {what} below the progress {frontier}")
        beyond = [offset for offset in found.get(partition, []) if offset >= frontier]
        if beyond and self.sink.exactly_once:
            raise Violation(f"{self._at(partition)}: {beyond} were {what} beyond the progress {frontier}")
        wrong = [
            record.offset
            for record in log.history
            if record.value is not None
            and record.offset in found.get(partition, [])
            and not self.sink.may_be_bad(record.value)
            and self.sink.is_bad(record.value) is not bad
        ]
        if wrong:
            raise Violation(f"{self._at(partition)}: {wrong} were {what}")

    def _check_either(self, partition: int, rows: list[int], letters: list[int]) -> None:
        """No record is both delivered and dead-lettered."""
        both = sorted({*rows} & {*letters})
        if both and self.sink.exactly_once and not self.may_repeat:
            raise Violation(f"{self._at(partition)}: {both} were delivered, and dead-lettered too")

    def _check_counts(self, partition: int) -> None:
        """Whether the progress counts what stands in the topics."""
        state = self._states.get(partition)
        if state is None or not self.sink.exactly_once or self.may_repeat or self.letters_deleted or self.gone:
            return
        found = len(self._rows.get(partition, [])), len(self._letters.get(partition, []))
        if found != (state["rows"], state["dead"]):
            told = f"{state['rows']} rows and {state['dead']} dead letters"
            raise Violation(f"{self._at(partition)}: the progress counts {told}, and there are {found}")

    def _missing(
        self, partition: int, log: Log, frontier: int, found: Mapping[int, list[int]], *, bad: bool
    ) -> list[int]:
        if bad and self.letters_deleted:
            return []
        there = Counter(found.get(partition, []))
        others = {*(self._rows if bad else self._letters).get(partition, [])}
        return [
            record.offset
            for record in self._expected(partition, log, frontier, bad=bad)
            if there[record.offset] < (1 if bad else self.sink.rows_of(record.value or b""))
            and not (self.sink.may_be_bad(record.value or b"") and record.offset in others)
        ]

    def run_announced_since(self, offset: int) -> str | None:
        """The run of a driver that has first announced itself from `offset` on, for every reader to see."""
        runs = self._runs()
        known = {run for place, run in runs if place < offset}
        return next((run for _, run in reversed(runs) if run not in known), None)

    def run_announced_before(self, offset: int) -> str | None:
        """The run that a reader finds who has read up to `offset`."""
        return next((run for place, run in reversed(self._runs()) if place < offset), None)

    def _runs(self) -> list[tuple[int, str]]:
        return [
            (record.offset, json.loads(record.value)["run"])
            for log in self._logs(self.sink.progress)
            for record in _committed(log)
            if record.key == f"{self.sink.prefix}meta".encode() and record.value and record.offset < log.stable
        ]

    def _read(self) -> None:
        """Reads what was delivered, and the progress, where something was written since the last time."""
        if self._read_at == self.broker.version:
            return
        self._read_at = self.broker.version
        progress = self._progress()
        epoch = max((state["epoch"] for state in progress.values()), default=0)
        rows = [record for name in self.sink.data for log in self._logs(name) for record in _committed(log)]
        letters = [record for log in self._logs(self.sink.dead_letters) for record in _committed(log)]
        if epoch > self._epoch:
            # A reset: from here on the rows are counted anew.
            self._epoch, self._before = epoch, frozenset([*rows, *letters])
            self._since = {partition: state["next"] for partition, state in progress.items()}
            self.gone.clear()
            self.got_rows.clear()
        for partition in progress.keys() - self._since.keys():
            # Nothing that is there at the first start is left out.
            self._since[partition] = min(progress[partition]["next"], self._logs(self.sink.source)[partition].low)
        self._states = {each: state for each, state in progress.items() if state["epoch"] == self._epoch}
        self._frontier = {each: state["next"] for each, state in self._states.items()}
        self._rows, self._letters = self._placed(rows), self._placed(letters)
        self._note_topics()

    def _note_topics(self) -> None:
        """Which topics have rows of this epoch, and whether each row is in the one that it names."""
        if self.sink.topic_of is None:
            return
        for name in self.sink.data:
            found = [each for log in self._logs(name) for each in _committed(log) if each not in self._before]
            if found:
                self.got_rows[self.broker.topics[name].id] = name
            wrong = [each.value for each in found if self.sink.topic_of(each.value or b"") != name]
            if wrong:
                raise Violation(f"{self.sink.name}: {name} has rows of another topic: {wrong}")

    def _placed(self, records: Iterable[Record]) -> Mapping[int, list[int]]:
        """The source offsets of what this epoch wrote, by source partition."""
        found = defaultdict(list)
        for record in records:
            if record not in self._before:
                partition, offset = _place(record)
                found[partition].append(offset)
        return found

    def _progress(self) -> dict[int, dict[str, int]]:
        """The last committed record of each source partition."""
        head = f"{self.sink.prefix}p/{self.sink.source}/".encode()
        newest: dict[int, bytes | None] = {}
        for log in self._logs(self.sink.progress):
            for record in _committed(log):
                if record.key is not None and record.key.startswith(head):
                    newest[int(record.key[len(head) :])] = record.value
        return {partition: json.loads(value) for partition, value in newest.items() if value is not None}

    def _check_repeats(
        self, partition: int, topics: tuple[str, ...], delivered: list[int], several: Mapping[int, int]
    ) -> None:
        """`several`: how many rows a record gives, by its offset; one where nothing is said."""
        repeated = sum(max(0, count - several.get(offset, 1)) for offset, count in Counter(delivered).items())
        if not self.sink.exactly_once:
            if self.may_repeat_cuts is not None and repeated > CUT_ROWS * self.may_repeat_cuts:
                raise Violation(f"{self._at(partition)}: {repeated} rows repeated by {self.may_repeat_cuts} kills")
            return
        if repeated > self.may_repeat:
            raise Violation(f"{self._at(partition)}: {repeated} rows in {', '.join(topics)} twice: {delivered}")
        for log in (log for topic in topics for log in self._logs(topic)):
            rows = [record for record in _committed(log) if record not in self._before]
            offsets = [offset for number, offset in map(_place, rows) if number == partition]
            if offsets != sorted(offsets) and not repeated:
                raise Violation(f"{self._at(partition)}: out of order: {offsets}")

    def _expected(self, partition: int, log: Log, frontier: int, *, bad: bool) -> list[Record]:
        since = self._since.get(partition, 0)
        return [
            record
            for record in log.history
            if since <= record.offset < frontier
            and record.value is not None
            and self.sink.keeps_row(record.value)
            and self.sink.is_bad(record.value) is bad
            and (bad or not self._went(record.value))
        ]

    def _went(self, value: bytes) -> bool:
        """Whether a row was perhaps deleted with its topic."""
        return self.sink.topic_of is not None and self.sink.topic_of(value) in self.gone

    def _logs(self, name: str) -> list[Log]:
        topic = self.broker.topics.get(name)
        return [] if topic is None else topic.logs

    def _at(self, partition: int) -> str:
        return f"{self.sink.name}, source partition {partition}"


def _committed(log: Log) -> Iterable[Record]:
    return (record for record in log.history if record.is_committed)


def _place(record: Record) -> tuple[int, int]:
    """The source partition and offset that a row tells."""
    partition, offset, _ = (record.value or b"").split(b":")
    return int(partition), int(offset)
