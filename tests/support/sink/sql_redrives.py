"""Redrives into a table without Spark: letters on a real broker, rows as a repaired pipeline makes them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from sinkpipeline.core.deadletter import DeadLetter, NotADeadLetter, parse
from sinkpipeline.core.redrive import Letter, LetterId
from sinkpipeline.kafka.redrive import Redrive, Summary
from sinkpipeline.postgresql.settings import SinkSettings
from sinkpipeline.sinks.contract import RowBatch
from support.kafka import topics
from support.sink.cell_sink import redriving
from support.sink.sql_letters import LetteredSql
from support.sink.sql_sink import batch


@dataclass(frozen=True)
class SqlRepaired:
    """A transform; it pickles, as a class of a module."""

    filtered: frozenset[int] = frozenset()
    """Source offsets of records that `where` drops."""
    values: Mapping[int, str | None] = field(default_factory=dict)
    """What else than itself is the column of a source offset."""

    def __call__(self, letters: Sequence[Letter]) -> RowBatch | None:
        left = [each for each in letters if each.letter.record.offset not in self.filtered]
        sources = [each.letter.record.offset for each in left]
        rows = [("0", self.values.get(n, str(n)), "redriven") for n in sources]
        return batch([each.id.offset for each in left], rows) if left else None


FINE = SqlRepaired()


@dataclass
class RedrivenSql(LetteredSql):
    """Rows that are refused become letters, and are redriven."""

    def kill(self, *bad: int) -> None:
        """Delivers all, of which these are dead-lettered."""
        self.bad = dict.fromkeys(bad, "no number")
        self.lettered().drain()
        self.bad = {}

    def redriving(self, transform: Any = FINE, **more: Any) -> Redrive:
        return redriving(self.settings, transform, **more)

    def redrive(self, transform: Any = FINE, **more: Any) -> Summary:
        with closing(self.redriving(transform, **more)) as redrive:
            survey = redrive.survey()
            assert survey is not None
            return redrive.carry_out(survey)

    def forecast(self) -> list[str]:
        with closing(self.redriving()) as redrive:
            survey = redrive.survey()
            assert survey is not None
            return list(redrive.forecast(survey))

    def pending(self) -> int:
        with closing(self.redriving()) as redrive:
            survey = redrive.survey()
            return 0 if survey is None else survey.pending

    def times(self) -> Counter[int]:
        """How often each source offset is in the table."""
        return Counter(self.rows_there())

    def letters_with_ids(self) -> list[Letter]:
        """All that are committed."""
        found = []
        for each in topics.read_committed(self.servers, self.dead):
            with suppress(NotADeadLetter):
                letter = parse(each.value, each.key, [*each.headers])
                found.append(Letter(LetterId(each.partition, each.offset), 0, letter))
        return found

    def letters_of_records(self) -> list[DeadLetter]:
        return [each.letter for each in self.letters_with_ids()]

    def repeat_letter(self, source: int, partition: int) -> None:
        """Puts a letter of this source offset there once more, as a crash does."""
        for each in topics.read_uncommitted(self.servers, self.dead):
            headers = [*each.headers]
            if (b"%d" % source) == dict(headers).get("sinkpipeline.dlq.source.offset"):
                whole = (each.value, each.key, headers, int(time.time() * 1000))
                topics.produce_whole(self.servers, self.dead, [whole], partition=partition)
                return
        raise AssertionError(f"there is no letter of {source}")

    def letter_cells(self) -> int:
        [(count,)] = self.sql(f"SELECT count(*) FROM {self.progress} WHERE key LIKE '%/d/%'")
        return int(count)


def of_a_table(settings: SinkSettings, rate: float | None) -> None:
    """In a process of its own."""
    with closing(redriving(settings, FINE, rate=rate)) as redrive:
        survey = redrive.survey()
        if survey is not None:
            redrive.carry_out(survey)
