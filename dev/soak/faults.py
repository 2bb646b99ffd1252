"""What a soak does to a pipeline: each fault begins, lasts a while, and is over when its method returns."""

from __future__ import annotations

import abc
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil
from typing_extensions import override

from servers.tcp_proxy import Api, Fate, Way
from soak.feeder import Feeder
from support.app.command import App, Run, last_line
from support.kafka.topics import delete_topic, topic_id
from support.waiting import wait_until
from support.worlds.faults import FaultyKafka

APIS = (
    Api.PRODUCE,
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.METADATA,
    Api.FIND_COORDINATOR,
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.END_TXN,
)
POINTS_OF_A_DRIVER = (
    "starting-after-control-init",
    "starting-after-meta",
    "starting-before-first-start",
    "after-batch",
)
POINTS_OF_A_WORKER = ("after-init", "after-rows-before-progress", "after-progress-before-commit", "after-commit")
MAX_PARTITIONS = 8
QUIET_S = 60.0
STOP_S = 200.0
TRAP_S = 2.0
POINT_S = 6.0


class Driver:
    """The command, and whoever starts it again."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.starts = 0
        self.ends: list[tuple[int, str]] = []
        """Of runs that ended by themselves: exit code and last word."""
        self._runs: list[Run] = []
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.run = self.app.start()
        self._runs.append(self.run)

    def look(self) -> None:
        """Starts it again where it has ended, as an operator would."""
        code = self.run.exit_code
        if code is not None:
            if code != -signal.SIGKILL:
                self.ends.append((code, last_line(self.run.stderr)))
            self.start()

    def stop(self) -> None:
        """A clean stop, which ends with 0; so early that nobody listens yet, it is the signal's own end."""
        os.kill(self.run.pid, signal.SIGTERM)
        code = self.run.wait(STOP_S)
        if code not in (0, -signal.SIGTERM):
            self.ends.append((code, last_line(self.run.stderr)))

    def close(self) -> None:
        for run in self._runs:
            run.kill()


Fault = Callable[[], None]


class Faults(abc.ABC):
    """Of the command, and of the broker that has the source."""

    points_of_a_worker: tuple[str, ...] = POINTS_OF_A_WORKER
    point_s = POINT_S
    """For how long somebody is waited for at a point."""

    def __init__(self, seed: int, faulty: FaultyKafka, driver: Driver) -> None:
        self.driver = driver
        self.kills = Counter[str]()
        """By SIGKILL, of what."""
        self._chance = random.Random(seed)  # noqa: S311 - it is to be repeated
        self._faulty = faulty
        self._deck: list[Fault] = []

    @abc.abstractmethod
    def deck(self) -> Sequence[Fault]:
        """Each is done before any is done again."""

    @property
    @abc.abstractmethod
    def handled(self) -> tuple[int, int]:
        """How many records there are to be delivered, and to be dead letters."""

    def next(self) -> Fault:
        """In an order that only the seed decides."""
        if not self._deck:
            self._deck = [*self.deck()]
            self._chance.shuffle(self._deck)
        return self._deck.pop()

    def pause(self) -> None:
        time.sleep(self._chance.uniform(0.2, 3))

    def is_flowing(self) -> bool:
        """Every sink has delivered something."""
        sinks = self.driver.app.status().get("sinks", [])
        return bool(sinks) and all(each.get("rowsDelivered", 0) > 0 for each in sinks)

    def is_quiet(self) -> bool:
        """Everything that was fed is delivered, and every sink runs."""
        self.driver.look()
        sinks = self.driver.app.status().get("sinks", [])
        return bool(sinks) and all(
            each["state"] == "Running"
            and each.get("lag") == 0
            and (each.get("rowsDelivered"), each.get("deadLettered")) == self.handled
            for each in sinks
        )

    # Processes

    def worker_killed(self) -> None:
        def kill(worker: psutil.Process) -> None:
            worker.kill()
            self.kills["worker"] += 1

        with suppress(psutil.NoSuchProcess):
            self._worker(kill)

    def worker_paused(self) -> None:
        for_s = self._chance.uniform(0.5, 4)

        def pause(worker: psutil.Process) -> None:
            worker.suspend()
            time.sleep(for_s)
            worker.resume()

        with suppress(psutil.NoSuchProcess):
            self._worker(pause)

    def _worker(self, what: Callable[[psutil.Process], None]) -> None:
        choice = self._chance.random()
        workers = self.driver.run.workers()
        if workers:
            what(workers[int(choice * len(workers))])

    def worker_killed_at_a_point(self) -> None:
        held = self._held_at(self._chance.choice(self.points_of_a_worker))
        if held is not None:
            os.kill(held, signal.SIGKILL)
            self.kills["worker"] += 1
        self.driver.app.disarm()

    def driver_killed_at_a_point(self) -> None:
        """The points of a start come only when something else makes the driver start the sink again."""
        held = self._held_at(self._chance.choice(POINTS_OF_A_DRIVER))
        if held is not None:
            os.kill(held, signal.SIGKILL)
            self.kills["driver"] += 1
        self.driver.app.disarm()

    def worker_outlives_its_driver(self) -> None:
        """A zombie: it goes on where it stood once a newer driver has taken over, or is about to."""
        held = self._held_at(self._chance.choice(self.points_of_a_worker))
        for_s = self._chance.uniform(2, 15)
        if held is not None:
            self.driver_killed()
            time.sleep(for_s)
        self.driver.app.disarm()

    def _held_at(self, point: str) -> int | None:
        """The process that has come to a point, and waits there."""
        app = self.driver.app
        app.arm(point)
        with suppress(AssertionError):
            return wait_until(lambda: app.held(point), f"somebody reaches {point}", self.point_s)
        return None

    def driver_killed(self) -> None:
        """Its JVM and its workers go on for as long as they like."""
        self.driver.run.kill_driver()
        self.kills["driver"] += 1
        self.driver.start()

    def spark_killed(self) -> None:
        """As for want of memory: the command ends, and is started again."""
        for process in self.driver.run.jvm():
            with suppress(psutil.NoSuchProcess):
                process.kill()
                self.kills["JVM"] += 1

    def driver_stopped_and_started(self) -> None:
        self.driver.stop()
        self.driver.start()

    def broker_killed(self) -> None:
        away_s = self._chance.uniform(0, 3)
        self._kill_broker()
        time.sleep(away_s)
        self._faulty.kafka.start_broker(1)

    def _kill_broker(self) -> None:
        self._faulty.kafka.kill_broker(1)
        self.kills["broker"] += 1

    def broker_paused(self) -> None:
        self._faulty.kafka.pause_broker(1)
        time.sleep(self._chance.uniform(0.5, 4))
        self._faulty.kafka.resume_broker(1)

    # Network

    def connections_cut(self) -> None:
        for _ in range(self._chance.randint(1, 4)):
            self._faulty.proxy.cut()
            time.sleep(self._chance.uniform(0, 1))

    def network_slow(self) -> None:
        self._faulty.proxy.delay(self._chance.choice(list(Way)), self._chance.uniform(0.01, 0.5))
        time.sleep(self._chance.uniform(1, 4))
        self._faulty.proxy.heal()

    def network_silent(self) -> None:
        self._faulty.proxy.swallow(self._chance.choice(list(Way)))
        time.sleep(self._chance.uniform(0.5, 4))
        self._faulty.proxy.heal()

    def request_lost(self) -> None:
        api, way, fate = (
            self._chance.choice(APIS),
            self._chance.choice(list(Way)),
            self._chance.choice([Fate.CUT, Fate.LOST]),
        )
        with self._faulty.proxy.trap(api, way, fate) as trap, suppress(AssertionError):
            # Some come only when a driver starts.
            trap.wait(TRAP_S)
        self._faulty.proxy.heal()


class Fed:
    """Of faults with a source that never stops."""

    _feeder: Feeder

    @property
    def handled(self) -> tuple[int, int]:
        return self._feeder.handled

    def source_grown(self) -> None:
        if self._feeder.partitions < MAX_PARTITIONS:
            self._feeder.grow()


class TopicFaults(Fed, Faults):
    """Of sinks that are topics, on the broker of the source."""

    def __init__(
        self, seed: int, faulty: FaultyKafka, driver: Driver, feeder: Feeder, progress_topics: list[str]
    ) -> None:
        super().__init__(seed, faulty, driver)
        self._feeder = feeder
        self._progress_topics = progress_topics

    @override
    def deck(self) -> Sequence[Fault]:
        seldom = [
            self.driver_killed,
            self.spark_killed,
            self.everything_killed,
            self.broker_killed,
            self.broker_killed_at_a_commit,
            self.driver_stopped_and_started,
            self.driver_killed_at_a_point,
            self.worker_outlives_its_driver,
            self.progress_topic_deleted,
            self.source_grown,
        ]
        often = [
            self.worker_killed,
            self.worker_paused,
            *[self.worker_killed_at_a_point] * 2,
            self.broker_paused,
            self.connections_cut,
            self.network_slow,
            self.network_silent,
            *[self.request_lost] * 3,
        ]
        return [*seldom, *often, *often]

    def everything_killed(self) -> None:
        self.driver.run.kill()
        self.kills["driver"] += 1
        self._kill_broker()
        self._faulty.kafka.start_broker(1)
        self.driver.start()

    def broker_killed_at_a_commit(self) -> None:
        """Before it has heard of it, or before anybody hears that it was done."""
        with self._faulty.proxy.trap(Api.END_TXN, self._chance.choice(list(Way)), held=True) as trap:
            with suppress(AssertionError):
                trap.wait(TRAP_S)
            self._kill_broker()
        self._faulty.kafka.start_broker(1)

    def progress_topic_deleted(self) -> None:
        """While it runs and nothing is on its way: else the outcome of a transaction would be in doubt, and refused."""
        topic, servers = self._chance.choice(self._progress_topics), self._faulty.direct
        self._feeder.pause()
        try:
            with suppress(AssertionError):
                wait_until(self.is_quiet, "all is delivered", QUIET_S)
                before = topic_id(servers, topic)
                delete_topic(servers, topic)
                wait_until(lambda: topic_id(servers, topic) not in (None, before), f"{topic} is back", QUIET_S)
                wait_until(self.is_quiet, "the sink runs again", QUIET_S)
        finally:
            self._feeder.resume()
