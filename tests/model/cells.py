"""A sink whose progress stands in cells: a store that commits rows and a cell at one moment, if the cell is as it was.

What it holds it mirrors as records of the cluster's topics, so that the judge reads it as it reads Kafka's. The source,
the target's name and its dead letters are the cluster's. Of the product, `cells/` and `sinks/` run on it.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

from typing_extensions import override

from model import clients
from model.broker import Broker
from model.broker import Row as Record
from model.broker import Topic as Written
from model.scheduler import Fate
from sinkpipeline.cells.ledger import CellLedger
from sinkpipeline.cells.records import NO_META
from sinkpipeline.cells.sending import CellSender, RowIds
from sinkpipeline.cells.session import CellClaim
from sinkpipeline.cells.store import NOTHING, Cell, Moved, Puts, Version
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition, is_meta_key
from sinkpipeline.core.ports import Creation, InDoubt, RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.kind import KafkaKind, KafkaPorts
from sinkpipeline.kafka.ledger import KafkaLedger
from sinkpipeline.kafka.session import letters_of
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.target import KafkaTarget
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.settings import settings_of
from sinkpipeline.sinks.worker import Worker

T = TypeVar("T")
NO_CELL = Cell(None, None)
_UNREACHABLE = SinkPipelineError(Reason.SINK_UNREACHABLE, "the store does not answer", "none")


@dataclass(frozen=True)
class _Before:
    """What there was before a change."""

    cells: Mapping[str, Cell]
    lengths: Mapping[str, list[int]]
    """Of every log, by topic."""
    counted: Counter[str]


@dataclass
class Store:
    """The server. Every method is one moment of it."""

    broker: Broker
    progress: str
    tears: bool = False
    """Whether cells that are put together are written one after the other, and a failure leaves the first of them."""
    ends_connections: bool = False
    """Whether whoever is connected has to connect again as it goes back."""
    refuses: Callable[[Record], bool] = lambda _: False
    on_fence: Callable[[str], None] = lambda _: None
    on_moved: Callable[[str], None] = lambda _: None
    on_read: Callable[[str, int], None] = lambda *_: None
    _cells: dict[str, dict[str, Cell]] = field(default_factory=dict)
    """By the id of the place: what is deleted with it never comes back."""
    _past: list[_Before] = field(default_factory=list)
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    counted: Counter[str] = field(default_factory=Counter)
    """By data topic, the rows that were ever written into it, as the store itself counts them."""
    times: int = 0
    """How often it went back."""
    others: bool = False
    """Whether somebody else has written into one."""

    def read(self, keys: Collection[str] | None = None) -> Mapping[str, Cell]:
        cells = self._place()
        self.on_read(self.progress, self.broker.log(self.progress, 0).high)
        return dict(cells) if keys is None else {key: cells.get(key, NO_CELL) for key in keys}

    def put(self, new: Puts, *, halved: bool = False) -> Mapping[str, Version]:
        for key, (_, version) in new.items():
            self._check(key, version)
        found = list(new.items())
        return self._change({key: value for key, (value, _) in found[: len(found) // 2 if halved else None]}, [])

    def commit(
        self, key: str, value: bytes, version: Version, records: Sequence[Record], target: str, beside: Puts
    ) -> Version:
        for each, (_, expected) in {key: (value, version), **beside}.items():
            self._check(each, expected)
        name = records[0].topic if records else None
        topic = None if name is None else self.broker.topics.get(name)
        if name is not None and (topic is None or topic.id != target) and name.startswith("data-"):
            raise SinkPipelineError(Reason.TOPICS_CHANGED, "the target was re-created", "the sink starts again")
        return self._change({key: value, **{each: new for each, (new, _) in beside.items()}}, records)[key]

    def add(self, records: Sequence[Record], target: str = "") -> None:
        """Rows by themselves, as those of AtLeastOnce, or letters."""
        topic = self.broker.topics.get(records[0].topic)
        if target and (topic is None or topic.id != target):
            raise SinkPipelineError(Reason.TOPICS_CHANGED, "the target was re-created", "the sink starts again")
        self._change({}, records)

    def others_write(self, topic: str, rows: int) -> None:
        """Into the target, which is not theirs alone. The judge is not interested in what."""
        self.counted[topic] += rows
        self.others = True

    def put_back(self, key: str, changes: int) -> None:
        """Somebody writes a cell as it was so many changes ago, and nothing else."""
        older = [before.cells[key] for before in self._past[-changes:] if key in before.cells]
        if older:
            self._change({key: older[0].value}, [])

    def go_back(self, changes: int) -> None:
        """The server has lost its tail, as one that is restored from a backup has: rows and cells together."""
        for _ in range(changes):
            topic = self.broker.topics.get(self.progress)
            if not self._past or topic is None:
                return
            before = self._past.pop()
            self.counted = Counter(before.counted)
            self._cells[topic.id] = dict(before.cells)
            for name, lengths in before.lengths.items():
                for log, length in zip(self.broker.topics[name].logs, lengths, strict=True):
                    kept = set(log.history[:length])
                    log.history = log.history[:length]
                    log.records = [each for each in log.records if each in kept]
        self.broker.version += 1
        self.times += self.ends_connections
        self.went_back(changes)

    def went_back(self, changes: int) -> None:
        """Versions are random words: none that is gone is given again."""

    def _place(self) -> dict[str, Cell]:
        topic = self.broker.topics.get(self.progress)
        if topic is None:
            raise SinkPipelineError(Reason.SINK_REFUSED, "the place of the cells is gone", "create it")
        return self._cells.setdefault(topic.id, {})

    def _check(self, key: str, version: Version) -> None:
        if self._place().get(key, NO_CELL).version != version:
            self.on_moved(key)
            raise Moved(key)

    def _change(self, values: Mapping[str, bytes | None], records: Sequence[Record]) -> Mapping[str, Version]:
        cells = self._place()
        lengths = {name: [len(log.history) for log in topic.logs] for name, topic in self._ours()}
        self._past.append(_Before(dict(cells), lengths, Counter(self.counted)))
        self.counted.update(each.topic for each in records if each.topic.startswith("data-"))
        versions: dict[str, Version] = {}
        mirrored = [*records]
        for key, value in values.items():
            was = cells.pop(key, NO_CELL)
            if value is None:
                versions[key] = None
                mirrored.append(Record(self.progress, 0, key.encode(), None))
                continue
            versions[key] = next(self._versions)
            cells[key] = Cell(value, versions[key])
            if value not in (was.value, NO_META):
                self.on_fence(key)
                if is_meta_key(key) or "next" in json.loads(value):
                    mirrored.append(Record(self.progress, 0, key.encode(), value))
        self.broker.append(mirrored)
        return versions

    def _ours(self) -> list[tuple[str, Written]]:
        return [(name, topic) for name, topic in self.broker.topics.items() if name != "source"]


def _lost(*, aborted: bool) -> Callable[[Fate], NoReturn]:
    def lost(fate: Fate) -> NoReturn:
        raise InDoubt(f"no answer: {fate.value}", aborted=aborted or fate is Fate.FAILED, told=_UNREACHABLE)

    return lost


def _unread(_fate: Fate) -> NoReturn:
    raise _UNREACHABLE


class ModelCells:
    """A client of the store: `Cells`."""

    def __init__(self, store: Store, settings: SinkSettings, target: str = "") -> None:
        self._store = store
        self._settings = settings
        self._target = target
        self.letters: list[Row] = []
        """Those of what is open: this store can take them too."""
        self.store = ""

    @property
    def connections(self) -> int:
        """None outlives a server that goes back, where it ends them."""
        return self._store.times

    def read(self, keys: Collection[str]) -> Mapping[str, Cell]:
        return self._call("read", lambda: self._store.read(keys), _unread)

    def metas(self) -> Mapping[str, Cell]:
        return self._call("read", self._store.read, _unread)

    def put(self, cells: Puts) -> Mapping[str, Version]:
        thread = clients.cluster().scheduler.current
        is_task = thread is not None and thread.role == "task"
        if not is_task:
            self._call("send", lambda: None, _lost(aborted=True))

        def failed(fate: Fate) -> NoReturn:
            if self._store.tears and fate in (Fate.FAILED, Fate.TIMED_OUT):
                with_half = self._store.put(cells, halved=True)
                raise InDoubt(f"torn: {sorted(with_half)} were written", told=_UNREACHABLE)
            _lost(aborted=False)(fate)

        return self._call("init" if is_task else "commit", lambda: self._store.put(cells), failed)

    def find(self, prefix: str, most: int) -> Mapping[str, Version]:
        found = self._call("read", self._store.read, _unread)
        alike = ((key, cell.version) for key, cell in found.items() if key.startswith(prefix))
        return dict(itertools.islice(alike, most))

    def commit(
        self,
        key: str,
        value: bytes,
        version: Version,
        rows: Sequence[Row],
        beside: Puts = NOTHING,
        ids: Sequence[str | None] = (),  # noqa: ARG002 - a redrive's
    ) -> Version:
        records = [*self._records(self._settings.data.name, rows)]
        records += self._records(letters_of(self._settings).topic.name, self.letters)
        self._call("send", lambda: None, _lost(aborted=True))
        refused = next((at for at, each in enumerate(records) if self._store.refuses(each)), None)
        if refused is not None:
            # Some errors name the row, and some don't.
            index = refused if refused % 2 else None
            raise RecordRefused(Verdict(ErrorClass.RECORD_REFUSED, "a constraint"), index=index)
        return self._call(
            "commit",
            lambda: self._store.commit(key, value, version, records, self._target, beside),
            _lost(aborted=False),
        )

    @property
    def its_store(self) -> Store:
        return self._store

    def data_records(self, rows: Sequence[Row]) -> list[Record]:
        return list(self._records(self._settings.data.name, rows))

    def added(self, records: Sequence[Record], target: str = "") -> None:
        self._call("send", lambda: self._store.add(records, target), _lost(aborted=False))

    def add_letters(self) -> None:
        if self.letters:
            self.added(list(self._records(letters_of(self._settings).topic.name, self.letters)))

    def _records(self, topic: str, rows: Sequence[Row]) -> Iterator[Record]:
        found = self._store.broker.topics.get(topic)
        for value, key, _, timestamp, headers in rows:
            number = zlib.crc32(key or b"") % (1 if found is None else len(found.logs))
            yield Record(topic, number, key, value, None if headers is None else [*headers], timestamp)

    def _call(self, label: str, effect: Callable[[], T], failed: Callable[[Fate], T]) -> T:
        return clients.cluster().scheduler.call(label, effect, failed)


@dataclass(frozen=True)
class _Place:
    """Where the cells are: the topic that mirrors them."""

    ledger: KafkaLedger

    def describe(self, source: Mapping[str, str]) -> Topic | None:  # noqa: ARG002 - it is apart
        return self.ledger.place()

    def id(self) -> str | None:
        place = self.ledger.place()
        return None if place is None else place.id

    def create(self) -> Creation:
        return self.ledger.create()


@dataclass(frozen=True)
class _Letters:
    """Commits them with the rows; that they go elsewhere, and first, is shown on a real broker."""

    cells: ModelCells

    def send(self, rows: Iterable[Row]) -> None:
        self.cells.letters.extend(rows)

    def flush(self) -> None:
        pass

    def counted(self) -> None:
        self.cells.letters.clear()

    drop = counted


@dataclass(frozen=True)
class _Publisher:
    """Rows one by one: of those that are sent together some may be there, and some not."""

    cells: ModelCells
    target: str

    def made(self, row: Row, row_id: str) -> Record:  # noqa: ARG002 - the judge knows a row by its value
        [found] = self.cells.data_records([row])
        return found

    def publish(self, messages: Sequence[Record]) -> None:
        store, middle = self.cells.its_store, len(messages) // 2
        for begin, part in ((0, messages[:middle]), (middle, messages[middle:])):
            refused = next((at for at, each in enumerate(part) if store.refuses(each)), None)
            good = part[:refused]
            if good:
                self.cells.added(good, self.target)
            if refused is not None:
                # Some errors name the row, and some don't.
                index = begin + refused if refused % 2 else None
                raise RecordRefused(Verdict(ErrorClass.RECORD_REFUSED, "a constraint"), index=index)


@dataclass(frozen=True)
class _LettersAlone(_Letters):
    """Acknowledged by themselves, before they count."""

    @override
    def flush(self) -> None:
        self.cells.add_letters()


class ModelClaim(CellClaim):
    """As PostgreSQL's: of the place and of the target of the start."""

    def __init__(self, plan: BatchPlan, partition: SourcePartition, store: Store) -> None:
        settings = settings_of(plan, SinkSettings)
        cells = ModelCells(store, settings, plan.data_topic_id)
        super().__init__(cells, settings.id, plan.run, partition, _Letters(cells))  # type: ignore[arg-type]
        self._topics = {settings.data.name: plan.data_topic_id, settings.progress.name: plan.progress_topic_id}
        self._broker = store.broker

    @override
    def _check(self) -> None:
        found = clients.cluster().scheduler.call("describe", lambda: dict(self._broker.topics), _unread)
        for name, expected in self._topics.items():
            if name not in found or found[name].id != expected:
                raise SinkPipelineError(Reason.TOPICS_CHANGED, f"{name} is another one", "the sink starts again")
        super()._check()


@dataclass(frozen=True)
class _Target(KafkaTarget):
    """A topic that the store counts, too."""

    store: Store | None = None

    @override
    def describe(self, source: Mapping[str, str]) -> Topic | None:
        found = super().describe(source)
        return None if found is None else replace(found, counted=self.counted())

    @override
    def counted(self) -> int | None:  # type: ignore[override]  # another kind's
        return None if self.store is None else self.store.counted[self.settings.data.name]


@dataclass(frozen=True)
class CellKind(KafkaKind):
    """Only rows and progress are the store's."""

    store: Store

    @override
    def claim(  # type: ignore[override]  # another kind's
        self,
        plan: BatchPlan,
        partition: SourcePartition,
        worker: Worker,
        *,
        rows: bool = True,
    ) -> ModelClaim:
        return ModelClaim(plan, partition, self.store)

    @override
    def sender(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> CellSender[Record]:  # type: ignore[override]
        cells = ModelCells(self.store, settings_of(plan, SinkSettings))
        ids = RowIds(plan.settings.id, partition, plan.frontier[partition].epoch)
        letters: Any = _LettersAlone(cells)
        return CellSender(lambda: _Publisher(cells, plan.data_topic_id), ids, cells, letters)


class CellPorts(KafkaPorts):
    """One sink, whose source is Kafka's."""

    store: Store

    @property
    @override
    def kind(self) -> CellKind:
        return CellKind(self.store)

    @property
    @override
    def target(self) -> _Target:
        return _Target(self.settings, self.source_admin, self.admin, self.claims, self.store)

    @property
    @override
    def ledger(self) -> CellLedger:  # type: ignore[override]  # another kind's
        place = _Place(KafkaLedger(self.settings, self.admin))
        return CellLedger(ModelCells(self.store, self.settings), self.settings.id, place)
