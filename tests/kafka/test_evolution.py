"""Progress that another release has written is gone on from, in both directions. On a real broker.

The other release runs itself, from this repository's history: its own starts, writers and deliveries.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from support.kafka.topics import produce_numbers
from support.sink.driver import Driver
from support.sink.one_sink import OneSink

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
OLDER = "906d302"
"""Before the fields that docs/design/0021 and 0022 added to the progress records."""

PARTITIONS = 2
PART = 5

_DELIVER = """
import sys
import sinkpipeline
from support.driver import Driver
from support.one_sink import OneSink

class Existing(OneSink):
    def __post_init__(self):
        pass

tree, servers, name, partitions, end = sys.argv[1:]
assert sinkpipeline.__file__.startswith(tree), f"that is another release: {sinkpipeline.__file__}"
with Driver(Existing(servers, int(partitions), name)) as driver:
    driver.until(int(end))
"""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The other release's product, and its own driver without Spark."""
    found = subprocess.run(
        ["git", "archive", OLDER, "spark_app", "tests/support", "dev"], cwd=ROOT, capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip(f"{OLDER} is not in this clone's history: git fetch --unshallow")
    tree = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


def deliver_with(tree: Path, sink: OneSink, end: int) -> None:
    paths = ":".join(str(tree / each) for each in ("spark_app", "tests", "dev"))
    command = [sys.executable, "-c", _DELIVER, str(tree), sink.servers, sink.name, str(sink.partitions), str(end)]
    done = subprocess.run(command, env={"PYTHONPATH": paths}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def deliver_with_ours(sink: OneSink, end: int) -> None:
    with Driver(sink) as driver:
        driver.until(end)


@pytest.mark.parametrize("first", ["older", "ours"])
@pytest.mark.thorough("it unpacks the older release and lets the two deliver in turn")
def test_two_releases_go_on_from_each_other(kafka: LocalKafka, older: Path, first: str) -> None:
    turns: list[Callable[[OneSink, int], None]] = [lambda *given: deliver_with(older, *given), deliver_with_ours]
    if first == "ours":
        turns.reverse()
    sink = OneSink(kafka.bootstrap_servers, PARTITIONS)
    for number, turn in enumerate([*turns, *turns], 1):
        for partition in range(PARTITIONS):
            produce_numbers(sink.servers, sink.source, PART, partition=partition)
        turn(sink, number * PART)
        expected = sorted(str(offset) for offset in range(number * PART) for _ in range(PARTITIONS))
        assert sorted(sink.delivered()) == expected, f"after turn {number}: duplicated or missing"
        assert sink.frontier() == dict.fromkeys(range(PARTITIONS), number * PART)
