"""Rows that are read beside a stream: what tests of every kind of database do with them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final
from unittest import mock

from sinkpipeline.changes import incremental
from sinkpipeline.core.cuts import CutPolicy
from support.changes.lab import Killed, Life, StageLab

BESIDE: Final[dict[str, Any]] = {"incremental": True}


def keys_read(lab: StageLab) -> Counter[bytes | None]:
    """How often each row was read."""
    return Counter(each.record.key for each in lab.found() if each.told.op == "r")


def killed_again_and_again(lab: StageLab, point: str, cuts: CutPolicy) -> None:
    """Three stages, one after the other; whoever reads meanwhile, rows that were read and others are changed."""
    for number in range(3):
        stage = lab.start(point, database=BESIDE, cuts=cuts)
        stage.wait_at(point)
        if number and point != "incremental-after-opening":
            stage.release_until_again(point)
        stage.kill()
        lab.sql(f"UPDATE orders SET note = 'u' WHERE id IN ({number + 1}, {4_900 + number})")


def first_life_is_killed(lab: StageLab, cuts: CutPolicy) -> None:
    """As soon as it has the source."""

    def end(_: dict[str, Any]) -> None:
        raise Killed

    lab.live(Life(end), database=BESIDE, cuts=cuts)


def lives_until_all_is_read(lab: StageLab, chance: random.Random, cuts: CutPolicy) -> None:
    """Each is killed at one of its commits, or comes to its end."""

    def end(told: dict[str, Any]) -> None:
        if told["event"] == "committed" and told.get("incrementalSnapshot") and chance.random() < 0.05:
            raise Killed

    while lab.left() is not None:
        lab.live(Life(end), database=BESIDE, cuts=cuts)


def killed_half_way(lab: StageLab, cuts: CutPolicy) -> None:
    """A stage, when it has read some rows."""
    stage = lab.start("after-commit", database=BESIDE, cuts=cuts)
    stage.wait_at("after-commit")
    while not (lab.left() or {})["after"]:
        stage.release_until_again("after-commit")
    stage.kill()


def killed_half_way_and_altered(lab: StageLab, change: Sequence[str], cuts: CutPolicy) -> None:
    """The keys of its 3,000 rows, from 1,000,001 on, become others, from 1 on: all of them come."""
    killed_half_way(lab, cuts)
    lab.sql(*change)
    lab.live(database=BESIDE)
    found = [int(str(dict(each.told.row)["id"])) for each in lab.found()]
    assert {each for each in found if each <= 3_000} == set(range(1, 3_001))


def emptied_while_it_is_read(lab: StageLab, ending: str, cuts: CutPolicy) -> None:
    """Whoever reads is ended by a statement, behind the first rows."""
    ended: list[str] = []

    def at(told: dict[str, Any]) -> None:
        mark = told.get("incrementalSnapshot") or {}
        if not ended and told["event"] == "committed" and mark.get("rows"):
            ended.append(ending)
            for (statement,) in lab.sql(ending):
                if isinstance(statement, str):
                    lab.sql(statement)
            lab.sql("TRUNCATE TABLE orders", "INSERT INTO orders VALUES (99999, 'z')")

    # The stream is looked at behind each batch of rows.
    with mock.patch.object(incremental, "_STRETCH_S", -1.0):
        lab.live(Life(at), database=BESIDE, cuts=cuts)
    assert ended
    lab.live(database=BESIDE)
