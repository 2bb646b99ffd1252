"""Kafka's own commands, by the names of the distribution's scripts, and a broker: `dev/kafka NAME ...` starts this."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from servers import local_kafka

_TOOLS: Final[Mapping[str, str]] = {
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}


def main() -> None:
    name, *arguments = sys.argv[1:] or [""]
    if name == "broker":
        sys.argv = [f"{sys.argv[0]} broker", *arguments]
        local_kafka.main()
    elif name in _TOOLS:
        command = local_kafka.tool(_TOOLS[name], *arguments)
        os.execvp(command[0], command)  # noqa: S606 - it takes this process's place
    else:
        sys.exit(f"usage: dev/kafka broker|{'|'.join(_TOOLS)} [OPTION]...")


if __name__ == "__main__":
    main()
