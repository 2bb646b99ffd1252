"""A database, its slots, and a stage that reads it: as a process that can be killed, or in this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from typing_extensions import override

from readers.changes import CREATE, PEEK, Told, lsn_of, split
from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from servers.waiting import Patience
from sinkpipeline.changes.settings import DatabaseSettings, Publication, Slot, StageSettings, to_json
from sinkpipeline.changes.stage import Stage
from sinkpipeline.core.changes.positions import from_record
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.postgresql.settings import Connection as DatabaseConnection
from support.changes.oracle import InTopic, check, folded, in_topic
from support.kafka.topics import progress_truth, read_committed, unique
from support.waiting import wait_until

LOGICAL = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}
_END_S = 60.0


class Life(threading.Event):
    """What a stage in this process tells; it ends where a test raises in `at`."""

    def __init__(self, at: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []
        self._at = at

    def say(self, event: str, **fields: Any) -> None:
        told = {"event": event, **json.loads(json.dumps(fields))}
        self.told.append(told)
        self._at(told)


class Killed(BaseException):
    """The end of a life in this process, as of a process that was killed: nothing is committed on the way out."""


class StageProcess:
    """A stage as its driver starts it."""

    def __init__(self, directory: Path, settings: StageSettings, failpoints: tuple[str, ...] = ()) -> None:
        self.directory = directory / uuid.uuid4().hex[:8]
        self.directory.mkdir(parents=True)
        for name in failpoints:
            (self.directory / name).touch()
        file = self.directory / "stage.json"
        file.write_bytes(to_json(settings))
        self._out = self.directory / "receipts"
        self._log = self.directory / "log"
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sinkpipeline.changes", str(file)],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "SINKPIPELINE_FAILPOINT_DIR": str(self.directory),
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def receipts(self) -> list[dict[str, Any]]:
        lines = self._out.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.receipts if each["event"] == event]

    def wait_for(self, event: str) -> dict[str, Any]:
        return wait_until(lambda: self.of(event) if self._running() else [], f"the stage has {event}")[-1]

    def _running(self) -> bool:
        assert self.exit_code is None, f"the stage ended: {self.log}"
        return True

    def wait_at(self, failpoint: str) -> None:
        held = self.directory / f"{failpoint}.{self.pid}"
        wait_until(lambda: self._running() and held.exists(), f"the stage is at {failpoint}")

    def release(self, failpoint: str) -> None:
        (self.directory / f"{failpoint}.{self.pid}").unlink()

    def release_until_again(self, failpoint: str) -> None:
        """Until it is there the next time."""
        (self.directory / failpoint).touch()
        self.release(failpoint)
        wait_until(lambda: self._running() and not (self.directory / failpoint).exists(), f"it is at {failpoint} again")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_END_S)

    def end(self) -> int:
        """SIGTERM: its exit code."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(_END_S)

    @property
    def error(self) -> dict[str, str]:
        """Of the last receipt."""
        [failed] = self.of("failed")
        found: dict[str, str] = failed["error"]
        return found

    @property
    def log(self) -> str:
        return self._log.read_text()


class StageLab:
    """What labs of every kind of database share: stages, and what they have written."""

    name: str
    servers: str
    directory: Path
    kind: str
    """Of the source in progress records."""

    def __init__(self) -> None:
        self._stages: list[StageProcess] = []

    @property
    def topic(self) -> str:
        return f"{self.name}-topic"

    @property
    def progress_topic(self) -> str:
        return f"{self.name}-progress"

    @property
    def stage(self) -> str:
        """Its identity and name in the progress topic."""
        return f"{self.name}/changes"

    def settings(self, *, database: dict[str, Any] | None = None, **changes: Any) -> StageSettings:
        raise NotImplementedError

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """What the last of them answers; each is a transaction."""
        raise NotImplementedError

    def end_of_log(self) -> int:
        """Everything that is committed now stands before it."""
        raise NotImplementedError

    def at_server(self, place: str) -> int:
        """A place, as the server itself counts it that is read now."""
        return lsn_of(place)

    def start(self, *failpoints: str, **changes: Any) -> StageProcess:
        stage = StageProcess(self.directory, self.settings(**changes), failpoints)
        self._stages.append(stage)
        return stage

    def live(self, life: Life | None = None, *, timeout_s: float = 60.0, **changes: Any) -> Life:
        """A life in this process, until it has read everything that is there now, or is killed."""
        found = life or Life()
        target = self.end_of_log()
        patience = Patience(timeout_s)

        def until_caught_up(event: str, **fields: Any) -> None:
            found.say(event, **fields)
            place = fields.get("position", ["0/0"])[0]
            is_reading_tables = any(fields.get(each) is not None for each in ("snapshot", "incrementalSnapshot"))
            if event != "ended" and ((self.at_server(place) >= target and not is_reading_tables) or patience.is_over()):
                found.set()

        with suppress(Killed):
            Stage(self.settings(**changes), until_caught_up, found).run()
        assert not patience.is_over(), "the stage came to the end"
        return found

    def refusal(self, **changes: Any) -> SinkPipelineError:
        """Of a life that is refused."""
        try:
            self.live(**changes)
        except SinkPipelineError as error:
            return error
        raise AssertionError("the stage was not refused")

    def found(self) -> list[InTopic]:
        return in_topic(self.servers, self.topic)

    def progress(self) -> tuple[int, int]:
        """Where the transaction is, and the index in it, as the progress topic says."""
        key = f"sinkpipeline/v1/{self.stage}/p/{self.kind}/0"
        place, index, *_ = progress_truth(self.servers, self.progress_topic)[key]["pos"]
        return self.at_server(place), index

    def position(self) -> Any:
        """Of the stage, as the progress topic says."""
        key = f"sinkpipeline/v1/{self.stage}/p/{self.kind}/0"
        return from_record(progress_truth(self.servers, self.progress_topic)[key]["pos"])

    def stream_start(self) -> int:
        """Where the stream began behind the snapshot that was completed, as the progress topic says."""
        key = f"sinkpipeline/v1/{self.stage}/p/{self.kind}/0".encode()
        for record in read_committed(self.servers, self.progress_topic):
            if record.key == key and "snapshot" not in record.document:
                return lsn_of(record.document["pos"][0])
        raise AssertionError("no snapshot is complete")

    def left(self) -> dict[str, Any] | None:
        """Of an incremental snapshot, as the progress topic says."""
        key = f"sinkpipeline/v1/{self.stage}/p/{self.kind}/0"
        told = progress_truth(self.servers, self.progress_topic)[key].get("incremental")
        return None if told is None else dict(told)

    def rows_read(self) -> None:
        """Waits until no rows are left to be read beside the stream, and the progress has everything."""
        wait_until(lambda: self.left() is None, "the rows of all tables were read", 120)
        self.caught_up()

    def caught_up(self) -> None:
        """Waits until the progress has everything that is there now."""
        target = self.end_of_log()
        wait_until(lambda: self.progress()[0] >= target, "the stage has caught up", 120)

    def end_stages(self) -> None:
        for stage in self._stages:
            stage.kill()


@dataclass
class Lab(StageLab):
    """One source of changes: a database of its own on a server, its slot and the oracle's, and topics."""

    server: LocalPostgresql
    servers: str
    directory: Path
    name: str = field(default_factory=lambda: unique("changes").replace("-", "_"))
    kind: str = "postgresql"

    def __post_init__(self) -> None:
        super().__init__()
        with self.connected(DATABASE) as session:
            session.execute(f"CREATE DATABASE {self.name}")

    @property
    def slot(self) -> str:
        return self.name

    @contextmanager
    def connected(self, database: str | None = None, **how: Any) -> Iterator[psycopg.Connection[Any]]:
        given = {"host": HOST, "port": self.server.port, "user": SUPERUSER, "dbname": database or self.name, **how}
        with psycopg.connect(**{"autocommit": True, **given}) as session:
            yield session

    @override
    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """What the last of them answers; each is a transaction."""
        with self.connected() as session:
            found: list[tuple[Any, ...]] = []
            for each in statements:
                cursor = session.execute(each.encode())
                found = cursor.fetchall() if cursor.description else []
            return found

    @override
    def settings(self, *, database: dict[str, Any] | None = None, **changes: Any) -> StageSettings:
        found = StageSettings(
            id=SinkId(self.name, "changes"),
            owner=Owner(cluster="file", name=self.name),
            run=str(uuid.uuid4()),
            takes_over=True,
            kafka=Connection(bootstrap_servers=self.servers),
            topic=TopicRequest(name=self.topic, partitions=3),
            progress=progress_request(f"{self.name}-progress", None),
            database=replace(
                DatabaseSettings(
                    connection=DatabaseConnection(servers=self.server.address, database=self.name, user=SUPERUSER),
                    publication=Publication(name=self.name),
                    slot=Slot(name=self.slot),
                    idle_advance_s=0.5,
                ),
                **(database or {}),
            ),
        )
        return replace(found, **changes)

    def as_source(self, **postgresql: Any) -> dict[str, Any]:
        """`source` of a manifest that reads this database from now on; `postgresql` replaces parts."""
        return {
            "postgresql": {
                "servers": self.server.address,
                "database": self.name,
                "auth": {"username": SUPERUSER},
                "publication": {"name": self.name, "tables": ["public.orders"]},
                "slot": {"name": self.slot},
                "startingPosition": "Now",
                "limits": {"idleAdvance": "1s"},
                "changes": {
                    "bootstrapServers": self.servers,
                    "topic": {"name": self.topic, "partitions": 3, "replicationFactor": 1},
                    "progressTopic": {"name": f"{self.name}-progress", "replicationFactor": 1},
                },
                **postgresql,
            }
        }

    @override
    def end_of_log(self) -> int:
        [(lsn,)] = self.sql("SELECT pg_current_wal_flush_lsn()::text")
        return lsn_of(lsn)

    def released(self) -> str:
        """The slot, once nobody reads it: a server learns a moment late that a stage has ended."""
        active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = current_database() AND active"
        wait_until(lambda: self.sql(active) == [(0,)], "nobody reads the slot")
        return self.slot

    def drop_slot(self) -> None:
        self.sql(f"SELECT pg_drop_replication_slot('{self.released()}')")

    def watch(self) -> None:
        """From here on the oracle's slot has everything; the stage's must not be there yet, or be idle."""
        with self.connected() as session:
            session.execute(CREATE, (f"{self.name}_oracle",))

    def expected(self, behind: int = 0) -> list[Told]:
        """What the server says, without taking it away; of transactions that were committed behind an LSN."""
        with self.connected() as session:
            return split(session.execute(PEEK, (f"{self.name}_oracle",)), behind)[1]

    def check(self) -> int:
        """That the topic has exactly what the server says; how many changes that are."""
        expected = self.expected()
        check(expected, self.found())
        self.check_slot()
        return len(expected)

    def slot_lsn(self) -> int:
        [(lsn,)] = self.sql(
            f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        )
        return lsn_of(lsn)

    def check_copy(self, *tables: str) -> int:
        """That what the topic says of the tables is what they are, and that the stream is what the server says.

        How many changes the stream has.
        """
        start, found = self.stream_start(), self.found()
        stream = [each for each in found if each.place[0] >= start]
        before = [each for each in found if each.place[0] < start]
        assert {each.told.op for each in before} <= {"r", "d"}
        expected = self.expected(behind=start)
        check(expected, stream)
        self.check_slot()
        copy = folded(found)
        for table in tables:
            with self.connected() as session:
                cursor = session.execute(f"SELECT * FROM {table}".encode())
                names = [each.name for each in cursor.description or ()]
                rows = sorted(json.dumps(dict(zip(names, row, strict=True)), sort_keys=True) for row in cursor)
            assert copy.get(table.replace('"', ""), []) == rows, table
        return len(stream)

    def check_slot(self) -> None:
        """The slot follows the progress, and never leads it."""
        confirmed = self.slot_lsn()
        assert confirmed <= self.progress()[0]

    def close(self) -> None:
        self.end_stages()
        with suppress(psycopg.Error), self.connected(DATABASE) as session:
            slots = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s"
            for name, pid in session.execute(slots, (self.name,)).fetchall():
                if pid is not None:
                    session.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
                session.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            session.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


CUT_AT_ONE = CutPolicy(rows=1, bytes=1 << 30, seconds=60.0)
