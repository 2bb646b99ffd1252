"""What MySQL has that MariaDB has not: marks instead of GTIDs, locks for a snapshot, JSON by its parts."""

from __future__ import annotations

import re
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.changes import kinds
from sinkpipeline.changes.binlog import held, look
from sinkpipeline.changes.mysql import dialect
from sinkpipeline.core.changes.positions import BinlogPosition
from sinkpipeline.core.errors import Reason
from support.changes.binlog import ORDERS, BinlogLab
from support.changes.binlog_load import INSERT, SMALL, insert
from support.waiting import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.parametrize("kind", [pytest.param("mysql", id="")], indirect=True),
]


def documents(lab: BinlogLab) -> list[dict[str, Any]]:
    return [each.record.document for each in lab.found()]


@pytest.mark.thorough("tests/unit/test_binlog has their events")
def test_gtids_with_a_tag_and_without_and_none_at_all(own: BinlogLab) -> None:
    own.sql("INSERT INTO orders VALUES (1, 'none')")
    for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE"):
        own.sql("SET GLOBAL enforce_gtid_consistency = ON", f"SET GLOBAL gtid_mode = {mode}")
    own.sql("INSERT INTO orders VALUES (2, 'plain')")
    own.live()
    with own.connected() as session, session.cursor() as cursor:
        cursor.execute("SELECT version(), @@server_uuid, floor(unix_timestamp(now(3)) * 1000)")
        [(version, server, now)] = cursor.fetchall()
        if version.startswith("8.0"):
            pytest.skip("it has no tags")
        cursor.execute("SET SESSION gtid_next = 'AUTOMATIC:some_tag'")
        cursor.execute("INSERT INTO orders VALUES (3, 'tagged')")
    own.live()
    assert [each["xid"] for each in documents(own)] == [None, f"{server}:1", f"{server}:some_tag:1"]
    assert own.check() == 3
    committed = [each["committedAt"] for each in documents(own)]
    assert committed == sorted(committed)
    assert 0 <= committed[2] - now < 60_000


@pytest.mark.parametrize("is_inside", [True, pytest.param(False, marks=pytest.mark.thorough("at once"))])
@pytest.mark.thorough("one that is not compressed is cut in make test")
def test_a_transaction_that_is_compressed_is_cut_anywhere(own: BinlogLab, is_inside: bool) -> None:
    """It is one event of the log, and its rows have numbers as others have."""
    own.sql("SET GLOBAL binlog_transaction_compression = ON")
    insert(own, 0, 3_000, 190)
    insert(own, 5_000, 10)
    if is_inside:
        stage = own.start("after-commit", cuts=SMALL)
        stage.wait_at("after-commit")
        stage.kill()
        assert own.progress()[1] > 0, "it was cut inside the transaction"
    own.live()
    assert own.check() == 3_010


@pytest.mark.thorough("a snapshot is in make test")
def test_a_snapshot_waits_for_who_has_changed_a_table(lab: BinlogLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "LOCK_S", 1)
    lab.sql(ORDERS)
    insert(lab, 0, 20)
    with lab.connected(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (100, 'open')")
        refusal = lab.refusal(database={"snapshot": True})
        assert refusal.reason is Reason.SOURCE_UNREACHABLE
        assert f"a lock on {lab.name}.orders" in str(refusal)
        assert lab.sql("SELECT count(*) FROM information_schema.innodb_trx")[0][0] >= 1
        session.commit()
    lab.live(database={"snapshot": True})
    assert lab.check_copy("orders") == 0


@pytest.mark.thorough("a snapshot is in make test")
def test_a_snapshot_whose_lock_is_lost_is_none(lab: BinlogLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes the table then stands in the snapshot, and behind the place that was noted before it."""
    lab.sql(ORDERS)
    insert(lab, 0, 20)
    asked = dialect._status

    def killed(wire: Any) -> Any:
        found = asked(wire)
        [(number,)] = wire.rows("SELECT connection_id()")
        lab.sql(f"KILL {number}")
        lab.sql("INSERT INTO orders VALUES (100, 'between')")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(dialect, "_status", lambda wire: killed(wire) if _locks(wire) else asked(wire))
        assert lab.refusal(database={"snapshot": True}).reason is Reason.SOURCE_UNREACHABLE
    lab.live(database={"snapshot": True})
    assert lab.check_copy("orders") == 0


def _locks(wire: Any) -> bool:
    """Whether it is the connection that has set how long it waits for a lock."""
    [(seconds,)] = wire.rows("SELECT @@session.lock_wait_timeout")
    return int(seconds) == dialect.LOCK_S


@pytest.mark.thorough("validate is in make test")
def test_json_of_which_only_what_has_changed_is_logged(own: BinlogLab) -> None:
    own.tables = ("orders", "documents")
    own.sql("CREATE TABLE documents (id int PRIMARY KEY, d json)", "CREATE TABLE others LIKE documents")
    own.live()
    for table in ("others", "documents"):
        with own.connected() as session, session.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES (1, JSON_OBJECT('a', 1, 'b', repeat('x', 500)))")
            cursor.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
            cursor.execute(f"UPDATE {table} SET d = JSON_SET(d, '$.a', 2)")
        if table == "others":
            own.live()
    refusal = own.refusal()
    assert refusal.reason is Reason.SOURCE_UNSUITABLE
    assert "binlog_row_value_options" in refusal.remedy
    own.sql("SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON'")
    [error] = kinds.of(own.settings().database).foresee(own.settings()).errors
    assert "PARTIAL_JSON" in str(error)


def one_phase(lab: BinlogLab, *statements: str) -> None:
    with lab.connected() as session, session.cursor() as cursor:
        for each in ("XA BEGIN 'x'", *statements, "XA END 'x'", "XA COMMIT 'x' ONE PHASE"):
            cursor.execute(each)


@pytest.mark.thorough("another way to commit")
def test_xa_in_one_phase_is_a_transaction_as_others(own: BinlogLab) -> None:
    """Its rows stand before what says that it is committed, and wait for that."""
    rows = INSERT.format(first=0, count=60, size=190)
    one_phase(own, rows, "INSERT INTO orders VALUES (500, 'x')", "DELETE FROM orders WHERE id < 5")
    stage = own.start("after-commit", cuts=SMALL)
    stage.wait_at("after-commit")
    stage.kill()
    assert own.progress()[1] > 0, "it was cut inside the transaction"
    one_phase(own, "INSERT INTO orders VALUES (600, 'y')")
    own.live(cuts=SMALL)
    assert own.check() == 66


@pytest.mark.thorough("a transaction that is not too large is in make test")
def test_xa_in_one_phase_that_is_too_large(own: BinlogLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST", 10_000)
    one_phase(own, INSERT.format(first=0, count=10, size=190))
    own.live()
    one_phase(own, INSERT.format(first=100, count=100, size=190))
    assert "more than 10000 bytes" in str(own.refusal())
    assert len(own.found()) == 10


@pytest.mark.thorough("another place at which a log goes on")
def test_a_position_at_the_end_of_a_file_that_nobody_has_closed(own: BinlogLab) -> None:
    """Behind it the server hands out the next file, which was begun at another time."""
    stage = own.start()
    stage.wait_for("claimed")
    own.sql("FLUSH BINARY LOGS")
    own.caught_up()
    assert stage.end() == 0
    own.server.kill()
    own.server.start()
    born = own.server.second()
    wait_until(lambda: own.server.second() > born, "another second begins")
    own.server.kill()
    own.server.start()
    own.live()
    insert(own, 0, 5)
    own.live()
    assert own.check() == 5


@pytest.mark.thorough("another place of what is noted")
def test_what_was_noted_may_be_in_a_file_that_is_gone(own: BinlogLab) -> None:
    """The position has followed the log into another file since, with what was noted of the last transaction."""
    insert(own, 0, 5)
    own.live()
    stage = own.start()
    stage.wait_for("claimed")
    own.sql("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    own.caught_up()
    assert stage.end() == 0
    file = own.end().split(":")[0]

    def is_gone() -> bool:
        own.sql(f"PURGE BINARY LOGS TO '{file}'")
        return bool(own.sql("SHOW BINARY LOGS")[0][0] == file)

    wait_until(is_gone, "the files before it are removed")
    insert(own, 100, 5)
    own.live()
    assert {dict(each.told.row)["id"] for each in own.found()} == {*range(1, 6), *range(101, 106)}


@pytest.mark.thorough("tests/binlog/test_refusals has a log that was begun anew")
def test_a_file_that_was_put_in_the_place_of_the_one_that_was_noted(own: BinlogLab) -> None:
    """Another server's log with the same server_uuid, as a copy of a machine has it."""
    insert(own, 0, 5)
    own.live()
    database = own.settings().database
    with_mark = kinds.of(database).connect(database)
    place = own.position()
    seen = with_mark.seen(place)
    assert seen.gtids == place.gtids
    assert place.gtids.startswith("ANONYMOUS ")
    other = place.moved(place.commit, 0, place.note.replace("ANONYMOUS 1", "ANONYMOUS 2"))
    assert with_mark.seen(other).gtids is None
    assert with_mark.seen(BinlogPosition(place.commit - 3, 0, place.log)).gtids is None, "no event begins there"
    with_mark.close()


@pytest.mark.parametrize("is_behind", [False, pytest.param(True, marks=pytest.mark.thorough("it is told what to do"))])
@pytest.mark.thorough("a replica that takes over by them is in make test")
def test_a_server_that_is_given_gtids(own: BinlogLab, is_behind: bool) -> None:
    """It does not hand out any more what it has logged without them."""
    insert(own, 0, 5)
    if not is_behind:
        own.live()
    own.sql("SET GLOBAL enforce_gtid_consistency = ON")
    own.sql(*(f"SET GLOBAL gtid_mode = {mode}" for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")))
    insert(own, 100, 5)
    if is_behind:
        refusal = own.refusal()
        assert refusal.reason is Reason.SOURCE_UNSUITABLE
        statement = re.search(r"SET GLOBAL [^,]*", refusal.remedy)
        assert statement is not None
        own.sql(statement[0])
    own.live()
    # Who prints the log is not handed it either.
    own.sql("SET GLOBAL gtid_mode = ON_PERMISSIVE")
    assert own.check() == 10


@pytest.mark.thorough("what becomes of others, and of no row")
def test_who_alters_a_table_as_its_snapshot_begins_is_not_kept_waiting(
    lab: BinlogLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for our lock, and we would wait behind it."""
    lab.sql(ORDERS)
    insert(lab, 0, 20)
    asked, threads = dialect._status, list[threading.Thread]()

    def altering(wire: Any) -> Any:
        found = asked(wire)
        if _locks(wire) and not threads:
            threads.append(threading.Thread(target=lab.sql, args=("ALTER TABLE orders ADD more int",)))
            threads[0].start()
            waiting = "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata%'"
            wait_until(lambda: lab.sql(waiting), "somebody waits")
        return found

    monkeypatch.setattr(dialect, "_status", altering)
    began = time.monotonic()
    assert "a lock on" in str(lab.refusal(database={"snapshot": True}))
    threads[0].join()
    assert time.monotonic() - began < 10, "not as long as a connection has patience"
    lab.live(database={"snapshot": True})
    assert lab.check_copy("orders") == 0


@pytest.mark.thorough("what a server may be told of its log")
def test_how_long_a_server_keeps_its_log(own: BinlogLab) -> None:
    def kept_s() -> int:
        database = own.settings().database
        with closing(kinds.of(database).connect(database)) as reader:
            return look.expires_s(reader.connected())

    assert kept_s() == 30 * 86_400
    own.sql("SET GLOBAL binlog_expire_logs_seconds = 3600")
    assert kept_s() == 3_600
    own.sql("SET GLOBAL binlog_expire_logs_auto_purge = OFF")
    assert kept_s() == 0, "for ever"


@pytest.mark.thorough("another way to log in")
@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
def test_a_password_is_never_sent_as_it_is(own: BinlogLab, plugin: str, tmp_path: Path) -> None:
    """Without TLS it is encrypted by the server's key."""
    own.sql(f"CREATE USER u IDENTIFIED WITH {plugin} BY 'secret'", "GRANT ALL ON *.* TO u")
    (tmp_path / "password").write_text("secret")
    connection = {"user": "u", "password_file": str(tmp_path / "password"), "server": own.server.address}
    settings = own.settings()
    insert(own, 0, 5)
    own.live(database={"connection": type(settings.binlog.connection)(**connection)})
    assert own.check() == 5


@pytest.mark.thorough("test_snapshot has a load with kills meanwhile")
def test_who_writes_waits_for_a_snapshot_a_moment(lab: BinlogLab) -> None:
    """Its locks are gone before it reads the first row."""
    lab.sql(ORDERS)
    insert(lab, 0, 5_000)
    stage = lab.start("snapshot-after-opening", database={"snapshot": True})
    stage.wait_at("snapshot-after-opening")
    with lab.connected() as session, session.cursor() as cursor:
        cursor.execute("SET lock_wait_timeout = 1")
        cursor.execute("INSERT INTO orders VALUES (10000, 'meanwhile')")
    stage.release("snapshot-after-opening")
    lab.caught_up()
    assert stage.end() == 0
    assert lab.check_copy("orders") == 1
