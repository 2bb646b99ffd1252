"""A stream with three replicas: leaders step down and are killed, and two drivers take the sink from each other."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from servers.nats import LocalNatsCluster
from sinkpipeline.core.errors import Reason, SinkPipelineError
from support.sink.cell_sink import P0, P1
from support.sink.nats_sink import NatsSink, asked
from support.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.thorough("three servers, whose leaders take seconds to be elected"),
]


ENDS = {P0: 1_200, P1: 600}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalNatsCluster]:
    with LocalNatsCluster() as found:
        wait_until(lambda: "error" not in asked(found.servers[0].address, "INFO"), "the cluster has a leader", 30)
        yield found


def sink_of(cluster: LocalNatsCluster) -> NatsSink:
    found = NatsSink(cluster.address, direct=cluster.servers[0].address, ends=dict(ENDS))

    def created() -> bool:
        config = {**found.ports().target._asked(), "num_replicas": 3}
        asked(found.direct, f"STREAM.CREATE.{found.stream}", **config)
        return is_there(found)

    wait_until(created, "the stream is there", 30)
    return found


def is_there(sink: NatsSink) -> bool:
    return "leader" in asked(sink.direct, f"STREAM.INFO.{sink.stream}").get("cluster", {})


def drained(sink: NatsSink, troubles: list[BaseException], *, rivals: bool = False) -> threading.Thread:
    def drive() -> None:
        passing = {Reason.SUPERSEDED, Reason.FENCED_REPEATEDLY} if rivals else set()
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                driver = sink.driver(step=25)
                driver.pause_s = 0.2
                driver.drain()
            except SinkPipelineError as error:
                if error.reason not in passing and not error.reason.retry:
                    troubles.append(error)
                    return
            except BaseException as error:  # noqa: BLE001 - told by who waits
                troubles.append(error)
                return
            else:
                return
        troubles.append(AssertionError("it never came to its end"))

    found = threading.Thread(target=drive)
    found.start()
    return found


def values_of(sink: NatsSink) -> list[str]:
    """In the stream's order, once all are seen: who leads anew may not show the newest at once."""

    def found() -> list[str]:
        values = [each[2].decode() for each in sink.rows()]
        return values if len({*values}) >= sum(ENDS.values()) else []

    return wait_until(found, "each row is there", 60)


@pytest.mark.parametrize("fault", ["step down", "kill", "rivals"])
def test_each_row_is_once_and_in_order_whatever_leads(cluster: LocalNatsCluster, fault: str) -> None:
    sink = sink_of(cluster)
    troubles: list[BaseException] = []
    drives = [drained(sink, troubles, rivals=fault == "rivals") for _ in range(2 if fault == "rivals" else 1)]
    for number in itertools.count():
        if not any(each.is_alive() for each in drives):
            break
        time.sleep(0.5)
        if fault == "kill" and number < 2:
            found = asked(sink.direct, f"STREAM.INFO.{sink.stream}")
            leader = str(found.get("cluster", {}).get("leader", "n1"))
            server = cluster.servers[int(leader[1:])]
            server.kill()
            time.sleep(1)
            server.start()
            wait_until(lambda: is_there(sink), "it answers", 60)
        elif fault != "kill" and number < 8:
            asked(sink.direct, f"STREAM.LEADER.STEPDOWN.{sink.stream}")
    for each in drives:
        each.join()
    assert troubles == []
    wait_until(lambda: is_there(sink), "it answers", 60)
    values = values_of(sink)
    assert len(values) == sum(ENDS.values()), "each once, and nothing else"
    for partition, end in ENDS.items():
        own = [each for each in values if each.startswith(f"{partition.partition}:")]
        assert own == [f"{partition.partition}:{offset}" for offset in range(end)], "in their order"
    sink.close()
