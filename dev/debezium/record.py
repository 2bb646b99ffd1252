"""Records the envelopes that tests decode: `make debezium`, then `PYTHONPATH=dev .venv/bin/python -m debezium.record`.

A real server, Debezium's embedded engine, Kafka Connect's own converters. Each file in `tests/data/debezium` is one
run: a line for each schema, `{"schema": N, "connect": ..., "avro": ...}`, before the first record of it, and a line for
each record, `{"topic", "key", "of": N, "payload", "body"}`: JSON as text, Avro in base64. A record with Connect's
wrapper is `{"schema":<connect>,"payload":<payload>}`. The last line of some has what the table had in the end.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from servers.local_process import HOST, cache_directory
from servers.mariadb import LocalMariadb
from servers.mysql import LocalMysql
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from servers.waiting import InVainError, wait_for

DATA = Path(__file__).parents[2] / "tests" / "data" / "debezium"
_DEADLINE_S = 60.0

BIG = "a value that is stored out of line "
"""More than a page's row takes, if it is repeated often enough."""

_TABLE = """
CREATE TABLE public.{name} (
  id bigint PRIMARY KEY, name text NOT NULL, small smallint, flag boolean, ratio double precision,
  price numeric(10,2), amount numeric, day date, at3 timestamp(3), at6 timestamp(6), at_zone timestamptz,
  clock time, clock_zone timetz, span interval, doc jsonb, raw bytea, uid uuid, tags text[], numbers int[], big text);
ALTER TABLE public.{name} SET (toast_tuple_target = 128);
ALTER TABLE public.{name} ALTER doc SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL,
  ALTER tags SET STORAGE EXTERNAL, ALTER numbers SET STORAGE EXTERNAL,
  ALTER big SET STORAGE EXTERNAL, ALTER amount SET STORAGE EXTERNAL
"""
_FULL_ROW = """
INSERT INTO public.{name} VALUES (
  {id}, 'a "name" \\ ä', -7, true, 0.1, -12345678.90, 123456789012345678.123456789, '2024-02-29',
  '1969-12-31 23:59:59.999', '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789012+02', '12:34:56.789012',
  '12:34:56.789012+02', '1 year 2 months 3 days 04:05:06.789', '{{"a": [1, null, "{big}"]}}',
  decode(repeat('00ff5c', 30), 'hex'),
  '123e4567-e89b-12d3-a456-426614174000', array[repeat('t', 60), null],
  array(SELECT generate_series(1, 40)), repeat('{big}', 60))
"""


class Recorder:
    """A connector that runs, and what it has told."""

    def __init__(self, properties: Mapping[str, str], directory: Path) -> None:
        jars = next(cache_directory().glob("debezium-*"), None)
        if jars is None:
            raise FileNotFoundError("no Debezium: make debezium")
        file = directory / "connector.properties"
        storage = {"offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore"}
        every = {"name": "recorder", "topic.prefix": "shop", **storage, **properties}
        file.write_text("".join(f"{name}={value}\n" for name, value in every.items()))
        self._log = (directory / "log").open("w")
        argv = ["java", "-Xmx512m", "-cp", f"{jars}/*", str(Path(__file__).with_name("Recorder.java")), str(file)]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.records: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            # One that was killed may leave a part of a line.
            if line.endswith("\n"):
                self.records.append(json.loads(line))

    def wait(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        """For a record with an envelope of which this is so."""

        def found() -> bool:
            if self._process.poll() is not None:
                raise RuntimeError(f"Debezium ended: {Path(self._log.name).read_text()[-3000:]}")
            return any(condition(json.loads(each["plain"])) for each in list(self.records) if each["plain"])

        try:
            wait_for(found, what, _DEADLINE_S)
        except InVainError as error:
            raise RuntimeError(f"{what}: {Path(self._log.name).read_text()[-3000:]}") from error

    def kill(self) -> None:
        """As a machine that goes; what it has told before is in `records`."""
        self._process.kill()

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


@contextmanager
def recording(properties: Mapping[str, str]) -> Iterator[Recorder]:
    with tempfile.TemporaryDirectory(prefix="debezium-") as directory:
        recorder = Recorder(properties, Path(directory))
        try:
            yield recorder
        finally:
            recorder.close()


def lines_of(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """As a file has them."""
    numbers: dict[str, int] = {}
    for each in records:
        line = {"topic": each["topic"], "key": each["key"]}
        if each["plain"] is not None:
            payload = each["plain"]
            connect = each["wrapped"].removeprefix('{"schema":').removesuffix(f',"payload":{payload}}}')
            if f'{{"schema":{connect},"payload":{payload}}}' != each["wrapped"]:
                raise ValueError(f"a wrapper that is not its parts: {each['wrapped']}")
            if connect not in numbers:
                numbers[connect] = len(numbers)
                yield json.dumps({"schema": numbers[connect], "connect": connect, "avro": each["avroSchema"]})
            line |= {"of": numbers[connect], "payload": payload, "body": each.get("avro")}
        yield json.dumps(line)


def write(name: str, records: Iterable[Mapping[str, Any]], *more: Any) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    lines = [*lines_of(records), *map(json.dumps, more)]
    (DATA / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


_CHANGES = """
UPDATE public.{name} SET name = 'big is as it was' WHERE id = 2;
UPDATE public.{name} SET big = NULL, doc = NULL, raw = NULL WHERE id = 2;
UPDATE public.{name} SET id = 12, name = 'another key' WHERE id = 1;
UPDATE public.{name} SET price = 'NaN', amount = 'NaN', at6 = 'infinity', day = '-infinity' WHERE id = 2;
UPDATE public.{name} SET price = 0, amount = -0.00001, at6 = '0001-01-01 BC', day = '9999-12-31' WHERE id = 2;
INSERT INTO public.{name} (id, name) VALUES (3, 'nulls');
DELETE FROM public.{name} WHERE id = 2
"""
_OF_ITEMS = """
ALTER TABLE public.items ADD added int DEFAULT 5, ALTER at3 TYPE timestamp(6), ALTER small TYPE bigint;
UPDATE public.items SET name = 'of the new schema', at3 = '2024-02-29 12:34:56.789' WHERE id = 3;
ALTER TABLE public.items DROP COLUMN ratio;
UPDATE public.items SET name = 'without ratio' WHERE id = 3;
SELECT pg_logical_emit_message(true, 'a prefix', 'a message');
TRUNCATE public.items;
INSERT INTO public.items (id, name) VALUES (-1, 'the end')
"""


def _postgresql_changes(sql: Callable[[str], Any]) -> None:
    for name in ("items", "whole"):
        sql(_FULL_ROW.format(name=name, id=2, big=BIG))
        for each in _CHANGES.format(name=name).split(";"):
            sql(each)
    for each in _OF_ITEMS.split(";"):
        sql(each)


_ORDERS = """
CREATE TABLE public.orders (
  id bigint PRIMARY KEY, name text NOT NULL, price numeric(10,2), at timestamptz(3), day date, big text);
ALTER TABLE public.orders ALTER big SET STORAGE EXTERNAL
"""


def _orders_changes(sql: Callable[[str], Any], chance: random.Random, count: int) -> None:
    """Of a few keys, so that one changes several times in a commit. A value out of line is of ten rows at most."""
    for at in range(count):
        key, other = chance.sample(range(1, 13), 2)
        values = {
            "name": f"'name {at} \\ ''ü'",
            "price": f"{chance.randrange(-(10**7), 10**7)} / 100.0",
            "at": f"'2024-02-29 12:00:00.{at:03}+01'",
            "day": f"date '1969-12-20' + {at}",
            "big": f"repeat(md5('{at}'), 66)" if chance.randrange(2) else f"'short {at}'",
        }
        match chance.randrange(12):
            case 0 | 1:
                sql(f"DELETE FROM public.orders WHERE id = {key}")  # noqa: S608 - of numbers alone
            case 2:
                sql(f"DELETE FROM public.orders WHERE id = {other}")  # noqa: S608 - likewise
                # With all values: of a key that changes, what is out of line is not told.
                changes = ", ".join(f"{name} = {each}" for name, each in values.items())
                sql(f"UPDATE public.orders SET id = {other}, {changes} WHERE id = {key}")  # noqa: S608 - likewise
            case 3 | 4 | 5 | 6 | 7:
                some = chance.sample(sorted(values), 2)
                changes = ", ".join(f"{name} = {values[name]}" for name in some)
                sql(f"UPDATE public.orders SET {changes} WHERE id = {key}")  # noqa: S608 - likewise
            case _:
                names, each = ", ".join(values), ", ".join(values.values())
                sql(
                    f"INSERT INTO public.orders (id, {names}) VALUES ({key}, {each}) ON CONFLICT (id) DO UPDATE SET "  # noqa: S608
                    "name = EXCLUDED.name"
                )


def _connector(server: LocalPostgresql, tables: str, settings: Mapping[str, str]) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": tables,
        "skipped.operations": "none",
        "database.hostname": HOST,
        "database.port": str(server.port),
        "database.user": SUPERUSER,
        "database.password": "any",
        "database.dbname": DATABASE,
        "slot.drop.on.stop": "true",
        **settings,
    }


def record_orders(count: int = 220) -> None:
    """Random changes, and in the last line what the table has then, as texts."""
    with LocalPostgresql(settings={"wal_level": "logical"}) as server:
        with psycopg.connect(
            f"host={HOST} port={server.port} user={SUPERUSER} dbname={DATABASE}", autocommit=True
        ) as session:

            def sql(text: str) -> Any:
                return session.execute(text.encode())

            for statement in _ORDERS.split(";"):
                sql(statement)
            chance = random.Random(4)  # noqa: S311 - the same changes each time
            _orders_changes(sql, chance, 20)
            with recording(_connector(server, "public.orders", {})) as recorder:
                recorder.wait("the snapshot is read", lambda it: it.get("source", {}).get("snapshot") == "last")
                _orders_changes(sql, chance, count)
                sql("DELETE FROM public.orders WHERE id = 1")
                sql("INSERT INTO public.orders (id, name) VALUES (1, 'the end')")
                recorder.wait("the last change", lambda it: (it.get("after") or {}).get("name") == "the end")
            sql("SET timezone = 'UTC'")
            rows = sql(
                "SELECT id::text, name, price::text, at::text, day::text, big FROM public.orders ORDER BY id"
            ).fetchall()
        without_avro = [{name: each[name] for name in each if name != "avro"} for each in recorder.records]
        write("postgresql-orders", without_avro, {"table": rows})


def record_postgresql(name: str, settings: Mapping[str, str]) -> None:
    with LocalPostgresql(settings={"wal_level": "logical"}) as server:
        with psycopg.connect(
            f"host={HOST} port={server.port} user={SUPERUSER} dbname={DATABASE}", autocommit=True
        ) as session:
            for table in ("items", "whole"):
                for statement in _TABLE.format(name=table).split(";"):
                    session.execute(statement.encode())
                session.execute(_FULL_ROW.format(name=table, id=1, big=BIG).encode())
            session.execute(b"ALTER TABLE public.whole REPLICA IDENTITY FULL")
            connector = _connector(server, "public.items,public.whole", settings)
            with recording(connector) as recorder:
                recorder.wait("the snapshot is read", lambda it: it.get("source", {}).get("snapshot") == "last")
                _postgresql_changes(lambda text: session.execute(text.encode()))
                recorder.wait("the last change", lambda it: (it.get("after") or {}).get("id") == -1)
        write(name, recorder.records)


_BINLOG_TABLE = """
CREATE TABLE shop.items (
  id bigint PRIMARY KEY, name varchar(100) NOT NULL, tiny tinyint(1), large bigint unsigned, ratio double,
  price decimal(10,2), wide decimal(60,10), day date, at0 datetime, at6 datetime(6), stamp timestamp(6) NULL,
  clock time(6), year year,
  doc json, raw varbinary(200), kind enum('a', 'b'), flags bit(5), big longtext)
"""
_BINLOG_ROW = """
INSERT INTO shop.items VALUES ({id}, 'a "name" \\\\ ä', 1, 18446744073709551615, 0.1, -12345678.90,
  12345678901234567890123456789012345678901234567890.1234567890, '2024-02-29', '1969-12-31 23:59:59',
  '2024-02-29 12:34:56.789012',
  '2024-02-29 12:34:56.789012', '-12:34:56.789012', 2024, '{{"a": [1, null]}}', x'00ff5c', 'b', b'10101', 'a text')
"""


def _binlog_changes(sql: Callable[[str], Any]) -> None:
    sql(_BINLOG_ROW.format(id=2))
    sql("UPDATE shop.items SET name = 'others are as they were' WHERE id = 2")
    sql("UPDATE shop.items SET id = 12, name = 'another key' WHERE id = 1")
    sql("INSERT INTO shop.items (id, name) VALUES (3, 'nulls')")
    sql("DELETE FROM shop.items WHERE id = 2")
    sql("ALTER TABLE shop.items ADD added int DEFAULT 5, MODIFY at0 datetime(6), DROP ratio")
    sql("UPDATE shop.items SET name = 'of the new schema', at0 = '2024-02-29 12:34:56.789' WHERE id = 3")
    sql("TRUNCATE shop.items")
    sql("INSERT INTO shop.items (id, name) VALUES (-1, 'the end')")


_CONNECTORS: Final = {
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
}


@contextmanager
def binlog(kind: str) -> Iterator[tuple[int, Callable[[str], Any]]]:
    """A server with a binary log: its port, and what runs a statement there."""
    # As a server has it that nobody has asked for more.
    metadata = "NO_LOG" if kind == "mariadb" else "MINIMAL"
    settings = {"log-bin": "binlog", "binlog-row-metadata": metadata, "character-set-server": "utf8mb4"}
    made = LocalMariadb if kind == "mariadb" else LocalMysql
    with made(settings=settings) as server, server.connected() as session, session.cursor() as cursor:
        yield server.port, cursor.execute


def record_binlog(kind: str) -> None:
    with binlog(kind) as (port, sql):
        sql("CREATE DATABASE shop")
        sql("CREATE USER 'debezium'@'%' IDENTIFIED BY 'any'")
        sql("GRANT ALL ON *.* TO 'debezium'@'%'")
        sql(_BINLOG_TABLE)
        sql(_BINLOG_ROW.format(id=1))
        connector = {
            "connector.class": _CONNECTORS[kind],
            "driver.allowPublicKeyRetrieval": "true",
            "database.hostname": HOST,
            "database.port": str(port),
            "database.user": "debezium",
            "database.password": "any",
            "database.server.id": "7",
            "table.include.list": "shop.items",
            "skipped.operations": "none",
            "include.schema.changes": "false",
            "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
        }
        with recording(connector) as recorder:
            recorder.wait("the snapshot is read", lambda it: it.get("source", {}).get("snapshot") == "last")
            _binlog_changes(sql)
            recorder.wait("the last change", lambda it: (it.get("after") or {}).get("id") == -1)
        write(kind, recorder.records)


RUNS: Mapping[str, Callable[[], None]] = {
    "postgresql": lambda: record_postgresql("postgresql", {}),
    "postgresql-texts": lambda: record_postgresql(
        "postgresql-texts", {"decimal.handling.mode": "string", "time.precision.mode": "isostring"}
    ),
    "postgresql-connect": lambda: record_postgresql(
        "postgresql-connect", {"decimal.handling.mode": "double", "time.precision.mode": "connect"}
    ),
    "postgresql-orders": record_orders,
    "mariadb": lambda: record_binlog("mariadb"),
    "mysql": lambda: record_binlog("mysql"),
}

if __name__ == "__main__":
    for run in sys.argv[1:] or RUNS:
        RUNS[run]()
