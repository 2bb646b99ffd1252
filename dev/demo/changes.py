"""`make demo SOURCE=postgresql`: a table that somebody changes all the time, its change topic, and a copy of it.

The stage is killed, the driver, the server. What the topic should have is told by the server itself, through a second
slot with test_decoding, and what the copy should have is the table.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import yaml
from typing_extensions import override

from demo.audit import Audit, Broker
from demo.stage import DELIVERY_S, REACTION_S, START_S, Stage
from demo.story import Story
from deployed.cluster import ROOT, Kubernetes
from readers.changes import CREATE, PEEK, Written, compared, place_of, split, told_by
from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from soak.changes import COLUMNS, Changes

EXAMPLE: Final = ROOT / "examples" / "orders-changes.yaml"
TABLE: Final = "public.orders"
SEED: Final = 7
MOST_KEYS: Final = 5_000
FIRST: Final = 8_000
"""Changes that are made before anybody reads them."""
STAGE_KILLS: Final = 3
WITNESS: Final = "demo_witness"
"""The slot of test_decoding."""
_KEYS: Final = f"SELECT id FROM {TABLE}".encode()  # noqa: S608 - the example's name
_COUNT: Final = f"SELECT count(*) FROM {TABLE}".encode()  # noqa: S608 - likewise
_ROWS: Final = f"SELECT {', '.join(f'{name}::text' for name in COLUMNS)} FROM {TABLE}".encode()  # noqa: S608 - likewise
_NEVER: Final = f"INSERT INTO {TABLE} (id, name) VALUES (-1, 'never')".encode()  # noqa: S608 - likewise
_SIZES: Final = (1, 1, 2, 5, 20, 60, 200)
"""Of transactions, in changes."""
_ROLLED_BACK: Final = 0.1
"""Of transactions, those with a part that is."""
_PAUSE_S: Final = 0.25
_POLL_S: Final = 0.5
_AT_ONCE: Final = 3_000
"""Offsets in a batch, so that rows are seen soon."""


@contextmanager
def changes_demo(story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path) -> Iterator[Stage]:
    story.step("Starting a PostgreSQL server, with wal_level = logical")
    with LocalPostgresql(settings={"wal_level": "logical"}) as server:
        story.say(f"it listens on {server.address}")
        demo = _ChangesDemo(story, broker, kubernetes, directory, _document(server, broker), server)
        with demo.writer:
            yield demo


def _document(server: LocalPostgresql, broker: Broker) -> dict[str, Any]:
    """The example, with the servers of this machine; what it makes goes with it."""
    document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    spec = document["spec"]
    spec["deletionPolicy"] = "Delete"
    spec["trigger"]["maxOffsetsPerTrigger"] = _AT_ONCE
    # It trusts whoever comes from this machine.
    ours = {"servers": server.address, "auth": {"username": SUPERUSER}}
    spec["source"]["postgresql"] |= ours
    spec["source"]["postgresql"]["changes"]["bootstrapServers"] = broker.bootstrap_servers
    spec["sinks"][0]["postgresql"] |= ours
    return document


class _Writer:
    """Changes a table in transactions of all sizes, in a thread, until it is told to stop; never stops by itself."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self.made = 0
        """Changes that are committed."""
        self._changes = Changes(SEED, MOST_KEYS)
        self._chance = random.Random(SEED)  # noqa: S311 - it is to be repeated
        self._connect = connect
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
        with self._connect() as session:
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
            with self._connect() as session:
                while not self._stopping.wait(_PAUSE_S):
                    self._transaction(session, self._chance.choice(_SIZES))
        except psycopg.Error as error:
            self._failure = error

    def _transaction(self, session: psycopg.Connection[Any], size: int) -> int:
        with session.transaction(), session.pipeline():
            for each in self._changes.next(size):
                session.execute(each.sql.format(table=TABLE).encode(), each.values)
            if self._chance.random() < _ROLLED_BACK:
                # What is rolled back is in the server's log too, and must not be in the topic.
                session.execute("SAVEPOINT s")
                session.execute(_NEVER)
                session.execute("ROLLBACK TO s")
        self.made += size
        return size


class _ChangesDemo(Stage):
    def __init__(
        self,
        story: Story,
        broker: Broker,
        kubernetes: Kubernetes,
        directory: Path,
        document: dict[str, Any],
        server: LocalPostgresql,
    ) -> None:
        super().__init__(story, broker, kubernetes, directory, document)
        self._server = server
        source, sink = document["spec"]["source"]["postgresql"], document["spec"]["sinks"][0]["postgresql"]
        self._origin: str = source["database"]
        self._target: str = sink["database"]
        self._topic: str = source["changes"]["topic"]["name"]
        self._at_first: set[int] = set()
        """The keys that were there when the witness began."""
        self.writer = _Writer(lambda: self._session(self._origin))

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
        self._story.table(self._audits, by="consumer and by the server's own decoding")

    def fill(self) -> None:
        story = self._story
        story.step(f"A table {TABLE} of the database {self._origin}, and what the server itself says of its changes")
        with self._session(DATABASE) as session:
            for each in (self._origin, self._target):
                session.execute(f"CREATE DATABASE {each}".encode())
        with self._session(self._origin) as session:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            session.execute(f"CREATE TABLE {TABLE} ({columns})".encode())
        self.writer.make(FIRST)
        with self._session(self._origin) as session:
            self._at_first = {key for (key,) in session.execute(_KEYS)}
            session.execute(CREATE, (WITNESS,))
        story.say(f"{FIRST:,} changes are made; the table has {len(self._at_first):,} rows now")
        story.say(f"a slot {WITNESS} with the plugin test_decoding notes what comes from here on")

    def read(self) -> None:
        """The tables first, then what changes."""
        story, kubernetes = self._story, self._kubernetes
        story.step("The rows that are there, and then the stream")
        kubernetes.wait_for("the snapshot is complete", DELIVERY_S, self._is_streaming, _POLL_S)
        self._show_source()
        kubernetes.wait_for("rows are in the copy", DELIVERY_S, lambda: self._copied() > 0 or None, _POLL_S)
        story.check(f"{self._copied():,} rows are in the copy, in the database {self._target}", holds=True)

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
        self._server.kill()
        error = kubernetes.wait_for("the source tells of it", REACTION_S, self._unreachable)
        self._get("-o", "wide")
        story.check(f"the stage waits, and says why: {error['reason']}", holds=bool(error.get("remedy")))
        self._server.start()
        story.say("the server runs again; it may have forgotten how far its slot was confirmed")
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
        table, copy = self._rows(self._origin), self._rows(self._target)
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
        self._events("SlotDropped")
        with self._session(self._origin) as session:
            slots = [name for (name,) in session.execute("SELECT slot_name FROM pg_replication_slots")]
            publications = session.execute("SELECT pubname FROM pg_publication").fetchall()
        story.check(
            "the server keeps nothing for it: its slot, its publication and its topic are gone",
            holds=slots == [WITNESS] and not publications and self._broker.topic_id(self._topic) is None,
        )

    def _audit_topic(self) -> None:
        """Its rows, and its changes one by one, beside those that the server tells."""
        records = [*self._broker.committed(self._topic)]
        documents = [json.loads(each.value or b"{}") for each in records]
        read = Counter(each["after"]["id"] for each in documents if each["op"] == "r")
        found = [
            Written(told_by(document), place_of(document), record.partition, record.offset)
            for record, document in zip(records, documents, strict=True)
            if document["op"] != "r"
        ]
        # The rows of a snapshot stand just before the place where its stream begins.
        begin = max(place_of(each)[0] for each in documents if each["op"] == "r") + 1
        with self._session(self._origin) as session:
            earlier, expected = split(session.execute(PEEK, (WITNESS,)), begin)
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
        self._story.say(f"by the server's own decoding, its changes since then are {by_op}")
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

    def _session(self, database: str) -> psycopg.Connection[Any]:
        """In which each statement is a transaction."""
        return psycopg.connect(
            host=HOST,
            port=self._server.port,
            user=SUPERUSER,
            dbname=database,
            autocommit=True,
            options="-c timezone=UTC",
        )

    def _rows(self, database: str) -> set[tuple[Any, ...]]:
        with self._session(database) as session:
            return set(session.execute(_ROWS))

    def _copied(self) -> int:
        try:
            with self._session(self._target) as session:
                [(count,)] = session.execute(_COUNT).fetchall()
                return int(count)
        except psycopg.errors.UndefinedTable:
            return 0

    def _is_same(self) -> bool | None:
        return self._rows(self._origin) == self._rows(self._target) or None

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
