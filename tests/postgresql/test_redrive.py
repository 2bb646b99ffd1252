"""Redrives into a table, on a real server and a real broker: each letter that counts gives its row once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.cells import lettered
from sinkpipeline.cells.redriving import RedriveSession, Settled
from sinkpipeline.cells.store import Cell, Puts
from sinkpipeline.cli.dlq.contents import read_contents
from sinkpipeline.cli.dlq.purging import UpTo, bounds_of, delete_records
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.redrive import Letter
from sinkpipeline.kafka import redrive
from sinkpipeline.kafka.letters import KafkaLetters
from sinkpipeline.kafka.redrive import Summary
from sinkpipeline.kinds import redriving, redriving_writer
from sinkpipeline.postgresql.settings import Connection, Upsert
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.removal import SinkRemoval
from support.kafka import commits, topics
from support.sink.cell_sink import COUNT
from support.sink.redrives import RedriveProcess, four_at_once
from support.sink.sql_child import Child
from support.sink.sql_redrives import FINE, RedrivenSql, SqlRepaired, of_a_table
from support.sink.sql_sink import batch
from support.sink.starts import refusal

BAD = (1, 2, 5, 8, 11)
ONCE = Counter(range(COUNT))


@pytest.fixture
def make(kafka: LocalKafka, postgresql: LocalPostgresql) -> Iterator[Callable[..., RedrivenSql]]:
    made: list[RedrivenSql] = []

    def make(**changes: object) -> RedrivenSql:
        stem = topics.unique("sql")
        found = RedrivenSql(postgresql.address, servers=kafka.bootstrap_servers, stem=stem, **changes)  # type: ignore[arg-type]
        found.create_schema()
        found.produce()
        made.append(found)
        return found

    yield make
    for each in made:
        each.close()


@pytest.fixture
def sink(make: Callable[..., RedrivenSql]) -> RedrivenSql:
    """Some of its records are dead letters."""
    found = make()
    found.kill(*BAD)
    return found


def small_chunks(monkeypatch: pytest.MonkeyPatch, letters: int) -> None:
    real = redrive.chunks
    monkeypatch.setattr(redrive, "chunks", lambda found, *, most: real(found, most=min(most, letters)))


# The ordinary way


def test_each_letter_is_delivered_once_and_its_state_is_told(sink: RedrivenSql) -> None:
    assert sink.forecast() == []
    filtered = SqlRepaired(filtered=frozenset({5}))
    assert sink.redrive(filtered) == Summary(delivered=4, filtered=1)
    assert sink.redrive() == Summary()
    assert sink.times() == Counter(n for n in range(COUNT) if n != 5)
    assert (sink.pending(), sink.letter_cells()) == (0, 0)
    contents = read_contents(seen(sink), topic(sink))
    states = Counter(contents.state(each) for each in contents.letters)
    assert states == {"Delivered": 4, "Filtered": 1}
    bounds = bounds_of(contents, UpTo(redriven=True))
    delete_records(seen(sink), sink.dead, bounds)
    assert read_contents(seen(sink), topic(sink)).letters == []
    assert sink.counted()["dead"] == len(BAD), "the counts are of what was dead-lettered"


def seen(sink: RedrivenSql) -> redriving.KafkaSettings:
    settings = sink.settings
    assert isinstance(settings.dead_letter, KafkaLetters)
    return settings.dead_letter.as_kafka(settings.owner)


def topic(sink: RedrivenSql) -> redriving.Topic:
    with closing(sink.redriving()) as found:
        survey = found.survey()
        assert survey is not None
        return survey.topic


def test_what_fails_again_is_a_letter_again_and_of_a_later_redrive(sink: RedrivenSql) -> None:
    """Two of them together, so that the server does not say which ones: they are found by halves."""
    for times, delivered in ((1, 3), (2, 0)):
        fails = SqlRepaired(values={2: "no number", 8: "9" * 30})
        assert sink.redrive(fails) == Summary(delivered=delivered, dead_lettered=2), "once in one call"
        again = [each for each in sink.letters_of_records() if each.redrives == times]
        assert [each.record.offset for each in again] == [2, 8]
        assert (sink.pending(), sink.letter_cells()) == (2, 2)
    assert sink.redrive() == Summary(delivered=2)
    assert sink.times() == ONCE


@pytest.mark.parametrize("order", [None, "bigint"])
@pytest.mark.thorough("the other order", after=1)
def test_an_older_row_replaces_a_newer_one_only_where_nothing_orders_them(
    make: Callable[..., RedrivenSql], order: str | None
) -> None:
    """One key for all; the letter is of the first record."""
    sink = make(upsert=Upsert(key=("part",), order_type=order, order_by="off"))

    def rows(offsets: Sequence[int]) -> list[tuple[str, ...]]:
        """The last part is what orders them."""
        return [("0", str(each), "row", *([str(each)] if order else [])) for each in offsets]

    sink.values_of = rows
    sink.bad = {0: "no number"}
    sink.lettered().drain()
    sink.bad = {}
    assert [each.partition(" is merged without orderBy")[1] != "" for each in sink.forecast()] == (
        [] if order else [True]
    )
    transform = Ordered(order is not None)
    assert sink.redrive(transform) == Summary(delivered=1)
    assert sink.rows_there() == [COUNT - 1 if order else 0]


class Ordered:
    def __init__(self, has_order: bool) -> None:
        self._has_order = has_order

    def __call__(self, letters: Sequence[Letter]) -> RowBatch:
        values = [("0", str(at), "redriven", *([str(at)] if self._has_order else [])) for at in sources(letters)]
        return redriven_batch([each.id.offset for each in letters], values)


def sources(letters: Sequence[Letter]) -> list[int]:
    return [each.letter.record.offset for each in letters]


def redriven_batch(offsets: Sequence[int], values: Sequence[Sequence[str | None]]) -> RowBatch:
    return batch(offsets, values)


# Letters that are there twice, or do not count


@pytest.mark.thorough("two faults at once: a kill at every point is in make test")
@pytest.mark.parametrize("partition", [pytest.param(0, marks=[pytest.mark.thorough("the simpler one")]), 1])
def test_a_letter_that_a_crash_has_repeated_gives_one_row(sink: RedrivenSql, partition: int) -> None:
    """In another partition too: letters without keys go anywhere, and a topic may have more partitions than before."""
    if partition:
        topics.add_partitions(sink.servers, sink.dead, 2)
    sink.repeat_letter(5, partition)
    sink.repeat_letter(8, partition)
    assert sink.forecast() == ["2 of them repeat another letter of the same record: nothing is written for these"]
    assert sink.redrive() == Summary(delivered=len(BAD), repeated=2)
    assert sink.times() == ONCE
    assert sink.redrive() == Summary()


@pytest.mark.thorough("two faults at once: a kill at every point is in make test")
def test_a_letter_whose_commit_never_came_gives_no_second_row(make: Callable[..., RedrivenSql], tmp_path: Path) -> None:
    """Its cause is mended, and the next driver delivers the record itself."""
    sink = make()
    sink.bad = {2: "no number"}
    killed = Child(sink, tmp_path, "sql-before-commit", step=COUNT, lettered=(sink.servers, sink.stem))
    killed.wait_at("sql-before-commit")
    killed.kill()
    [letter] = sink.letters()
    assert letter.record.offset == 2
    assert sink.redrive() == Summary(uncounted=1), "nobody knows yet what becomes of the record"
    sink.bad = {}
    sink.lettered().drain()
    assert sink.times() == ONCE
    [told] = sink.forecast()
    assert told.startswith("1 of them don't count, and stay pending")
    assert sink.redrive() == Summary(uncounted=1)
    assert (sink.times(), sink.pending()) == (ONCE, 1)


def test_a_letter_that_is_repeated_by_the_driver_after_a_kill_counts_once(
    make: Callable[..., RedrivenSql], tmp_path: Path
) -> None:
    sink = make()
    sink.bad = {2: "no number"}
    killed = Child(sink, tmp_path, "sql-before-commit", step=COUNT, lettered=(sink.servers, sink.stem))
    killed.wait_at("sql-before-commit")
    killed.kill()
    sink.lettered().drain()
    assert [each.record.offset for each in sink.letters()] == [2, 2]
    assert sink.redrive() == Summary(delivered=1, repeated=1)
    assert sink.times() == ONCE


# A store that went back


def backup(sink: RedrivenSql) -> Callable[[], None]:
    """The table and its progress as they are; what it answers puts them back."""
    kept = f"{sink.name}_progress.kept"
    for name, there in (("cells", sink.progress), ("rows", sink.table)):
        sink.sql(f"CREATE TABLE {kept}_{name} AS SELECT * FROM {there}")

    def restore() -> None:
        for name, there in (("cells", sink.progress), ("rows", sink.table)):
            sink.sql(f"DELETE FROM {there}")
            sink.sql(f"INSERT INTO {there} SELECT * FROM {kept}_{name}")

    return restore


@pytest.mark.thorough("a restored server")
def test_a_letter_that_failed_again_before_a_restore_is_no_repetition(sink: RedrivenSql) -> None:
    """Its cell speaks of the letter before it, which is settled."""
    restore = backup(sink)
    assert sink.redrive(SqlRepaired(values={2: "no number"})).dead_lettered == 1
    restore()
    again = next(each for each in sink.letters_with_ids() if each.letter.redrives == 1)
    assert sink.redrive(ids=[again.id]) == Summary(repeated=1), "the one before it is pending again"
    assert sink.redrive() == Summary(delivered=len(BAD))
    assert sink.times() == ONCE


@pytest.mark.parametrize("point", [None, pytest.param("redrive-before-record", marks=[pytest.mark.thorough("a kill")])])
def test_what_a_restore_has_lost_is_pending_again_and_redriven_once(
    sink: RedrivenSql, tmp_path: Path, point: str | None
) -> None:
    """The topic says that all are settled: two before the backup, one of the others has failed again."""
    first, second, *rest = [each.id for each in sink.letters_with_ids()]
    assert sink.redrive(ids=[first, second]) == Summary(delivered=2)
    restore = backup(sink)
    assert sink.redrive(SqlRepaired(values={5: "no number"})) == Summary(delivered=2, dead_lettered=1)
    restore()
    assert sink.forecast()[0].startswith(f"{len(rest)} letters were redriven before, and their rows are lost")
    if point is not None:
        with RedriveProcess(tmp_path / "points", sink.settings, rate=2, run=of_a_table) as killed:
            killed.arm(point)
            killed.until_held(point)
            killed.kill()
    found = sink.redrive()
    assert found == Summary(delivered=3 if point is None else 1, repeated=1)
    assert sink.times() == ONCE
    assert (sink.redrive(), sink.pending(), sink.letter_cells(), sink.forecast()) == (Summary(), 0, 0, [])


@pytest.mark.thorough("two faults at once: a kill at every point is in make test")
def test_an_answer_that_is_lost_after_a_restore_makes_no_second_row(
    sink: RedrivenSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has an older word for each of these letters: it says nothing of the commit that is in doubt."""
    restore = backup(sink)
    assert sink.redrive() == Summary(delivered=len(BAD))
    restore()
    with monkeypatch.context() as patch:
        test_a_redrive_record_in_doubt_makes_no_second_row(sink, patch, "lost")


def test_a_dropped_progress_is_told_as_lost(sink: RedrivenSql) -> None:
    sink.sql(f"DROP SCHEMA {sink.progress.removesuffix('.progress')} CASCADE")
    refusal(sink.forecast, Reason.PROGRESS_LOST)
    refusal(sink.redrive, Reason.PROGRESS_LOST)


# Trouble in the middle

POINTS = [
    *("redrive-after-claim", "redrive-before-commit", "sql-after-cell", "sql-before-commit"),
    *("redrive-before-record", "redrive-after-commit"),
]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(each, marks=[pytest.mark.thorough("each point of one case")])
        if each != "redrive-before-record"
        else each
        for each in POINTS
    ],
)
@pytest.mark.long("tests/conformance and tests/kafka/test_redrive kill redrives, too", after=3)
def test_it_is_killed_at_every_point(sink: RedrivenSql, tmp_path: Path, point: str) -> None:
    """With two letters at a time: the first two count where the kill came after their commit."""
    with RedriveProcess(tmp_path / "points", sink.settings, rate=2, run=of_a_table) as killed:
        killed.arm(point)
        killed.until_held(point)
        killed.kill()
    came_through = point in ("redrive-before-record", "redrive-after-commit")
    assert sum(sink.times().values()) == COUNT - len(BAD) + (2 if came_through else 0)
    assert sink.redrive() == Summary(delivered=len(BAD) - (2 if came_through else 0))
    assert sink.times() == ONCE
    contents = read_contents(seen(sink), topic(sink))
    assert {contents.state(each) for each in contents.letters} == {"Delivered"}


class KilledError(BaseException):
    pass


def test_what_a_killed_redrive_has_committed_is_not_told_as_uncounted(
    sink: RedrivenSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are there, and the topic does not say so: nobody is to write these records to the source again."""

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(redriving_writer.CellRedriveWriter, "_record", killed)
        with pytest.raises(KilledError):
            sink.redrive()
    assert (sink.times(), sink.pending()) == (ONCE, len(BAD))
    [told] = sink.forecast()
    assert told.startswith(f"{len(BAD)} of them were redriven before, and their redrive was killed")
    assert (sink.redrive(), sink.pending(), sink.forecast()) == (Summary(), 0, [])


@pytest.mark.parametrize("loss", [Loss.ANSWER, pytest.param(Loss.REQUEST, marks=[pytest.mark.thorough("each loss")])])
def test_a_commit_whose_answer_is_lost_makes_no_second_row(
    sink: RedrivenSql, postgresql: LocalPostgresql, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_chunks(monkeypatch, 2)
    with SqlProxy(postgresql.port) as proxy:
        connection = sink.settings.connection
        sink.changes = {"connection": replace(connection, servers=proxy.address)}

        def transform(letters: Sequence[Letter]) -> RowBatch | None:
            proxy.lose(b"COMMIT", loss, after=b"COPY")
            return FINE(letters)

        assert sink.redrive(transform) == Summary(delivered=len(BAD))
        assert proxy.caught == 3
        sink.changes = {"connection": connection}
    assert sink.times() == ONCE


@pytest.mark.thorough("two faults at once: a kill at every point is in make test")
@pytest.mark.parametrize("outcome", ["answer lost", pytest.param("lost", marks=[pytest.mark.thorough("each loss")])])
def test_a_redrive_record_in_doubt_makes_no_second_row(
    sink: RedrivenSql, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    # The first commit is the sentinel's.
    left = commits.planned(monkeypatch, "committed", outcome)
    assert sink.redrive() == Summary(delivered=len(BAD))
    assert (left, sink.times(), sink.pending()) == ([], ONCE, 0)


@pytest.mark.thorough("two faults at once: a kill at every point is in make test")
def test_a_newer_redrive_goes_first(sink: RedrivenSql, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 2)
    newer: list[Summary] = []

    def transform(letters: Sequence[Letter]) -> RowBatch | None:
        rows = FINE(letters)
        if sources(letters)[0] > BAD[0] and not newer:
            newer.append(sink.redrive())
        return rows

    older = sink.redriving(transform)
    with closing(older):
        survey = older.survey()
        assert survey is not None
        refusal(lambda: older.carry_out(survey), Reason.SUPERSEDED)
    assert (older.summary.delivered, newer) == (2, [Summary(delivered=len(BAD) - 2)])
    assert sink.times() == ONCE


@pytest.mark.thorough("two faults at once: a kill at every point is in make test")
def test_two_that_have_letters_of_one_record_in_two_partitions(sink: RedrivenSql) -> None:
    """No cell of a redrive keeps them apart: the letter's own does."""
    topics.add_partitions(sink.servers, sink.dead, 2)
    sink.repeat_letter(5, 1)
    [own] = [each for each in sink.letters_with_ids() if each.id.partition == 1]

    def transform(letters: Sequence[Letter]) -> RowBatch | None:
        if 5 in sources(letters):
            assert sink.redrive(ids=[own.id]).delivered == 1
        return FINE(letters)

    older = sink.redriving(transform)
    with closing(older):
        survey = older.survey()
        assert survey is not None
        refusal(lambda: older.carry_out(survey), Reason.SUPERSEDED)
    assert sink.redrive() == Summary(delivered=len(BAD) - 1, repeated=1)
    assert sink.times() == ONCE


@pytest.mark.thorough("two at once are beside it")
def test_many_redrives_at_once(sink: RedrivenSql) -> None:
    told = four_at_once(lambda: sink.redrive(rate=5))
    assert {each for each in told if isinstance(each, Reason)} <= {Reason.SUPERSEDED, Reason.TRANSACTION_FAILED}
    sink.redrive()
    assert (len(told), sink.times()) == (4, ONCE)


# A world that is not as it should be


@pytest.mark.thorough("two faults at once: a kill at every point is in make test")
def test_a_table_that_is_made_again_and_a_sink_that_is_removed(
    sink: RedrivenSql,
) -> None:
    sink.sql(f"ALTER TABLE {sink.table} RENAME TO kept")
    sink.sql(f"CREATE TABLE {sink.table} (part integer, off bigint, value text)")
    refusal(sink.redrive, Reason.DATA_TOPIC_LOST)
    sink.sql(f"DROP TABLE {sink.table}")
    refusal(sink.redrive, Reason.DATA_TOPIC_LOST)
    sink.sql(f"ALTER TABLE {sink.table.removesuffix('orders')}kept RENAME TO orders")
    assert sink.redrive(SqlRepaired(values={2: "no number"})).dead_lettered == 1
    driver = sink.lettered()
    assert SinkRemoval(ports=driver.ports).carry_out() is None
    assert sink.sql(f"SELECT key FROM {sink.progress}") == []
    refusal(sink.redrive, Reason.PROGRESS_LOST)


def test_a_right_that_only_a_redrive_needs_is_missed_before_a_row_is_made(sink: RedrivenSql) -> None:
    sink.sql(f"CREATE ROLE {sink.name} LOGIN")
    sink.sql(f"GRANT USAGE ON SCHEMA {sink.table.removesuffix('.orders')}, {sink.name}_progress TO {sink.name}")
    sink.sql(f"GRANT SELECT, INSERT ON {sink.table} TO {sink.name}")
    sink.sql(f"GRANT SELECT, INSERT, UPDATE ON {sink.progress} TO {sink.name}")
    sink.changes = {"connection": replace(sink.settings.connection, user=sink.name)}
    made: list[object] = []
    error = refusal(lambda: sink.redrive(made.append), Reason.SINK_REFUSED)
    assert ("permission denied" in error.message, made) == (True, [])
    sink.sql(f"GRANT DELETE ON {sink.progress} TO {sink.name}")
    assert sink.redrive() == Summary(delivered=len(BAD))


@pytest.mark.thorough("two faults at once: a kill at every point is in make test")
def test_a_progress_schema_of_another_server_is_not_reached(sink: RedrivenSql) -> None:
    connection = sink.settings.connection
    sink.changes = {"connection": Connection(servers="127.0.0.1:1", database=connection.database, user="nobody")}
    refusal(sink.redrive, Reason.SINK_UNREACHABLE)
    sink.changes = {}
    assert sink.redrive() == Summary(delivered=len(BAD))


def test_a_topic_that_refuses_what_is_written_down_ends_it_and_nothing_is_done_twice(
    sink: RedrivenSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compacted since it was looked at: behind a commit of the store, and before the claim."""

    def transform(letters: Sequence[Letter]) -> RowBatch | None:
        topics.alter_topic(sink.servers, sink.dead, {"cleanup.policy": "compact"})
        return FINE(letters)

    error = refusal(lambda: sink.redrive(transform), Reason.DEAD_LETTER_FAILED)
    assert f"{sink.dead} refused what is to be written down" in error.message
    assert len(sink.letters_with_ids()) == len(BAD), "no row was taken for bad"
    with monkeypatch.context() as patch:
        patch.setattr(redrive, "is_compacted", lambda _: False)
        refusal(sink.redrive, Reason.RECORD_REFUSED)
    topics.alter_topic(sink.servers, sink.dead, {"cleanup.policy": "delete"})
    assert (sink.redrive(), sink.pending(), sink.times()) == (Summary(), 0, ONCE)


# Broken on purpose: what is above finds it.


@pytest.mark.thorough("each way to break one")
def test_one_that_is_broken_is_found(make: Callable[..., RedrivenSql]) -> None:
    """A letter that counts whatever its cell says, a cell that stays, and a commit that forgets what it has settled."""

    def repeated(sink: RedrivenSql) -> None:
        test_a_letter_that_a_crash_has_repeated_gives_one_row(sink, 0)

    def in_doubt(sink: RedrivenSql) -> None:
        with pytest.MonkeyPatch.context() as patch:
            test_a_redrive_record_in_doubt_makes_no_second_row(sink, patch, "lost")

    def counts_always(_: Cell) -> int:
        """No letter of these was redriven."""
        return 0

    real = RedriveSession.settle

    def forgetful(self: RedriveSession, settled: Settled, letters: Puts) -> None:
        real(self, replace(settled, outcomes={}), letters)

    for broken, name, by, finds in (
        (lettered, "counted", counts_always, repeated),
        (redriving_writer.CellRedriveWriter, "_cells_of", lambda *_: {}, repeated),
        (RedriveSession, "settle", forgetful, in_doubt),
    ):
        sink = make()
        sink.kill(*BAD)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(broken, name, by)
            with pytest.raises(BaseException):  # noqa: B017, PT011 - a failed test raises what it likes
                finds(sink)
