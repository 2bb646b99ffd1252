"""A few restarts at a time."""

from __future__ import annotations

from sinkpipeline_operator.act.turns import Turns
from sinkpipeline_operator.kube.client import Ref

A, B, C = (Ref("shop", name) for name in "abc")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def turns(most: int = 1) -> tuple[Turns, list[Ref], Clock]:
    told: list[Ref] = []
    clock = Clock()
    return Turns(most, patience_s=60, tell=told.append, clock=clock), told, clock


def test_who_has_a_turn_keeps_it_and_others_wait() -> None:
    ours, told, _ = turns()
    assert [ours.take(A), ours.take(B), ours.take(A), ours.take(C)] == [True, False, True, False]
    assert (ours.has(A), ours.has(B), told) == (True, False, [])
    ours.end(A)
    assert told == [B], "who asked first is told first"
    assert [ours.take(C), ours.take(B)] == [True, False], "who asks has it, and the other one stays in the line"
    ours.end(C)
    assert told == [B, B]


def test_who_is_told_and_does_not_ask_bars_nobody() -> None:
    ours, told, _ = turns()
    assert [ours.take(each) for each in (A, B, C)] == [True, False, False]
    ours.end(A)
    ours.leave(B)
    assert told == [B, C], "it was deleted, or its manifest was changed"
    assert ours.take(C)


def test_who_takes_too_long_holds_up_nobody() -> None:
    ours, told, clock = turns()
    assert ours.take(A)
    assert not ours.take(B)
    clock.now = 61
    assert not ours.has(A)
    assert told == [B]
    assert ours.take(B)


def test_several_at_once() -> None:
    ours, told, _ = turns(most=2)
    assert [ours.take(each) for each in (A, B, C)] == [True, True, False]
    ours.end(B)
    assert told == [C]


def test_who_is_told_and_can_not_be_looked_at_bars_nobody() -> None:
    ours, told, _ = turns()
    assert [ours.take(each) for each in (A, B, C)] == [True, False, False]
    ours.end(A)
    ours.looked(B)
    assert told == [B, C], "its look failed"
    ours.looked(C)
    assert not ours.has(A)
    assert told == [B, C], "where all looks fail, each is told once and not again and again"
    assert ours.take(B), "and has its turn once it can be looked at"
    ours.looked(B)
    ours.end(B)
    assert told == [B, C, C]


def test_who_took_too_long_lets_others_go_first() -> None:
    ours, told, clock = turns()
    assert [ours.take(each) for each in (A, B)] == [True, False]
    clock.now = 61
    assert not ours.take(A), "though nobody else has asked meanwhile"
    assert told == [B]
    assert ours.take(B)
    assert not ours.take(A)
    ours.end(B)
    assert told == [B, A]
    assert ours.take(A)
    clock.now = 200
    assert ours.take(A), "where nobody waits"


def test_who_took_too_long_waits_for_nobody_who_can_not_be_looked_at() -> None:
    ours, told, clock = turns()
    assert [ours.take(each) for each in (A, B)] == [True, False]
    clock.now = 61
    assert not ours.take(A)
    ours.looked(B)
    assert told == [B]
    assert ours.take(A)
