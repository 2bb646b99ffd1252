"""What a stage refuses of a MariaDB server: it stops, says why, and what it says helps."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.changes import kinds
from sinkpipeline.changes.binlog.reader import Reader
from sinkpipeline.changes.ports import Foreseen
from sinkpipeline.changes.settings import BinlogConnection, StageSettings
from sinkpipeline.core.changes.binlog_kinds import BINLOG_KINDS
from sinkpipeline.core.changes.checkpoints import Checkpoint, from_binlog
from sinkpipeline.core.changes.positions import parse_binlog
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId
from support.changes.binlog import BOTH, ORDERS, SERVERS, BinlogLab
from support.changes.binlog_load import insert
from support.changes.lab import CUT_AT_ONE, Killed, Life
from support.waiting import wait_until

pytestmark = pytest.mark.kafka


def foresee(settings: StageSettings) -> Foreseen:
    return kinds.of(settings.database).foresee(settings)


def reader(lab: BinlogLab) -> Reader:
    database = lab.settings().database
    found = kinds.of(database).connect(database)
    assert isinstance(found, Reader)
    return found


def remedy(lab: BinlogLab, **changes: Any) -> str:
    """Of a refusal of which `validate` says the same."""
    refusal = lab.refusal(**changes)
    assert refusal.reason is Reason.SOURCE_UNSUITABLE
    foreseen = foresee(lab.settings(**changes)).errors
    assert str(refusal) in [str(each) for each in foreseen]
    return refusal.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binlog_row_metadata", "MINIMAL"),
        pytest.param("binlog_format", "MIXED", marks=pytest.mark.thorough("another setting of the same kind")),
        pytest.param("binlog_row_image", "NOBLOB", marks=pytest.mark.thorough("another setting of the same kind")),
    ],
)
def test_a_server_that_logs_too_little(own: BinlogLab, name: str, value: str) -> None:
    own.sql(f"SET GLOBAL {name} = '{value}'")
    statement = re.search(r"SET GLOBAL [^,]*", remedy(own))
    assert statement is not None
    own.sql(statement[0])
    own.live()


@pytest.mark.thorough("what a server without a log says")
def test_a_server_without_a_log(kind: str, kafka: LocalKafka, tmp_path: Path) -> None:
    with SERVERS[kind](settings={"skip-log-bin": "1", "log-bin": "0"}) as server, server.connected() as session:
        session.cursor().execute("CREATE DATABASE d")
        lab = object.__new__(BinlogLab)
        lab.server, lab.kind, lab.servers = server, kind, kafka.bootstrap_servers
        lab.directory, lab.name, lab.identity, lab.tables = tmp_path, "d", "d", ()
        foreseen = foresee(lab.settings(database={"tables": ("d.orders",)})).errors
        assert "log_bin" in foreseen[0].remedy


def test_tables_that_are_not_there_or_can_not_be_copied(lab: BinlogLab) -> None:
    assert "create it" in remedy(lab)
    lab.sql(f"{ORDERS} ENGINE = MyISAM")
    told = remedy(lab, database={"snapshot": True})
    statement = re.search(r"ALTER TABLE [^;]*", told)
    assert statement is not None
    lab.sql(statement[0])
    lab.live(database={"snapshot": True})


@pytest.fixture
def user(lab: BinlogLab) -> Iterator[str]:
    name = lab.name[:30]
    lab.sql(ORDERS, f"CREATE USER '{name}'@'%' IDENTIFIED BY 'secret'")
    yield name
    lab.sql(f"DROP USER '{name}'@'%'")


@BOTH
def test_the_least_rights_each_taken_away(lab: BinlogLab, user: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    connection = BinlogConnection(server=lab.server.address, user=user, password_file=str(tmp_path / "password"))
    how: dict[str, Any] = {"connection": connection, "snapshot": True}
    rights = [f"SELECT ON {lab.name}.orders", "REPLICATION SLAVE ON *.*"]
    if lab.kind == "mysql":
        rights += [f"LOCK TABLES ON {lab.name}.*", "REPLICATION CLIENT ON *.*"]
    else:
        rights += ["BINLOG MONITOR ON *.*"]
    for missing in (*rights, None):
        lab.sql(f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM '{user}'@'%'")
        for each in rights:
            if each != missing:
                lab.sql(f"GRANT {each} TO '{user}'@'%'")
        if missing is None:
            lab.live(database=how)
            insert(lab, 0, 5)
            lab.live(database=how)
            assert lab.check_copy("orders") == 5
        else:
            refusal = lab.refusal(database=how)
            assert refusal.reason is Reason.SOURCE_UNSUITABLE, missing
            assert "GRANT" in refusal.remedy
            foreseen = kinds.of(lab.settings().database).foresee(lab.settings(database=how)).errors
            assert [each.reason for each in foreseen] == [Reason.SOURCE_UNSUITABLE], missing


def test_a_password_that_is_wrong(lab: BinlogLab, user: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("wrong")
    connection = BinlogConnection(server=lab.server.address, user=user, password_file=str(tmp_path / "password"))
    assert lab.refusal(database={"connection": connection}).reason is Reason.AUTHENTICATION_FAILED


def test_a_file_of_the_log_that_was_removed(own: BinlogLab) -> None:
    insert(own, 0, 10)
    own.sql("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    file = own.end().split(":")[0]

    def is_gone() -> bool:
        # A file that somebody reads stays, and the server learns a moment late that a reader has gone.
        own.sql(f"PURGE BINARY LOGS TO '{file}'")
        return bool(own.sql("SHOW BINARY LOGS")[0][0] == file)

    wait_until(is_gone, "the file is removed")
    refusal = own.refusal()
    assert refusal.reason is Reason.SOURCE_DATA_LOST
    assert f"has removed {own.server.log}.000001" in str(refusal)
    assert str(refusal) in [str(each) for each in foresee(own.settings()).errors]


@pytest.fixture
def anew(own: BinlogLab) -> BinlogLab:
    """Whose log has nothing before its first start."""
    lab = BinlogLab(own.server, own.servers, own.directory)
    lab.sql(ORDERS)
    lab.server.begin_log_anew()
    lab.live()
    return lab


@pytest.mark.parametrize(
    "is_inside", [False, pytest.param(True, marks=pytest.mark.thorough("inside of a transaction"))]
)
@pytest.mark.thorough("another server is told in tests/unit/test_binlog")
def test_a_log_that_was_begun_anew(anew: BinlogLab, is_inside: bool) -> None:
    """By the same steps: the same GTIDs are at the same places."""

    def at(event: dict[str, Any]) -> None:
        if is_inside and event["event"] == "committed" and event["rows"]:
            raise Killed

    insert(anew, 2_000_000, 800, 190)
    end = anew.end_of_log()
    anew.live(Life(at), cuts=CUT_AT_ONE)
    assert bool(anew.progress()[1]) == is_inside
    anew.server.begin_log_anew()
    assert anew.refusal().reason in (Reason.SOURCE_RECREATED, Reason.SOURCE_ROLLED_BACK)
    insert(anew, 3_000_000, 800, 190)
    assert anew.end_of_log() == end, "each transaction is where one was"
    refusal = anew.refusal()
    assert refusal.reason is Reason.SOURCE_RECREATED
    assert "begun at another time" in str(refusal)
    assert BINLOG_KINDS[anew.kind].anew in refusal.remedy
    assert {dict(each.told.row)["id"] // 1_000_000 for each in anew.found()} == {2}


@pytest.mark.thorough("tests/unit/test_binlog compares them")
def test_another_log_whose_gtids_are_others(anew: BinlogLab) -> None:
    """A start says it before anything is read, and so does `validate`."""
    insert(anew, 0, 10)
    anew.live()
    anew.server.begin_log_anew()
    if anew.kind == "mariadb":
        anew.sql("SET GLOBAL gtid_domain_id = 7")
    insert(anew, 20, 10)
    [error] = foresee(anew.settings()).errors
    assert error.reason is Reason.SOURCE_RECREATED
    assert str(anew.refusal()) == str(error)


@pytest.mark.thorough("another thing that tells a server")
def test_another_server(own: BinlogLab) -> None:
    """MariaDB's GTIDs tell that its log is the one that was read; MySQL gives none here."""
    insert(own, 0, 5)
    own.live()
    if own.kind == "mariadb":
        own.sql("SET GLOBAL server_id = 77")
        insert(own, 100, 5)
        own.live()
        assert own.check() == 10
        return
    own.server.kill()
    (own.server.directory / "data/auto.cnf").unlink()
    own.server.start()
    refusal = own.refusal()
    assert refusal.reason is Reason.SOURCE_RECREATED
    assert f"{BINLOG_KINDS[own.kind].identified_by} was " in str(refusal)


def test_changes_that_are_logged_as_text(own: BinlogLab) -> None:
    with own.connected() as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE others (id int PRIMARY KEY)")
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute("INSERT INTO others VALUES (1)")
    own.live()
    with own.connected() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute("INSERT INTO orders VALUES (1, 'as text')")
    refusal = own.refusal()
    assert refusal.reason is Reason.SOURCE_UNSUITABLE
    assert "INSERT INTO orders ..." in str(refusal)
    assert "as text" not in str(refusal), "a status is no place for values"
    assert own.found() == []


@pytest.mark.thorough("rows that are changed and not logged are told in one way; tests/unit/test_binlog has it")
def test_a_cascade_that_comes_with_another_table(own: BinlogLab) -> None:
    """Nothing in RENAME says it."""
    own.sql("CREATE TABLE parents (id bigint PRIMARY KEY)")
    if own.sql("SHOW VARIABLES LIKE 'innodb_native_foreign_keys'"):
        pytest.skip("it logs what a foreign key does")
    own.live()
    key = "FOREIGN KEY (id) REFERENCES parents (id) ON DELETE CASCADE"
    own.sql(f"CREATE TABLE other (id bigint PRIMARY KEY, note varchar(200), {key})")
    own.live()
    own.sql("RENAME TABLE orders TO former, other TO orders")
    assert "ON DELETE CASCADE" in str(own.refusal())


@pytest.mark.thorough("tests/unit/test_binlog has the texts")
def test_a_table_whose_comment_speaks_of_cascades(own: BinlogLab) -> None:
    own.sql("ALTER TABLE orders COMMENT 'no foreign key has ON DELETE CASCADE', ADD x int COMMENT 'ON UPDATE SET NULL'")
    own.live()


@pytest.mark.parametrize(
    "kind",
    ["mysql", pytest.param("mariadb", marks=pytest.mark.thorough("its GTIDs mean something in each file"))],
    indirect=True,
)
@pytest.mark.thorough("test_a_log_that_was_begun_anew is in make test")
def test_another_log_where_the_position_has_followed_into_a_later_file(own: BinlogLab) -> None:
    """Nothing of ours is in that file: when it was begun is what tells."""
    stage = own.start()
    stage.wait_for("claimed")
    own.sql(*["FLUSH BINARY LOGS"] * 3)
    own.caught_up()
    assert stage.end() == 0
    own.server.begin_log_anew()
    insert(own, 100, 5)
    own.sql(*["FLUSH BINARY LOGS"] * 5)
    refusal = own.refusal()
    assert refusal.reason is Reason.SOURCE_RECREATED
    assert own.found() == []


@pytest.mark.thorough("waits for two looks of a stage")
@BOTH
def test_a_log_that_is_begun_anew_while_it_is_read(own: BinlogLab) -> None:
    """The server goes on with the connection as if nothing had happened."""
    insert(own, 0, 500, 190)
    stage = own.start()
    stage.wait_for("claimed")
    own.caught_up()
    own.server.begin_log_anew()
    own.sql("INSERT INTO orders VALUES (600, 'anew')")
    assert stage.wait() in (1, 3)
    assert stage.error["reason"] in ("SourceRolledBack", "SourceRecreated", "SourceUnreachable")


@pytest.mark.thorough("tests/unit/test_binlog has the statement")
def test_a_file_that_is_loaded_as_text(own: BinlogLab) -> None:
    """The log has the file too, piece by piece; of another table that is nothing to us."""
    own.sql("CREATE TABLE others (id int PRIMARY KEY)")
    file = own.server.directory / "rows"
    file.write_text("".join(f"{number}\n" for number in range(1, 200_000)))
    load = f"LOAD DATA INFILE '{file}' INTO TABLE {{}} (id)"
    with own.connected() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute(load.format("others"))
    insert(own, 0, 3)
    own.live()
    assert own.check() == 3
    with own.connected() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute(load.format("orders").replace("INTO", "REPLACE INTO"))
    assert "LOAD DATA" in str(own.refusal())


@pytest.mark.thorough("a rare table")
def test_rows_that_the_engine_changes_by_itself(own: BinlogLab) -> None:
    """What a foreign key does is not in the log: no row of it would be told."""
    makes = "CREATE TABLE {} (id int PRIMARY KEY, nr bigint, FOREIGN KEY (nr) REFERENCES orders (id) {})"
    own.sql(makes.format("others", "ON DELETE CASCADE"), "INSERT INTO orders VALUES (1, 'x')")
    own.live()
    own.tables = ("orders", "bare")
    own.sql(makes.format("bare", "ON DELETE RESTRICT"), "INSERT INTO bare VALUES (1, 1)")
    own.live()
    own.sql("ALTER TABLE bare ADD FOREIGN KEY (nr) REFERENCES orders (id) ON UPDATE  SET NULL")
    if own.sql("SHOW VARIABLES LIKE 'innodb_native_foreign_keys'"):
        own.sql("ALTER TABLE bare DROP FOREIGN KEY bare_ibfk_1", "UPDATE orders SET id = 2 WHERE id = 1")
        own.live()
        own.check_tables("orders", "bare")
        return
    [error] = foresee(own.settings()).errors
    assert f"{own.name}.bare has a foreign key with ON UPDATE SET NULL" in str(error)
    assert str(own.refusal()) == str(error)


@pytest.mark.thorough("what a server may be told not to log")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"binlog-ignore-db": "hidden"}, "binlog_ignore_db"),
        ({"binlog-do-db": "other"}, "binlog_do_db"),
        ({"binlog-ignore-db": "mysql"}, "chosen another database"),
    ],
)
def test_a_database_that_is_not_logged(
    kind: str, kafka: LocalKafka, tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    with SERVERS[kind](settings=settings) as server:
        lab = BinlogLab(server, kafka.bootstrap_servers, tmp_path, name="hidden")
        lab.sql(ORDERS)
        [error] = foresee(lab.settings()).errors
        assert says in str(error)
        assert str(lab.refusal()) == str(error)
        with lab.connected("mysql") as session, session.cursor() as cursor:
            cursor.execute("INSERT INTO hidden.orders VALUES (1, 'x')")
            cursor.execute("TRUNCATE hidden.orders")
        logged = server.run(server.printer, "--base64-output=DECODE-ROWS", "-v", str(server.written()))
        # Rows go by their table, and a statement by what the session has chosen.
        assert ("INSERT INTO `hidden`.`orders`" in logged) == (settings.get("binlog-ignore-db") == "mysql")
        assert ("TRUNCATE" in logged) == (settings.get("binlog-ignore-db") == "hidden")


@BOTH
@pytest.mark.thorough("a rival is in test_kills")
def test_another_reader_of_the_same_number(own: BinlogLab) -> None:
    with closing(reader(own)) as first, closing(reader(own)) as second:
        events = first.read(first.seen().end, 0)
        assert next(events) is not None
        others = second.read(second.seen().end, 0)
        assert next(others) is not None
        with pytest.raises(SinkPipelineError, match="serverId") as raised:
            deque(events, maxlen=0)
    assert raised.value.reason is Reason.SOURCE_UNREACHABLE


@pytest.mark.parametrize("kind", [pytest.param("mariadb", id="")], indirect=True)
@pytest.mark.thorough("how a server may take names")
def test_a_table_in_other_capitals(kind: str, kafka: LocalKafka, tmp_path: Path) -> None:
    """The log has the server's: whoever is added by another name would never be read."""
    with SERVERS[kind](settings={"lower-case-table-names": "1"}) as server:
        lab = BinlogLab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql(ORDERS, "CREATE TABLE Items (id int PRIMARY KEY, note text)")
        lab.live()
        lab.tables = ("orders", "Items")
        told = remedy(lab)
        assert f"write {lab.name}.items into" in told
        lab.tables = ("orders", "items")
        lab.live()


@pytest.mark.thorough("what a server may be told to do")
def test_a_server_that_goes_on_without_its_log(own: BinlogLab) -> None:
    if own.kind == "mariadb":
        pytest.skip("MySQL alone has a setting for it")
    own.sql("SET GLOBAL binlog_error_action = 'IGNORE_ERROR'")
    statement = re.search(r"SET GLOBAL [^,]*", remedy(own))
    assert statement is not None
    own.sql(statement[0])
    own.live()


@pytest.mark.thorough("what a server may be told not to log")
def test_a_replica_that_does_not_log_what_it_gets(kind: str, kafka: LocalKafka, tmp_path: Path) -> None:
    off = {"log-replica-updates" if kind == "mysql" else "log-slave-updates": "OFF"}
    with SERVERS[kind](settings=off) as server:
        lab = BinlogLab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql(ORDERS)
        lab.live()
        source = "REPLICATION SOURCE TO SOURCE_HOST" if kind == "mysql" else "MASTER TO MASTER_HOST"
        lab.sql(f"CHANGE {source} = '127.0.0.1'")
        if kind == "mariadb":
            lab.live()
            # As where the other server has no GTIDs: that it replicates is all that it says.
            lab.sql("SET GLOBAL server_id = 7", "START SLAVE")
            assert BINLOG_KINDS[kind].relays in foresee(lab.settings()).errors[0].remedy
            lab.sql("STOP SLAVE", "SET GLOBAL gtid_slave_pos = '5-9-7'")
        [error] = foresee(lab.settings()).errors
        assert BINLOG_KINDS[kind].relays in error.remedy
        assert str(lab.refusal()) == str(error)


@pytest.mark.thorough("the one that is there at a start is in make test")
def test_a_foreign_key_that_is_made_while_a_stage_reads(own: BinlogLab) -> None:
    stage = own.start()
    stage.wait_for("claimed")
    own.sql("CREATE TABLE parents (id bigint PRIMARY KEY)")
    own.sql("ALTER TABLE orders ADD FOREIGN KEY (id) REFERENCES parents (id) ON DELETE CASCADE")
    if own.sql("SHOW VARIABLES LIKE 'innodb_native_foreign_keys'"):
        own.sql("INSERT INTO parents VALUES (1)", "INSERT INTO orders VALUES (1, 'x')", "DELETE FROM parents")
        own.caught_up()
        assert stage.end() == 0
        own.check_tables("orders")
        return
    assert stage.wait() == 3
    assert "ON DELETE CASCADE" in stage.error["message"]


@pytest.mark.thorough("a rare transaction")
def test_an_xa_transaction_that_is_prepared_before_a_first_start(own: BinlogLab) -> None:
    """Its rows are before the beginning, and its COMMIT, behind that, says nothing of them."""
    lab = BinlogLab(own.server, own.servers, own.directory)
    lab.sql(ORDERS)
    with lab.connected() as session, session.cursor() as cursor:
        for each in ("XA BEGIN 'x'", "INSERT INTO orders VALUES (1, 'x')", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(each)
    assert "XA RECOVER" in remedy(lab)
    lab.sql("XA COMMIT 'x'")
    lab.live()
    insert(lab, 10, 5)
    lab.live()
    assert len(lab.found()) == 5


def prepare_xa(lab: BinlogLab) -> None:
    with lab.connected() as session, session.cursor() as cursor:
        for each in ("XA BEGIN 'x'", "INSERT INTO orders VALUES (2, 'x')", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(each)


@pytest.mark.parametrize("point", ["stage-after-meta", "snapshot-before-complete"])
@pytest.mark.thorough("another moment", after=1)
@pytest.mark.thorough("a rare transaction")
def test_an_xa_transaction_that_is_prepared_before_a_snapshot_is_waited_for(own: BinlogLab, point: str) -> None:
    """A first start has looked for them before; one that begins a snapshot anew never has."""
    lab = BinlogLab(own.server, own.servers, own.directory)
    lab.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a')")
    stage = lab.start(point, database={"snapshot": True})
    stage.wait_at(point)
    if point == "snapshot-before-complete":
        stage.kill()
        prepare_xa(lab)
        stage = lab.start(database={"snapshot": True})
    else:
        prepare_xa(lab)
        stage.release(point)
    assert stage.wait() == 1, stage.log
    assert stage.error["reason"] == "SourceUnreachable"
    assert "XA RECOVER" in stage.error["remedy"]
    lab.sql("XA COMMIT 'x'")
    lab.live(database={"snapshot": True})
    lab.check_tables("orders")


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
@pytest.mark.thorough("a rare transaction")
def test_one_that_is_prepared_and_committed_while_a_snapshot_begins(own: BinlogLab) -> None:
    """Nothing but the log tells of it then. (MySQL's has the tables locked meanwhile.)"""
    lab = BinlogLab(own.server, own.servers, own.directory)
    lab.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a')")
    database = lab.settings().database
    with closing(kinds.of(database).connect(database)) as reader, closing(reader.connected()) as wire:
        ask = wire.rows

        def rows(statement: str, *more: Any) -> Any:
            found = ask(statement, *more)
            if statement == "XA RECOVER":
                prepare_xa(lab)
            if statement.startswith("START TRANSACTION"):
                lab.sql("XA COMMIT 'x'")
            return found

        wire.rows = rows
        with pytest.raises(SinkPipelineError, match="XA transactions that are prepared"):
            reader.dialect.snapshot(wire, [f"{lab.name}.orders"], reader.connected, begins=True)


@pytest.mark.thorough("validate is in make test")
def test_start_from_the_middle_of_a_transaction(own: BinlogLab) -> None:
    """It is refused before anything is noted, so that a corrected one counts."""
    begin = own.end()
    insert(own, 100, 3)
    [(events)] = [own.sql(f"SHOW BINLOG EVENTS IN '{begin.split(':')[0]}' FROM {begin.split(':')[1]}")]
    inside = f"{events[2][0]}:{events[2][1]}"
    lab = BinlogLab(own.server, own.servers, own.directory)
    lab.sql(ORDERS)
    error = lab.refusal(database={"start_from": from_binlog(inside)})
    assert error.reason is Reason.SOURCE_RECREATED
    assert "no event begins" in error.message or "startFrom names" in error.message
    lab.live(database={"start_from": from_binlog(begin)})


def test_old_times_with_a_fraction_and_versioned_tables_are_told(lab: BinlogLab) -> None:
    if lab.kind == "mysql":
        pytest.skip("MariaDB alone has it")
    lab.tables = ("old",)
    lab.sql("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        lab.sql("CREATE TABLE old (id int PRIMARY KEY, at datetime(6), plain datetime)")
    finally:
        lab.sql("SET GLOBAL mysql56_temporal_format = ON")
    told = remedy(lab)
    assert "MODIFY `at` datetime(6)" in told
    lab.sql(told[told.index("ALTER TABLE") :].split(";")[0])
    lab.live()
    lab.tables = ("versioned",)
    lab.sql("CREATE TABLE versioned (id int PRIMARY KEY) WITH SYSTEM VERSIONING")
    other = replace(lab.settings(database={"snapshot": True}), id=SinkId(lab.name, "other"))
    assert any("system-versioned" in str(each) for each in kinds.of(other.database).foresee(other).errors)


@pytest.mark.thorough("a rare transaction")
def test_the_first_half_of_an_xa_transaction(own: BinlogLab) -> None:
    """Its rows are in the log before anybody knows what becomes of them."""
    own.sql("CREATE TABLE others (id int PRIMARY KEY)")
    for statement in ("INSERT INTO others VALUES (1)", "INSERT INTO orders VALUES (1, 'perhaps')"):
        with own.connected() as session, session.cursor() as cursor:
            for each in ("XA BEGIN 'x'", statement, "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"):
                cursor.execute(each)
        if "others" in statement:
            own.live()
    refusal = own.refusal()
    assert refusal.reason is Reason.SOURCE_UNSUITABLE
    assert "XA" in str(refusal)
    assert own.found() == []


@pytest.mark.thorough("another setting of a session")
def test_rows_of_a_session_that_logs_less(own: BinlogLab) -> None:
    """An update is told by what is logged of it; of an insertion, what is not logged is nowhere."""
    own.sql("ALTER TABLE orders ADD more int DEFAULT 5", "INSERT INTO orders VALUES (1, 'whole', 1), (2, 'x', 2)")
    with own.connected() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
        cursor.execute("UPDATE orders SET note = 'new' WHERE id = 1")
        cursor.execute("UPDATE orders SET id = 3 WHERE id = 2")
    own.live()
    documents = [each.record.document for each in own.found()][2:]
    assert documents[0]["after"] == {"note": "new"}
    assert documents[0]["unchanged"] == ["id", "more"]
    assert [each["op"] for each in documents] == ["u", "d", "c"]
    assert (documents[1]["before"], documents[2]["after"]) == ({"id": 2}, {"id": 3})
    with own.connected() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
        cursor.execute("INSERT INTO orders (id) VALUES (9)")
    assert "binlog_row_image" in own.refusal().remedy


@pytest.mark.thorough("a start by hand")
def test_where_a_start_goes_on_with_what_another_program_has_read(own: BinlogLab) -> None:
    insert(own, 0, 5)
    place = own.end()
    insert(own, 100, 5)
    lab = BinlogLab(own.server, own.servers, own.directory)
    lab.sql("CREATE TABLE orders LIKE " + own.name + ".orders")
    lab.name, other = own.name, lab.name
    start = {"start_from": Checkpoint(at=parse_binlog(place))}
    mine = replace(own.settings(database=start), id=replace(own.settings().id, identity=other))
    told = foresee(mine).told
    assert place in told[-1]
    assert told[0].startswith("warning: sync_binlog is 0"), "the server of tests need not be safe"
    wrong = {"start_from": Checkpoint(at=parse_binlog(f"{own.server.log}.000001:5"))}
    refused = foresee(replace(mine, database=own.settings(database=wrong).database)).errors
    assert refused[0].reason is Reason.SOURCE_RECREATED
    ahead = {"start_from": Checkpoint(at=parse_binlog(f"{own.server.log}.000009:5"))}
    refused = foresee(replace(mine, database=own.settings(database=ahead).database)).errors
    assert refused[0].reason is Reason.SOURCE_ROLLED_BACK
