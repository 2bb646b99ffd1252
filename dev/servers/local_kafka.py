"""A real KRaft cluster on this machine, for the tests and the demo.

`PYTHONPATH=dev python -m servers.local_kafka` runs one broker until Ctrl-C.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from servers.java import FAST_START, java_executable, pinned
from servers.local_process import HOST, cache_directory, free_ports
from servers.waiting import Patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

START_DEADLINE: Final = 60.0
STOP_DEADLINE: Final = 15.0
DISCARD_DEADLINE: Final = 2.0
POLL_INTERVAL: Final = 0.05
LOG_TAIL_LINES: Final = 30
_KEEP_CLASSES: Final = "-XX:ArchiveClassesAtExit="


LOG4J: Final = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class LocalKafkaError(RuntimeError):
    """The cluster could not be started."""


class LocalKafka:
    """A cluster of combined brokers and controllers with the node ids 1 to n.

    Clients use the listener CLIENT; the nodes talk to each other over listeners of their own, so that
    `listener.security.protocol.map` secures CLIENT alone. `properties` replaces or adds any property on every broker,
    and `client_config` is what a client then needs beside the bootstrap servers.

    `host` is the address of this machine that brokers listen at and tell clients; `port` is that of the first one, by
    default a free one.
    Without a `directory` the data lives in a temporary one that `stop` removes; one that is passed is kept.
    When this process dies, in whatever way, the brokers are killed.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        directory: Path | None = None,
        properties: Mapping[str, str] | None = None,
        client_config: Mapping[str, str] | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = FAST_START,
        host: str = HOST,
        port: int | None = None,
    ) -> None:
        self._host = host
        self._directory = directory
        self._scratch: Path | None = None
        self._properties = dict(properties or {})
        self._client_config = dict(client_config or {})
        self._jvm_options = [f"-Xmx{heap}", "-XX:+ExitOnOutOfMemoryError", *jvm_options]
        ports = iter(free_ports(3 * brokers, host))
        self._nodes = {node: _Ports(next(ports), next(ports), next(ports)) for node in range(1, brokers + 1)}
        if port is not None:
            self._nodes[1] = replace(self._nodes[1], client=port)
        self._advertised: dict[int, int] = {}
        self._running: dict[int, _Broker] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{self._host}:{port}" for port in {**self.client_ports, **self._advertised}.values())

    @property
    def direct_servers(self) -> str:
        """The listener of the brokers themselves: never secured, and never behind a proxy."""
        return ",".join(f"{self._host}:{ports.internal}" for ports in self._nodes.values())

    @property
    def client_ports(self) -> dict[int, int]:
        """Where the listener CLIENT of each node really is."""
        return {node: ports.client for node, ports in self._nodes.items()}

    def advertise(self, ports: Mapping[int, int]) -> None:
        """Before `start`: tells clients other ports for CLIENT, such as those of proxies."""
        self._advertised = dict(ports)

    @property
    def pids(self) -> dict[int, int]:
        """The process of each node that was started and not stopped since."""
        return {node: broker.process.pid for node, broker in self._running.items()}

    def start(self) -> None:
        classpath = _classpath()
        if self._directory is None and self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="local-kafka-"))
        try:
            self._format(classpath)
            for node in self._nodes:
                if node not in self._running:
                    self._launch(node, classpath)
            patience = Patience(START_DEADLINE)
            for node in self._nodes:
                self._await_answer(node, patience)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        running, self._running = list(self._running.values()), {}
        for broker in running:
            broker.terminate()
        # The last nodes of a cluster wait several seconds for the quorum that stopped with the others: not worth it for
        # data that is about to be removed.
        deadline = time.monotonic() + (DISCARD_DEADLINE if self._scratch else STOP_DEADLINE)
        for broker in running:
            broker.wait_or_kill(deadline)
        if self._scratch is not None:
            shutil.rmtree(self._scratch)
            self._scratch = None

    def start_broker(self, node: int) -> None:
        """Starts a node again, with its ports and its data, and waits until it answers."""
        if node in self._running:
            raise LocalKafkaError(f"broker {node} is running already")
        self._launch(node, _classpath())
        self._await_answer(node, Patience(START_DEADLINE))

    def stop_broker(self, node: int) -> None:
        broker = self._running.pop(node)
        broker.terminate()
        broker.wait_or_kill(time.monotonic() + STOP_DEADLINE)

    def kill_broker(self, node: int) -> None:
        self._running.pop(node).kill()

    def pause_broker(self, node: int) -> None:
        self._running[node].process.send_signal(signal.SIGSTOP)

    def resume_broker(self, node: int) -> None:
        self._running[node].process.send_signal(signal.SIGCONT)

    def _home(self, node: int | None = None) -> Path:
        root = self._directory or self._scratch
        if root is None:
            raise LocalKafkaError("the cluster was not started")
        return root if node is None else root / f"node-{node}"

    def _format(self, classpath: str) -> None:
        root = self._home()
        root.mkdir(parents=True, exist_ok=True)
        (root / "log4j2.properties").write_text(LOG4J)
        identity = root / "cluster-id"
        if not identity.exists():
            identity.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        formats = {}
        for node in self._nodes:
            home = self._home(node)
            home.mkdir(exist_ok=True)
            (home / "server.properties").write_text(
                "".join(f"{key}={value}\n" for key, value in self._server_properties(node).items())
            )
            if not (home / "data" / "meta.properties").exists():
                arguments = ["format", f"--cluster-id={identity.read_text()}", f"--config={home / 'server.properties'}"]
                formats[node] = self._java(node, classpath, "kafka.tools.StorageTool", *arguments)
        codes = {node: process.wait() for node, process in formats.items()}
        for node, code in codes.items():
            if code != 0:
                raise LocalKafkaError(f"the storage of broker {node} could not be formatted\n{self._log_tail(node)}")

    def _server_properties(self, node: int) -> dict[str, str]:
        ports = self._nodes[node]
        replicas = min(3, len(self._nodes))
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "log.dirs": str(self._home(node) / "data"),
            "controller.quorum.voters": ",".join(
                f"{id_}@{self._host}:{p.controller}" for id_, p in self._nodes.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "listeners": f"CLIENT://{self._host}:{ports.client},INTERNAL://{self._host}:{ports.internal}"
            f",CONTROLLER://{self._host}:{ports.controller}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "auto.create.topics.enable": "false",
            "min.insync.replicas": "1",
            "offsets.topic.num.partitions": "8",
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.num.partitions": "8",
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(min(2, len(self._nodes))),
            "group.initial.rebalance.delay.ms": "0",
            # By default a transaction that has timed out is aborted up to ten seconds later.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
            # A killed broker is let in again only once the session of its former life has run out (by default 9 s).
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            # Many tests write records of long ago, which the default takes away every five minutes.
            "log.retention.check.interval.ms": "86400000",
            # It is checked for the first time after half a minute, too.
            "log.initial.task.delay.ms": "86400000",
            "log.cleaner.enable": "true",
            # The default takes a quarter of the heap at once.
            "log.cleaner.dedupe.buffer.size": "8388608",
            **self._advertised_listeners(node),
            **self._properties,
        }

    def _advertised_listeners(self, node: int) -> dict[str, str]:
        if node not in self._advertised:
            return {}
        client, internal = self._advertised[node], self._nodes[node].internal
        return {"advertised.listeners": f"CLIENT://{self._host}:{client},INTERNAL://{self._host}:{internal}"}

    def _java(self, node: int, classpath: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            java_executable(),
            *self._jvm_options,
            *_class_sharing(self._jvm_options),
            f"-Dlog4j2.configurationFile={self._home() / 'log4j2.properties'}",
            *("-cp", classpath, main, *arguments),
        ]
        with (self._home(node) / "broker.log").open("ab") as log:
            # A process group of its own: Ctrl-C in the terminal is for the program that runs the cluster.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0
            )

    def _launch(self, node: int, classpath: str) -> None:
        process = self._java(node, classpath, "kafka.Kafka", str(self._home(node) / "server.properties"))
        self._running[node] = _Broker(process, _watcher(process.pid))

    def _await_answer(self, node: int, patience: Patience) -> None:
        process = self._running[node].process
        client = AdminClient(
            {
                "bootstrap.servers": f"{self._host}:{self._nodes[node].client}",
                "reconnect.backoff.max.ms": 100,
                # Refused connections are what waiting looks like.
                "log_level": 0,
                **self._client_config,
            }
        )
        reason = "it does not list itself among the brokers"
        while process.poll() is None and not patience.is_over():
            try:
                if node in client.list_topics(timeout=0.5).brokers:
                    return
            except KafkaException as error:
                reason = str(error)
            time.sleep(POLL_INTERVAL)
        if process.returncode is not None:
            reason = f"it ended with {process.returncode}"
        raise LocalKafkaError(f"broker {node} did not start: {reason}\n{self._log_tail(node)}")

    def _log_tail(self, node: int) -> str:
        lines = (self._home(node) / "broker.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])


@dataclass(frozen=True)
class _Ports:
    client: int
    internal: int
    controller: int


@dataclass(frozen=True)
class _Broker:
    process: subprocess.Popen[bytes]
    watcher: subprocess.Popen[bytes]

    def terminate(self) -> None:
        self.process.terminate()
        # A paused process would not see the signal.
        self.process.send_signal(signal.SIGCONT)

    def wait_or_kill(self, deadline: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        # Before the broker is waited for: from then on its process id may be another program's.
        self.watcher.kill()
        with self.watcher:
            self.process.wait()


def _watcher(pid: int) -> subprocess.Popen[bytes]:
    """Kills a process when this one is gone, however it went: then its end of the pipe closes."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -KILL "$1"', "sh", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )


def version(name: str = "kafka") -> str:
    return pinned(name, "kafka.version")


def _jars(name: str) -> Path:
    jars = cache_directory() / f"{name}-{version(name)}"
    if not jars.is_dir():
        raise LocalKafkaError(f"there are no jars of Kafka in {jars}: run `make install`")
    return jars


def _classpath() -> str:
    return str(_jars("kafka") / "*")


def archive() -> Path:
    """Of a broker's classes, from which it starts sooner. `make install` makes it; without one it starts as ever."""
    return _jars("kafka") / "classes.jsa"


def make_archive() -> None:
    """Starts a broker, gives it a topic, and keeps the classes that it has when it stops.

    Raises:
        LocalKafkaError: no broker starts, or it leaves no archive.
    """
    with tempfile.TemporaryDirectory(prefix="local-kafka-archive-") as scratch:
        made = Path(scratch, "classes.jsa")
        with LocalKafka(directory=Path(scratch), jvm_options=(*FAST_START, f"{_KEEP_CLASSES}{made}")) as kafka:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
            admin.create_topics([NewTopic("archived", num_partitions=1)])["archived"].result()
        if not made.exists():
            raise LocalKafkaError(f"{java_executable()} left no archive of a broker's classes")
        # Brokers that start meanwhile see the whole of one or none.
        near = archive().with_suffix(f".{os.getpid()}")
        shutil.copy(made, near)
        near.replace(archive())


def _class_sharing(jvm_options: Sequence[str]) -> list[str]:
    """What makes a broker start from the archive, where it is there and these options don't make one."""
    if not archive().exists() or any(option.startswith(_KEEP_CLASSES) for option in jvm_options):
        return []
    # Another Java than the one that made it passes over it, and would say so in the broker's log.
    return [f"-XX:SharedArchiveFile={archive()}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def run_command(main: str, *arguments: str, deadline: float = 60.0) -> str:
    """What one of Kafka's commands prints, by the name of its class: the scripts of the distribution only find Java."""
    done = subprocess.run(tool(main, *arguments), capture_output=True, text=True, timeout=deadline, check=False)
    if done.returncode:
        raise LocalKafkaError(f"{main} {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def tool(main: str, *arguments: str) -> list[str]:
    """What starts one of Kafka's commands, by the name of its class."""
    classpath = f"{_jars('kafka-tools')}/*:{_classpath()}"
    return [java_executable(), *FAST_START, "-cp", classpath, main, *arguments]


def main() -> None:
    parser = argparse.ArgumentParser(prog="local_kafka", description="Runs a Kafka cluster on this machine.")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--port", type=int, help="of the first broker; a free one by default")
    parser.add_argument("--make-archive", action="store_true", help="of a broker's classes, and nothing else")
    arguments = parser.parse_args()
    if arguments.make_archive:
        make_archive()
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        LocalKafka(brokers=arguments.brokers, port=arguments.port) as kafka,
    ):
        print(kafka.bootstrap_servers, flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
