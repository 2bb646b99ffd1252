"""A producer is destroyed only when nothing of it is on its way. What the client does otherwise: tests/kafka."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinkpipeline.kafka import leaving
from sinkpipeline.kafka.leaving import leave


@dataclass(eq=False)
class Client:
    """What a producer of the client does when it is left."""

    answered_after: int = 0
    """Polls until the requests on their way are answered."""
    aborting: tuple[int, bool] | None = None
    """An error, and whether the call may be repeated."""
    polling: tuple[int, bool] | None = None
    called: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return int(self.answered_after > 0)

    def abort_transaction(self, _timeout_s: float) -> None:
        self.called.append("abort")
        if self.aborting is not None:
            raise error(*self.aborting)

    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        assert in_queue
        assert blocking, "confluent-kafka takes it the wrong way round: without it all threads wait"
        self.called.append("purge all" if in_flight else "purge")

    def poll(self, _timeout_s: float) -> int:
        if self.polling is not None:
            raise error(*self.polling)
        self.answered_after -= 1
        return 0


def error(code: int, retriable: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "", retriable=retriable))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(leaving, "_QUIET_S", 0.02)
    yield
    leaving._kept.clear()


def is_destroyed(make: Callable[[], Any], *, in_transaction: bool = False) -> bool:
    client = make()
    found = weakref.ref(client)
    leave(client, in_transaction=in_transaction)
    del client
    return found() is None


NEVER = 1_000_000


@pytest.mark.parametrize(
    ("client", "in_transaction", "destroyed"),
    [
        pytest.param(Client, False, True, id="nothing is on its way"),
        pytest.param(lambda: Client(answered_after=2), False, True, id="it is answered soon"),
        pytest.param(lambda: Client(answered_after=NEVER), False, False, id="no answer"),
        pytest.param(Client, True, True, id="aborted"),
        pytest.param(lambda: Client(aborting=(KafkaError._TIMED_OUT, True)), True, False, id="not yet aborted"),
        pytest.param(lambda: Client(aborting=(KafkaError._CONFLICT, True)), True, False, id="still committing"),
        pytest.param(lambda: Client(aborting=(KafkaError._FENCED, False)), True, True, id="fenced, and answered"),
        pytest.param(
            lambda: Client(answered_after=NEVER, aborting=(KafkaError._FENCED, False)),
            True,
            False,
            id="fenced, with a request on its way",
        ),
        pytest.param(
            lambda: Client(answered_after=1, polling=(KafkaError._FATAL, False)),
            False,
            False,
            id="failed for good",
        ),
    ],
)
def test_what_is_destroyed(client: Callable[[], Any], in_transaction: bool, destroyed: bool) -> None:
    assert is_destroyed(client, in_transaction=in_transaction) is destroyed


def test_without_a_transaction_nothing_is_aborted() -> None:
    client = Client()
    leave(client, in_transaction=False)  # type: ignore[arg-type]
    assert client.called == ["purge"]


def test_the_rows_of_one_that_is_kept_are_not_sent_again() -> None:
    client = Client(answered_after=NEVER)
    leave(client, in_transaction=True)  # type: ignore[arg-type]
    assert client.called == ["abort", "purge", "purge all"]


def test_what_was_kept_is_destroyed_after_its_requests_have_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "_KEPT_S", 0.0)
    client: Any = Client(answered_after=NEVER)
    found = weakref.ref(client)
    leave(client, in_transaction=False)
    del client
    assert found() is not None
    assert is_destroyed(Client)
    assert found() is None


AT_THE_END = """
from sinkpipeline.kafka import leaving
class Kept:
    def __del__(self):
        print("destroyed", flush=True)
leaving._kept.append((0.0, Kept()))
print("ends", flush=True)
"""


def test_the_interpreters_end_destroys_none() -> None:
    done = subprocess.run([sys.executable, "-c", AT_THE_END], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["ends"]
