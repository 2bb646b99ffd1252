"""A server that says nothing: whether it works, or is not there any more, as one whose machine was stopped.

A statement may take long, and so may a commit. A task that waits holds a core, which other sinks need: so somebody who
waits asks the server, on a connection of its own, whether it answers at all.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

QUIET_S = 5.0
"""How long a server may say nothing before it is asked, and between two questions."""
ASKED_S = 5.0
"""How long the answer may take."""
# SSLRequest of the protocol: any server answers it with one letter, before it asks who is there.
_QUESTION = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


def answers(host: str, port: int) -> bool:
    """Whether there is a server that answers."""
    try:
        with socket.create_connection((host, port), timeout=ASKED_S) as line:
            line.sendall(_QUESTION)
            return line.recv(1) != b""
    except OSError:
        return False


def watched(waiting: Generator[Any, Any, T], silent: Callable[[], None]) -> Generator[Any, Any, T]:
    """What waits by yielding, and is sent whether something has come; `silent` is called when nothing has, for long."""
    with contextlib.closing(waiting):
        try:
            wants = next(waiting)
            heard = time.monotonic()
            while True:
                ready = yield wants
                now = time.monotonic()
                if ready:
                    heard = now
                elif now - heard > QUIET_S:
                    silent()
                    heard = time.monotonic()
                wants = waiting.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
