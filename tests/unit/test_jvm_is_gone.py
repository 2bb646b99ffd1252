"""Whether a session's JVM is there, by what py4j says: a driver without one has to end, and not to report a bug."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from sinkpipeline.spark.session import jvm_is_gone


def session(answer: bool | Exception, *, exit_code: int | None = None) -> Any:
    def is_stopped() -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    process = SimpleNamespace(poll=lambda: exit_code)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=is_stopped))
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process), _jsc=java))


@pytest.mark.parametrize(
    ("answer", "is_gone"),
    [
        (False, False),
        (True, True),
        (ConnectionRefusedError(111, "Connection refused"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JError("it has failed"), False),
    ],
)
def test_what_is_said_of_a_jvm(answer: bool | Exception, is_gone: bool) -> None:
    assert jvm_is_gone(cast("Any", session(answer))) is is_gone


def test_one_that_has_ended_is_not_asked() -> None:
    assert jvm_is_gone(session(AssertionError("it is asked"), exit_code=137))
