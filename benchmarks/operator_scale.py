"""What the operator costs, and how soon it acts, with hundreds of pipelines, of which some have silent drivers.

`make bench-operator`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m operator_scale --pipelines N [N ...]`

An API server, one Kafka broker, and the operator as a process of its own with its chart's rights and options; all
drivers are served by this process. Every second pipeline has its topics on a cluster that accepts connections and never
answers, and every twentieth has a driver that does the same; `--silent N` gives N pipelines such a driver instead
(with more than some tens of them, `--same-image`).
Requests are counted by the API server's audit log. A reaction is the time from a patch of `spec.suspend` until the
SparkApplication is deleted, of pipelines that are Ready. At the end the operator is replaced by one with another image,
until all drivers have it. Then all pipelines but a few are suspended: what is left to look at are Kafka clusters, of
which one is silent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from typing_extensions import Self

from deployed import chart
from record import Record, recording
from servers.control_plane import LocalControlPlane, spark_application_crds
from servers.kube_api import KubeApi
from servers.local_kafka import LocalKafka
from servers.local_process import HOST, LocalProcess, free_ports
from support.kafka.topics import create_topic
from support.kube.audit import Audit
from support.kube.fleet import Fleet
from support.kube.rights import Outside, install
from support.waiting import wait_until

Object = dict[str, Any]

NAMESPACE = "bench"
PIPELINES = f"/apis/sinkpipeline.io/v1alpha1/namespaces/{NAMESPACE}/sinkpipelines"
EVERY_NTH_IS_SILENT = 20
DEADLINE_S = 900.0
SETTLED_S = 20.0
"""Nothing was written for so long: what was begun has ended."""
_READS = frozenset({"get", "list"})


@dataclass(frozen=True, kw_only=True)
class Reactions:
    count: int
    p50_s: float
    p99_s: float
    longest_s: float


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What the operator did and had in some time."""

    seconds: float
    reads_per_s: float
    writes_per_s: float
    watches_per_s: float
    asked_per_s: float
    """Drivers that were asked."""
    of: dict[str, float]
    """Requests per second, by verb and resource."""
    cpu: float
    """Of one core."""
    rss_mb: float
    threads: int
    descriptors: int
    connections: int


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Another image, until every driver that answers has it."""

    seconds: float
    restarted: int
    at_once: int
    """The most drivers that were not Ready at the same time, but for those that the benchmark resumed."""
    told: int
    """Pipelines that said `RestartWaits` meanwhile."""
    reactions: Reactions
    """Of pipelines whose driver waited for its turn, or had had it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    pipelines: int
    silent: int
    children_s: float
    """Until all had a SparkApplication."""
    ready_s: float
    """Until all whose drivers answer were Ready."""
    starting: Reactions
    starting_cost: Stretch
    idle: Stretch
    idle_reactions: Reactions
    live: Stretch
    live_reactions: Reactions
    rollout: Rollout
    suspended: Stretch
    """While all but some are suspended."""
    suspended_reactions: Reactions
    """Of those."""
    peak_rss_mb: float


class Resources:
    """When each pipeline was Ready for the first time, and who is now."""

    def __init__(self, kubeconfig: Path) -> None:
        self.since: dict[str, float] = {}
        self.ready: set[str] = set()
        self.waited: set[str] = set()
        """Those that have said `RestartWaits`."""
        self._api = KubeApi(kubeconfig)
        self._thread = threading.Thread(target=self._follow, name="resources", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._api.close()
        self._thread.join()

    def _follow(self) -> None:
        for change in self._api.follow(PIPELINES):
            name = change.new["metadata"]["name"]
            conditions = (change.new.get("status") or {}).get("conditions") or []
            if any(each["reason"] == "RestartWaits" for each in conditions):
                self.waited.add(name)
            if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
                self.since.setdefault(name, time.monotonic())
                self.ready.add(name)
            else:
                self.ready.discard(name)


def silent_ones(names: Sequence[str], count: int | None) -> frozenset[str]:
    """So many of them, evenly among the others: at the beginning they would only be the oldest ones."""
    if count is None:
        return frozenset(names[::EVERY_NTH_IS_SILENT])
    return frozenset(names[number * len(names) // count] for number in range(count))


class Bench:
    """The world of one run."""

    def __init__(self, pipelines: int, silent: int | None, servers: Sequence[str], directory: Path) -> None:
        self.names = [f"p{number:04}" for number in range(pipelines)]
        self.silent = silent_ones(self.names, silent)
        self._servers = servers
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self._gone: dict[str, threading.Event] = {}
        self._audit = Audit(directory, NAMESPACE)
        self.settings: dict[str, str] = {}
        """What the operator runs with."""

    def __enter__(self) -> Self:
        with self._stack as stack:
            crds = [*chart.crds(), *spark_application_crds()]
            cluster = stack.enter_context(LocalControlPlane(crds=crds, flags=self._audit.flags))
            cluster.kubectl("create", "namespace", NAMESPACE)
            installed = install(cluster, NAMESPACE, {})
            self.settings = {"arguments": " ".join(installed.arguments)}
            self._api = KubeApi(cluster.kubeconfig)
            stack.callback(self._api.close)
            self._fleet = stack.enter_context(
                Fleet(cluster.kubeconfig, is_silent=lambda name: name in self.silent, gone=self._is_gone)
            )
            self._resources = Resources(cluster.kubeconfig)
            stack.callback(self._resources.close)
            self._installed = installed
            self._operators = stack.enter_context(contextlib.ExitStack())
            self._start_operator(installed.arguments)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_operator(self, arguments: Sequence[str]) -> None:
        """Another one, where one was there."""
        self._operators.close()
        installed = replace(self._installed, arguments=list(arguments))
        self._operator = self._operators.enter_context(_operator(installed, self._directory / "operator.log"))
        self._process = psutil.Process(self._operator.pid)

    def run(self, seconds: float, probes: int, *, same_image: bool) -> Result:
        began, position, asked, cpu_s = time.monotonic(), self._audit.position(), self._fleet.asked, self._cpu_s()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda each: self._api.create(PIPELINES, self.manifest(*each)), enumerate(self.names)))
        awake = [name for name in self.names if name not in self.silent]
        starting: list[float] = []
        while not self._is_up(awake):
            if time.monotonic() - began > DEADLINE_S:
                raise SystemExit(f"after {DEADLINE_S:.0f} s {len(self._resources.since)} of {len(awake)} were Ready")
            healthy = next((name for name in awake if name in self._resources.ready), None)
            if healthy is None:
                time.sleep(0.1)
            else:
                awake.remove(healthy)
                awake.append(healthy)
                starting.append(self._reaction(healthy))
        ready_s = max(self._resources.since[name] for name in awake) - began
        children_s = max(self._fleet.began[name] for name in self.names) - began
        cost = self._stretch(began, position, asked, cpu_s)
        self._settle()
        idle = self._watch(seconds)
        idle_reactions = self._reactions(awake, probes)
        self._fleet.delivers = True
        self._settle_live(awake)
        live = self._watch(seconds)
        live_reactions = self._reactions(awake, probes)
        peak_rss_mb = _peak_mb(self._operator.pid)
        rollout = _NO_ROLLOUT if same_image else self._roll_out(awake, probes)
        few = awake[:: max(1, len(awake) // probes)][:probes]
        # Else those that are not suspended write a status each minute, and it never settles.
        self._fleet.delivers = False
        self._suspend(set(self.names) - set(few))
        suspended = self._watch(seconds)
        suspended_reactions = self._reactions(few, probes)
        return Result(
            pipelines=len(self.names),
            silent=len(self.silent),
            children_s=children_s,
            ready_s=ready_s,
            starting=_of(starting),
            starting_cost=cost,
            idle=idle,
            idle_reactions=idle_reactions,
            live=live,
            live_reactions=live_reactions,
            rollout=rollout,
            suspended=suspended,
            suspended_reactions=suspended_reactions,
            peak_rss_mb=max(peak_rss_mb, _peak_mb(self._operator.pid)),
        )

    def _is_up(self, awake: Sequence[str]) -> bool:
        return all(name in self._resources.since for name in awake) and all(
            name in self._fleet.began for name in self.names
        )

    def manifest(self, number: int, name: str) -> Object:
        return {
            "apiVersion": "sinkpipeline.io/v1alpha1",
            "kind": "SinkPipeline",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "source": {"kafka": {"bootstrapServers": self._servers[number % 2], "topics": ["numbers"]}},
                "sinks": [{"name": "copy", "kafka": {"topic": {"name": f"{name}-copy"}}}],
            },
        }

    def _is_gone(self, name: str) -> None:
        if (event := self._gone.get(name)) is not None:
            event.set()

    def _reaction(self, name: str) -> float:
        """Suspends it, and lets it go on after that."""
        event = self._gone[name] = threading.Event()
        began = time.monotonic()
        self._api.merge(f"{PIPELINES}/{name}", {"spec": {"suspend": True}})
        if not event.wait(DEADLINE_S):
            raise SystemExit(f"{name} is suspended, and after {DEADLINE_S:.0f} s its child is there")
        took_s = time.monotonic() - began
        self._resources.ready.discard(name)
        self._api.merge(f"{PIPELINES}/{name}", {"spec": {"suspend": False}})
        return took_s

    def _reactions(self, awake: Sequence[str], count: int) -> Reactions:
        names = awake[:: max(1, len(awake) // count)][:count]
        with ThreadPoolExecutor(4) as pool:
            found = _of(list(pool.map(self._reaction, names)))
        wait_until(lambda: self._resources.ready.issuperset(names), "they run again", DEADLINE_S, poll_s=0.2)
        return found

    def _roll_out(self, awake: Sequence[str], probes: int) -> Rollout:
        """A new operator gives all drivers another image."""
        given = list(self._installed.arguments)
        changed = [f"{each}-next" if each.startswith("--image=") else each for each in given]
        if changed == given:
            raise SystemExit(f"no --image= in {given}")
        began, before, at_once = time.monotonic(), self._fleet.started.copy(), 0
        reactions: list[float] = []
        probed = list(awake[:: max(1, len(awake) // probes)][:probes])
        own = set(awake)
        self._start_operator(changed)

        def left() -> list[str]:
            return [each for each in awake if self._fleet.started[each] == before[each]]

        # A few at a time, so the time grows with their number.
        deadline_s = max(DEADLINE_S, 2.0 * len(awake))
        while left() or not self._resources.ready.issuperset(awake):
            if time.monotonic() - began > deadline_s:
                raise SystemExit(f"after {deadline_s:.0f} s {len(left())} of {len(awake)} drivers have the old image")
            at_once = max(at_once, len(own - self._resources.ready))
            if probed and probed[-1] in self._resources.ready:
                # Its next start is of our making.
                own.discard(probed[-1])
                reactions.append(self._reaction(probed.pop()))
            time.sleep(0.1)
        return Rollout(
            seconds=time.monotonic() - began,
            restarted=len(awake),
            at_once=at_once,
            told=len(self._resources.waited.intersection(awake)),
            reactions=_of(reactions),
        )

    def _suspend(self, names: Iterable[str]) -> None:
        wanted = set(names)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda each: self._api.merge(f"{PIPELINES}/{each}", {"spec": {"suspend": True}}), wanted))
        wait_until(lambda: not wanted & self._fleet.running, "they are suspended", DEADLINE_S, poll_s=0.5)
        # Longer than --resync: Kafka is asked of each of them once in that time, by two threads for each cluster.
        self._settle(70.0)

    def _settle(self, quiet_s: float = SETTLED_S) -> None:
        """Until nothing was written for a while."""
        deadline, quiet_since, position = time.monotonic() + DEADLINE_S, time.monotonic(), self._audit.position()
        while time.monotonic() - quiet_since < quiet_s:
            if time.monotonic() > deadline:
                raise SystemExit(f"the operator still writes {DEADLINE_S:.0f} s after all were Ready")
            time.sleep(1.0)
            now = self._audit.position()
            if any(verb not in _READS and verb != "watch" for verb, _ in self._audit.since(position)):
                quiet_since = time.monotonic()
            position = now

    def _settle_live(self, awake: Sequence[str]) -> None:
        """Until all were asked again."""
        asked = self._fleet.asked
        wait_until(lambda: self._fleet.asked > asked + 2 * len(awake), "drivers are asked", DEADLINE_S, poll_s=0.5)

    def _watch(self, seconds: float) -> Stretch:
        given = time.monotonic(), self._audit.position(), self._fleet.asked, self._cpu_s()
        time.sleep(seconds)
        return self._stretch(*given)

    def _stretch(self, began: float, position: int, asked: int, cpu_s: float) -> Stretch:
        seconds = time.monotonic() - began
        found = self._audit.since(position)
        of = {" ".join(key): round(count / seconds, 3) for key, count in found.most_common()}
        reads = sum(count for (verb, _), count in found.items() if verb in _READS)
        watches = sum(count for (verb, _), count in found.items() if verb == "watch")
        return Stretch(
            seconds=seconds,
            reads_per_s=reads / seconds,
            writes_per_s=(found.total() - reads - watches) / seconds,
            watches_per_s=watches / seconds,
            asked_per_s=(self._fleet.asked - asked) / seconds,
            of=of,
            cpu=(self._cpu_s() - cpu_s) / seconds,
            rss_mb=self._process.memory_info().rss / 2**20,
            threads=self._process.num_threads(),
            descriptors=self._process.num_fds(),
            connections=len(self._process.net_connections("tcp")),
        )

    def _cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


@contextlib.contextmanager
def _operator(installed: Outside, log: Path) -> Iterator[LocalProcess]:
    [port] = free_ports(1)
    env = {
        **os.environ,
        "KUBECONFIG": str(installed.kubeconfig),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    argv = [sys.executable, "-m", "sinkpipeline_operator", *installed.arguments, "--listen", f"{HOST}:{port}"]
    process = LocalProcess(argv, log, env=env)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def is_ready() -> bool:
        if process.exit_code is not None:
            raise SystemExit(f"the operator ended\n{process.log_tail()}")
        with contextlib.suppress(OSError), opener.open(f"http://{HOST}:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)  # noqa: PLR2004 - HTTP's own
        return False

    try:
        wait_until(is_ready, "the operator is ready")
        yield process
    finally:
        process.end(10.0)


@contextlib.contextmanager
def _silent_cluster() -> Iterator[str]:
    """Accepts connections, as a broker that hangs does, and answers nothing."""
    with socket.create_server((HOST, 0), backlog=4096) as server:
        yield f"{HOST}:{server.getsockname()[1]}"


def _of(found: Sequence[float]) -> Reactions:
    if not found:
        return Reactions(count=0, p50_s=math.nan, p99_s=math.nan, longest_s=math.nan)
    p99 = sorted(found)[math.ceil(0.99 * len(found)) - 1]
    return Reactions(count=len(found), p50_s=statistics.median(found), p99_s=p99, longest_s=max(found))


_NO_ROLLOUT = Rollout(seconds=math.nan, restarted=0, at_once=0, told=0, reactions=_of([]))


def _peak_mb(pid: int) -> float:
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return math.nan if found is None else int(found[1]) / 1024


def show(record: Record, results: Sequence[Result]) -> None:
    rows: list[tuple[str, list[str]]] = [
        ("pipelines, of which silent", [f"{each.pipelines}, {each.silent}" for each in results]),
        ("all have a child, s", [f"{each.children_s:.0f}" for each in results]),
        ("all are Ready, s (goal 180)", [f"{each.ready_s:.0f}" for each in results]),
    ]
    for name, found in (
        ("starting", [each.starting for each in results]),
        ("idle", [each.idle_reactions for each in results]),
        ("live", [each.live_reactions for each in results]),
        ("another image goes through", [each.rollout.reactions for each in results]),
        ("others are suspended", [each.suspended_reactions for each in results]),
    ):
        title = f"reaction while {name}: p50, p99, longest, s (goal p99 5)"
        rows.append((title, [f"{each.p50_s:.2f}, {each.p99_s:.2f}, {each.longest_s:.2f}" for each in found]))
    for name, costs, goal in (
        ("starting", [each.starting_cost for each in results], ""),
        ("idle", [each.idle for each in results], " (goal 0)"),
        ("live", [each.live for each in results], " (goal 20)"),
        ("others are suspended", [each.suspended for each in results], ""),
    ):
        rows += [
            (f"{name}: API writes a second{goal}", [f"{each.writes_per_s:.2f}" for each in costs]),
            (f"{name}: API reads a second", [f"{each.reads_per_s:.2f}" for each in costs]),
            (f"{name}: drivers asked a second", [f"{each.asked_per_s:.1f}" for each in costs]),
            (f"{name}: of one core", [f"{each.cpu:.0%}" for each in costs]),
            (f"{name}: MB, threads, descriptors, connections", [_held(each) for each in costs]),
        ]
    rows += [
        ("another image in all drivers, s", [f"{each.rollout.seconds:.0f}" for each in results]),
        ("not Ready at once; of", [f"{each.rollout.at_once}; {each.rollout.restarted}" for each in results]),
        ("said RestartWaits", [f"{each.rollout.told}" for each in results]),
    ]
    rows.append(("most MB (goal 200)", [f"{each.peak_rss_mb:.0f}" for each in results]))
    record.table(
        "The operator", ["", *(f"{each.pipelines}" for each in results)], [[name, *cells] for name, cells in rows]
    )
    for each in results:
        group = f"{each.pipelines} pipelines"
        record.bar("The operator until all are Ready", "s", group, "all have a child", (each.children_s,))
        record.bar("The operator until all are Ready", "s", group, "all are Ready", (each.ready_s,))
        for name, reactions in (
            ("starting", each.starting),
            ("idle", each.idle_reactions),
            ("live", each.live_reactions),
        ):
            if reactions.count:
                record.bar("The operator's reactions, p99", "s", group, name, (reactions.p99_s,))


def _held(each: Stretch) -> str:
    return f"{each.rss_mb:.0f}, {each.threads}, {each.descriptors}, {each.connections}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="operator_scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pipelines", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--seconds", type=float, default=120.0, help="of counting while idle, and while live")
    parser.add_argument("--probes", type=int, default=40, help="reactions while idle, and while live")
    parser.add_argument(
        "--same-image",
        action="store_true",
        help="leave out the replaced operator: each silent driver holds one of ten turns to restart for five minutes",
    )
    parser.add_argument(
        "--silent", type=int, help=f"pipelines whose drivers never answer (default: every {EVERY_NTH_IS_SILENT}th)"
    )
    arguments = parser.parse_args()
    if arguments.silent is not None and not 0 <= arguments.silent < min(arguments.pipelines):
        parser.error("--silent: fewer than --pipelines, so that somebody is Ready")
    results: list[Result] = []
    with recording("operator", arguments) as record:
        for pipelines in arguments.pipelines:
            with (
                TemporaryDirectory(prefix="bench-") as directory,
                LocalKafka() as kafka,
                _silent_cluster() as silent,
            ):
                create_topic(kafka.bootstrap_servers, "numbers", partitions=1)
                with Bench(pipelines, arguments.silent, (kafka.bootstrap_servers, silent), Path(directory)) as bench:
                    record.ran("operator", operator=bench.settings, manifest=bench.manifest(0, bench.names[0]))
                    results.append(bench.run(arguments.seconds, arguments.probes, same_image=arguments.same_image))
            record.line(json.dumps(asdict(results[-1])))
        show(record, results)


if __name__ == "__main__":
    main()
