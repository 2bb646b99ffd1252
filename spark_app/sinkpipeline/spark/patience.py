"""What takes long says so: nobody should have to guess whether it hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY_S = 10.0


@contextmanager
def telling(what: str, say: Callable[[str], None], every_s: float = _EVERY_S) -> Iterator[None]:
    """Says what is begun, and again and again that it goes on; `what` is such as "starting Spark"."""
    over = threading.Event()
    began = time.monotonic()

    def go_on() -> None:
        while not over.wait(every_s):
            say(f"still {what}, for {time.monotonic() - began:.0f} s")

    say(what)
    thread = threading.Thread(target=go_on, name="patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
