from __future__ import annotations

import socket
from collections.abc import Generator

import pytest

from sinkpipeline.postgresql import silence
from sinkpipeline.postgresql.silence import answers, watched


def waiting() -> Generator[str, int, list[int]]:
    return [(yield "first"), (yield "second")]


def test_what_waits_is_sent_what_has_come() -> None:
    over = watched(waiting(), pytest.fail)
    assert next(over) == "first"
    assert over.send(1) == "second"
    with pytest.raises(StopIteration) as end:
        over.send(0)
    assert end.value.value == [1, 0]


def test_who_says_nothing_is_asked_about_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(silence.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(silence, "QUIET_S", 2)
    asked: list[None] = []

    def nothing() -> Generator[None, int, None]:
        while True:
            yield

    over = watched(nothing(), lambda: asked.append(None))
    next(over)
    for _ in range(4):
        over.send(1)
    assert not asked
    for _ in range(9):
        over.send(0)
    assert len(asked) == 3


def test_who_answers_and_who_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "ASKED_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert not answers("127.0.0.1", port), "it takes the connection and says nothing"
    assert not answers("127.0.0.1", port), "nobody is there"
