"""`make demo SOURCE=...`: a table that somebody changes all the time, its change topic, and a copy of it in PostgreSQL.

The stage is killed, the driver, the server. What the topic should have is told by the server itself: PostgreSQL's
through a second slot with test_decoding, MySQL's and MariaDB's by the program that prints the log. What the copy should
have is the table.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import yaml
from typing_extensions import override

from demo.audit import Audit, Broker
from demo.origins import BinlogOrigin, Origin, PostgresqlOrigin, rows_of, session_of
from demo.stage import DELIVERY_S, REACTION_S, START_S, Stage
from demo.story import Story
from deployed.cluster import Kubernetes
from readers.changes import Written, compared, place_of, told_by
from servers.mariadb import LocalMariadb
from servers.mysql import LocalMysql
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from soak.changes import Changes

COPY: Final = "public.orders"
SEED: Final = 7
MOST_KEYS: Final = 5_000
FIRST: Final = 8_000
"""Changes that are made before anybody reads them."""
STAGE_KILLS: Final = 3
_SIZES: Final = (1, 1, 2, 5, 20, 60, 200)
"""Of transactions, in changes."""
_ROLLED_BACK: Final = 0.1
"""Of transactions, those with a part that is."""
_PAUSE_S: Final = 0.25
_POLL_S: Final = 0.5
_AT_ONCE: Final = 3_000
"""Offsets in a batch, so that rows are seen soon."""


@contextmanager
def changes_demo(kind: str, story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path) -> Iterator[Stage]:
    """`kind`: of the source."""
    story.step("Starting a PostgreSQL server" + (", with wal_level = logical" if kind == "postgresql" else ""))
    with LocalPostgresql(settings={"wal_level": "logical"}) as target:
        story.say(f"it listens on {target.address}")
        with _origin(kind, story, target) as origin:
            demo = _ChangesDemo(story, broker, kubernetes, directory, origin, target)
            with demo.writer:
                yield demo


@contextmanager
def _origin(kind: str, story: Story, target: LocalPostgresql) -> Iterator[Origin[Any]]:
    """The server that is read: that of the copy, or one of another kind."""
    if kind == "postgresql":
        yield PostgresqlOrigin(target)
        return
    server = LocalMysql() if kind == "mysql" else LocalMariadb()
    story.step(f"Starting a {server.title} server, with binlog_row_metadata = FULL")
    with server:
        story.say(f"it listens on {server.address}")
        yield BinlogOrigin(server)


def _document(origin: Origin[Any], target: LocalPostgresql, broker: Broker) -> dict[str, Any]:
    """The example, with the servers of this machine; what it makes goes with it."""
    document: dict[str, Any] = yaml.safe_load(origin.example.read_text())
    spec = document["spec"]
    spec["deletionPolicy"] = "Delete"
    spec["trigger"]["maxOffsetsPerTrigger"] = _AT_ONCE
    [source] = spec["source"].values()
    source |= origin.source
    source["changes"]["bootstrapServers"] = broker.bootstrap_servers
    spec["source"] = {origin.kind: source}
    # It trusts whoever comes from this machine.
    spec["sinks"][0]["postgresql"] |= {"servers": target.address, "auth": {"username": SUPERUSER}}
    return document


class _Writer:
    """Changes a table in transactions of all sizes, in a thread, until it is told to stop; never stops by itself."""

    def __init__(self, origin: Origin[Any]) -> None:
        self.made = 0
        """Changes that are committed."""
        self._changes = Changes(SEED, MOST_KEYS)
        self._chance = random.Random(SEED)  # noqa: S311 - it is to be repeated
        self._origin = origin
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def make(self, count: int) -> None:
        with self._origin.session() as session:
            done = 0
            while done < count:
                done += self._transaction(session, min(self._chance.choice(_SIZES), count - done))

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """What was begun is committed. Raises what went wrong meanwhile."""
        self.__exit__()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with self._origin.session() as session:
                while not self._stopping.wait(_PAUSE_S):
                    self._transaction(session, self._chance.choice(_SIZES))
        except self._origin.errors as error:
            self._failure = error

    def _transaction(self, session: Any, size: int) -> int:
        # What is rolled back may be in the server's log too, and must not be in the topic.
        rolls_back = self._chance.random() < _ROLLED_BACK
        self._origin.commit(session, self._origin.statements(self._changes.next(size), rolls_back=rolls_back))
        self.made += size
        return size


class _ChangesDemo(Stage):
    def __init__(
        self,
        story: Story,
        broker: Broker,
        kubernetes: Kubernetes,
        directory: Path,
        origin: Origin[Any],
        target: LocalPostgresql,
    ) -> None:
        document = _document(origin, target, broker)
        super().__init__(story, broker, kubernetes, directory, document)
        self._origin, self._target = origin, target
        [source], [sink] = document["spec"]["source"].values(), document["spec"]["sinks"]
        self._database: str = sink["postgresql"]["database"]
        """Of the copy."""
        self._topic: str = source["changes"]["topic"]["name"]
        self._at_first: set[int] = set()
        """The keys that were there when the witness began."""
        self.writer = _Writer(origin)

    @override
    def play(self) -> None:
        self.fill()
        self.writer.start()
        self._story.say("from here on somebody changes it all the time")
        self.apply()
        self.read()
        self.kill_stage()
        self.kill_driver()
        self.kill_server()
        self.count()
        self.delete()
        self._story.table(self._audits, by="consumer and by the server itself")

    def fill(self) -> None:
        story, origin = self._story, self._origin
        story.step(f"A table {origin.table}, and what the server itself says of its changes")
        with session_of(self._target, DATABASE) as session:
            session.execute(f"CREATE DATABASE {self._database}".encode())
        origin.prepare()
        self.writer.make(FIRST)
        self._at_first = {row[0] for row in origin.rows()}
        story.say(f"{FIRST:,} changes are made; the table has {len(self._at_first):,} rows now")
        story.say(origin.watch())

    def read(self) -> None:
        """The tables first, then what changes."""
        story, kubernetes = self._story, self._kubernetes
        story.step("The rows that are there, and then the stream")
        kubernetes.wait_for("the snapshot is complete", DELIVERY_S, self._is_streaming, _POLL_S)
        self._show_source()
        copied = kubernetes.wait_for("rows are in the copy", DELIVERY_S, lambda: len(self._copy()) or None, _POLL_S)
        story.say(f"{copied:,} rows are in the copy, in the database {self._database}")

    def kill_stage(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("Killing the stage, which reads the database beside the driver")
        for _ in range(STAGE_KILLS):
            before = self._changes_told()
            kubernetes.wait_for("it delivers", DELIVERY_S, lambda: self._changes_told() > before or None)  # noqa: B023
            stage = kubernetes.wait_for("a stage lives", START_S, lambda: kubernetes.stage(self.name))
            stage.kill()
            story.say(f"kill -9 for process {stage.pid}, with {self._changes_told():,} changes in the topic")
            other = kubernetes.wait_for("another one lives", START_S, lambda: self._other_stage(stage.pid))  # noqa: B023
            story.say(f"the driver has started process {other.pid}")
        story.check("the driver lives", holds=not self._kubernetes.status(self.name).get("restarts", {}).get("total"))

    def kill_driver(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("Killing the driver, with its stage")
        killed = kubernetes.kill_driver(self.name)
        story.say(f"kill -9 for the driver, its JVM, its Python workers and the stage: {killed} processes")
        kubernetes.wait_for("the operator has noted it", REACTION_S, self._has_restarts)
        self._get()
        kubernetes.wait_for("the pipeline is Ready", START_S, self._is_ready, _POLL_S)
        story.say("the operator has started it again, and it is Ready")

    def kill_server(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("Killing the server")
        self.writer.stop()
        self._origin.server.kill()
        error = kubernetes.wait_for("the source tells of it", REACTION_S, self._unreachable)
        self._get("-o", "wide")
        story.check(f"the stage waits, and says why: {error['reason']}", holds=bool(error.get("remedy")))
        self._origin.server.start()
        story.say("the server runs again")
        self.writer.start()
        kubernetes.wait_for("the pipeline is Ready", START_S, self._is_ready, _POLL_S)
        before = self._changes_told()
        kubernetes.wait_for("it delivers", DELIVERY_S, lambda: self._changes_told() > before or None, _POLL_S)

    def count(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("Counting")
        self.writer.stop()
        story.say(f"nobody changes the table any more, after {self.writer.made:,} changes")
        kubernetes.wait_for("the copy is the table", START_S + DELIVERY_S, self._is_same, _POLL_S)
        self._show_source()
        self._audit_topic()
        table, copy = self._origin.rows(), self._copy()
        self._audited(
            "the copy, beside the table",
            Audit(
                expected=len(table),
                delivered=len(copy),
                duplicates=0,
                missing=len(table - copy),
                wrong=len(copy - table),
            ),
        )

    def delete(self) -> None:
        story = self._story
        story.step("Deleting the pipeline, with deletionPolicy: Delete")
        story.typed(f"kubectl delete sinkpipeline {self.name}")
        story.show(self._kubernetes.kubectl("delete", "sinkpipeline", self.name, f"--timeout={REACTION_S:.0f}s"))
        if self._origin.kind == "postgresql":
            self._events("SlotDropped")
        story.check(
            f"the server keeps nothing for it: {self._origin.left}",
            holds=self._origin.keeps_nothing() and self._broker.topic_id(self._topic) is None,
        )

    def _audit_topic(self) -> None:
        """Its rows, and its changes one by one, beside those that the server tells."""
        records = [*self._broker.committed(self._topic)]
        documents = [json.loads(each.value or b"{}") for each in records]
        read = Counter(each["after"]["id"] for each in documents if each["op"] == "r")
        found = [
            Written(self._origin.tellable(told_by(document)), place_of(document), record.partition, record.offset)
            for record, document in zip(records, documents, strict=True)
            if document["op"] != "r"
        ]
        # The rows of a snapshot stand just before the place where its stream begins.
        begin = max(place_of(each)[0] for each in documents if each["op"] == "r") + 1
        earlier, expected = self._origin.told(begin)
        keys = set(self._at_first)
        for each in earlier:
            key = dict(each.row)["id"]
            keys = keys - {key} if each.op == "d" else keys | {key}
        self._audited(
            "rows that were there, by the snapshot",
            Audit(
                expected=len(keys),
                delivered=read.total(),
                duplicates=read.total() - len(read),
                missing=len(keys - read.keys()),
                wrong=len(read.keys() - keys),
            ),
        )
        by_op = ", ".join(f"{count:,} {op}" for op, count in sorted(Counter(each.op for each in expected).items()))
        self._story.say(f"by the server itself, its changes since then are {by_op}")
        difference = compared(expected, found)
        self._audited(
            "changes, in the order of commits",
            Audit(
                expected=len(expected),
                delivered=len(found),
                duplicates=difference.duplicates,
                missing=difference.missing,
                wrong=difference.foreign + difference.disorder,
            ),
        )

    def _copy(self) -> set[tuple[Any, ...]]:
        try:
            return rows_of(self._target, self._database, COPY)
        except psycopg.errors.UndefinedTable:
            return set()

    def _is_same(self) -> bool | None:
        return self._origin.rows() == self._copy() or None

    def _source(self) -> dict[str, Any]:
        found: dict[str, Any] = self._kubernetes.status(self.name).get("source") or {}
        return found

    def _unreachable(self) -> dict[str, Any] | None:
        """The error of a stage whose server is away; on a busy machine it may have another one before."""
        error: dict[str, Any] = self._source().get("error") or {}
        return error if error.get("reason") == "SourceUnreachable" else None

    def _show_source(self) -> None:
        self._story.typed(f"kubectl get sinkpipeline {self.name} -o jsonpath='{{.status.source}}'")
        self._story.show(json.dumps(self._source()))

    def _is_streaming(self) -> bool | None:
        source = self._source()
        return (source.get("state") == "Running" and "position" in source and "snapshot" not in source) or None

    def _changes_told(self) -> int:
        return int(self._source().get("changes", 0))

    def _other_stage(self, pid: int) -> psutil.Process | None:
        stage = self._kubernetes.stage(self.name)
        return None if stage is None or stage.pid == pid else stage
