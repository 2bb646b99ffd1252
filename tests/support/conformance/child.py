"""A driver of any kind's sink in a process of its own, which a test may kill: KIND DOES STEP and the sink's
arguments. It drains the sink, or resets or removes it."""

from __future__ import annotations

import sys
from pathlib import Path

from sinkpipeline.sinks import delivery, takeover, transactional
from support.conformance.kind import Sink
from support.conformance.of_kafka import KafkaSink
from support.conformance.of_nats import NatsSink, WeakNatsSink
from support.conformance.of_postgresql import PostgresqlSink
from support.conformance.of_redis import RedisSink, WeakRedisSink
from support.conformance.of_topics import SeveralTopicsSink
from support.sink.sql_child import Process

KINDS: dict[str, type[Sink]] = {
    "kafka": KafkaSink,
    "kafka-topics": SeveralTopicsSink,
    "nats": NatsSink,
    "postgresql": PostgresqlSink,
    "redis": RedisSink,
    "nats-at-least-once": WeakNatsSink,
    "redis-at-least-once": WeakRedisSink,
}


def child(sink: Sink, directory: Path, *failpoints: str, step: int, does: str = "drain") -> Process:
    """It holds at a failpoint that was asked for."""
    [kind] = [name for name, each in KINDS.items() if type(sink) is each]
    return Process(directory, failpoints, __name__, kind, does, str(step), *sink.arguments)


def main() -> None:
    kind, does, step, *arguments = sys.argv[1:]
    takeover._MAX_DELAY_S, transactional._MAX_DELAY_S, delivery._ANNOUNCED_S = 0.11, 0.02, 0.0
    sink = KINDS[kind].again(*arguments)
    match does:
        case "reset":
            sink.reset()
        case "remove":
            sink.remove()
        case _:
            sink.driver(int(step)).drain()
    print("{}")


if __name__ == "__main__":
    main()
