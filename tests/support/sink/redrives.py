"""Redrives without Spark: a sink's letters on a real broker, rows as a repaired pipeline makes them, a judgement."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from typing_extensions import Self

from sinkpipeline.core.deadletter import DeadLetter, NotADeadLetter, parse
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.redrive import Letter, LetterId, Wanted
from sinkpipeline.kafka.redrive import Redrive, Summary
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.sinks import failpoints
from sinkpipeline.sinks.contract import RowBatch
from support.kafka import topics
from support.sink.dead_letters import Lettered, records
from support.waiting import wait_until


def four_at_once(redrive: Callable[[], Summary]) -> list[Summary | Reason]:
    """What became of each: what it did, or why it was refused."""
    told: list[Summary | Reason] = []

    def run() -> None:
        try:
            told.append(redrive())
        except SinkPipelineError as error:
            told.append(error.reason)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return told


@dataclass(frozen=True)
class Repaired:
    """A transform; it pickles, as a class of a module."""

    filtered: frozenset[int] = frozenset()
    """Source offsets of records that `where` drops."""
    astray: frozenset[int] = frozenset()
    """Source offsets of records that fail again."""
    values: Mapping[int, bytes] = field(default_factory=dict)

    def __call__(self, letters: Sequence[Letter]) -> RowBatch | None:
        left = [each for each in letters if each.letter.record.offset not in self.filtered]
        sources = [each.letter.record.offset for each in left]
        values: list[bytes | None] = [self.values.get(n, f"row {n}".encode()) for n in sources]
        return RowBatch(
            offsets=[each.id.offset for each in left],
            keys=[b"key"] * len(left),
            values=values,
            target_partitions=[7 if n in self.astray else -1 for n in sources],
            timestamps=[0] * len(left),
            headers=None,
            errors=None,
            size=sum(len(value or b"") for value in values),
        )


ALL_FINE = Repaired()


class Dead(Lettered):
    """A sink whose source records are dead letters, but for some."""

    def kill(self, bad: Collection[int] | None = None) -> Self:
        count = len(self.source)
        self.write(self.rows(range(count), bad=range(count) if bad is None else bad))
        return self

    def redrive(self, transform: Repaired = ALL_FINE, **changes: Any) -> Summary:
        redrive = self.redriving(transform, **changes)
        survey = redrive.survey()
        assert survey is not None
        return redrive.carry_out(survey)

    def redriving(self, transform: Repaired = ALL_FINE, **changes: Any) -> Redrive:
        return redriving(self.settings, transform, **changes)

    def letters(self) -> list[DeadLetter]:
        """All that are in the topic, redriven or not, in log order."""
        found = []
        for record in topics.read_committed(self.servers, self.sink.dead):
            with suppress(NotADeadLetter):
                found.append(parse(record.value, record.key, list(record.headers)))
        return found

    def ids(self) -> dict[int, LetterId]:
        """Source offset to its newest letter."""
        found = {}
        for record in topics.read_committed(self.servers, self.sink.dead):
            with suppress(NotADeadLetter):
                letter = parse(record.value, record.key, list(record.headers))
                found[letter.record.offset] = LetterId(record.partition, record.offset)
        return found

    def pending(self) -> int:
        survey = self.redriving().survey()
        return 0 if survey is None else survey.pending

    def judge(self) -> Counter[int]:
        """How often each source offset was delivered, to a consumer that reads what is committed."""
        return Counter(self.delivered())

    @property
    def redrive_id(self) -> str:
        return SinkId(self.sink.id.identity, "out.redrive").partition_id(SourcePartition(self.sink.dead, 0))


def dead(servers: str, count: int = 12, *, partitions: int = 1, **settings: Any) -> Dead:
    """`partitions`: of the dead-letter topic."""
    task = Dead(servers, records(count), **settings)
    if partitions > 1:
        topics.add_partitions(servers, task.sink.dead, partitions)
    return task


def redriving(
    settings: SinkSettings, transform: Repaired, *, stop: threading.Event | None = None, **changes: Any
) -> Redrive:
    rate = changes.pop("rate", None)
    on_change: Callable[[Summary], None] = changes.pop("on_change", lambda _: None)
    wanted = Wanted(sinks=frozenset({settings.id}), **changes)
    return Redrive(
        settings=settings,
        wanted=wanted,
        transform=transform,
        rate=rate,
        stop=stop or threading.Event(),
        on_change=on_change,
    )


class RedriveProcess:
    """A redrive in a process of its own, to be killed; use it in a `with`."""

    def __init__(
        self,
        directory: Path,
        settings: Any,
        *,
        rate: float | None = None,
        run: Callable[[Any, float | None], None] | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        context = get_context("spawn")
        pickled = cloudpickle.dumps(settings)  # type: ignore[no-untyped-call]
        target = run or _of_a_topic
        self._process = context.Process(target=_redrive, args=(directory, pickled, rate, target), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def arm(self, point: str) -> None:
        (self._directory / point).touch()

    def until_held(self, point: str) -> None:
        held = self._directory / f"{point}.{self._process.pid}"
        wait_until(held.exists, f"the redrive reaches {point}", 60)

    def go_on(self, point: str) -> None:
        """From the point at which it is held, until it comes there again."""
        self.arm(point)
        held = self._directory / f"{point}.{self._process.pid}"
        held.unlink()
        wait_until(lambda: not (self._directory / point).exists() and held.exists(), f"it reaches {point} again", 60)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _redrive(directory: Path, settings: bytes, rate: float | None, run: Callable[[Any, float | None], None]) -> None:
    failpoints._DIRECTORY = str(directory)
    run(pickle.loads(settings), rate)


def _of_a_topic(settings: SinkSettings, rate: float | None) -> None:
    redrive = redriving(settings, ALL_FINE, rate=rate)
    survey = redrive.survey()
    if survey is not None:
        redrive.carry_out(survey)
