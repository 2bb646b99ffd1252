"""`make soak KIND=nats` and `make soak KIND=redis`: into streams.

A broker and a server, each behind a proxy, the real command with two sinks, a source that never stops. A client of the
server reads what is in the streams.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from servers.sql_proxy import SqlProxy
from soak.faults import POINTS_OF_A_WORKER, Driver
from soak.feeder import Feeder
from soak.outcome import Judged, Outcome
from soak.server_faults import FaultyServer, FedServerFaults
from soak.storm import storm
from soak.topics import PARTITIONS, fed, with_letters
from support.app.command import BY_TASKS, App
from support.app.stream_kinds import NATS, REDIS, StreamKind
from support.worlds.faults import faulty_kafka

SINKS: Final = ("one", "other")
# As the feeder's bad values want it: what can't be transformed, and what can be no row of a stream.
_FAILS: Final = "CAST(1 DIV (length(value) - 4) AS STRING)"


class NatsFaults(FedServerFaults):
    points_of_a_worker = (*POINTS_OF_A_WORKER, *NATS.points)
    requests = (b"STREAM.INFO", b"STREAM.MSG.GET", b"Sinkpipeline-Offset", b"Nats-Batch-Commit")
    commit = b"Nats-Batch-Commit"
    within_a_commit = "nats-before-batch"


class RedisFaults(FedServerFaults):
    points_of_a_worker = (*POINTS_OF_A_WORKER, *REDIS.points)
    requests = (b"INFO", b"HMGET", b"EVALSHA")
    commit = b"EVALSHA"
    within_a_commit = "redis-after-commit"


@dataclass(frozen=True)
class Kind:
    stream: StreamKind
    faults: type[FedServerFaults]
    select: dict[str, str]


KINDS: Final = {
    "nats": Kind(
        NATS,
        NatsFaults,
        {"subject": f"CASE CAST(value AS STRING) WHEN 'astray' THEN 'a b' WHEN 'zero' THEN {_FAILS} END"},
    ),
    "redis": Kind(
        REDIS,
        RedisFaults,
        {
            "headers": "CASE CAST(value AS STRING) WHEN 'astray' THEN map('value', 'x') "
            f"WHEN 'zero' THEN map('n', {_FAILS}) END"
        },
    ),
}


def soak(name: str, seconds: float, seed: int, directory: Path, console: Console) -> Outcome:
    outcome = Outcome(seed)
    kind = KINDS[name]
    with ExitStack() as stack:
        faulty = stack.enter_context(faulty_kafka())
        server = stack.enter_context(kind.stream.server())
        place = FaultyServer(server, stack.enter_context(SqlProxy(server.port)))
        feeder = Feeder(faulty.direct, "soak-in", PARTITIONS, seed)
        document = fed(
            faulty,
            feeder,
            spark=BY_TASKS,
            sinks=[with_letters(kind.stream.sink(place.servers, each, kind.select)) for each in SINKS],
        )
        driver = Driver(App(directory, document))
        stack.callback(driver.close)

        def heal() -> None:
            faulty.heal()
            place.heal()

        faults = kind.faults(seed, faulty, driver, place, feeder)
        storm(outcome, seconds, faults, feeder, heal, outcome.sayer(console))
        good, bad = feeder.handled
        for each in SINKS:
            outcome.judged += [
                Judged(each, good, kind.stream.judge(server.address, each, feeder.expected), exact=True),
                # On another server than the rows: repeated where somebody was killed in between.
                Judged(f"{each}, dead letters", bad, feeder.judge_letters(f"{each}-dead"), exact=False),
            ]
    outcome.judge()
    return outcome
