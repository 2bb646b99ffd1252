"""What takes long says so."""

from __future__ import annotations

import threading

from sinkpipeline.spark.patience import telling
from support.waiting import wait_until


def test_what_takes_long_says_so_again_and_again() -> None:
    said: list[str] = []
    with telling("starting Spark", said.append, every_s=0.01):
        assert said[0] == "starting Spark"
        wait_until(lambda: len(said) > 2, "it has said it twice more")
    assert set(said[1:]) == {"still starting Spark, for 0 s"}
    assert not [each for each in threading.enumerate() if each.name == "patience"], "nothing is said afterwards"


def test_what_is_quick_is_said_once() -> None:
    said: list[str] = []
    with telling("starting Spark", said.append):
        pass
    assert said == ["starting Spark"]
