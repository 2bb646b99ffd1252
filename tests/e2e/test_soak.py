"""Some of `make soak`, of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from servers.postgresql import bin_directory
from soak import databases, following, streams, tables, topics
from soak.outcome import Outcome, show

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
NeedsServer = pytest.mark.skipif(bin_directory() is None, reason="no PostgreSQL server: make postgresql")

SECONDS = 60
SEED = 1


def holds(outcome: Outcome) -> None:
    show(outcome, Console(width=120))
    assert not outcome.problems


@pytest.mark.long("a minute of `make soak`; test_kills and test_topic_faults do it one by one")
def test_a_minute_of_kills_and_faults(tmp_path: Path) -> None:
    outcome = topics.soak(SECONDS, SEED, tmp_path, Console(width=120))
    holds(outcome)
    assert outcome.faults.total() >= 5, "something happened"


@NeedsServer
@pytest.mark.long("half a minute of `make soak KIND=postgresql`; test_postgresql kills a table's pipeline")
def test_half_a_minute_of_kills_and_faults_of_tables(tmp_path: Path) -> None:
    outcome = tables.soak(SECONDS / 2, SEED, tmp_path, Console(width=120))
    holds(outcome)
    assert outcome.faults.total() >= 3, "something happened"


@pytest.mark.parametrize("kind", streams.KINDS)
@pytest.mark.long("half a minute of `make soak` of a kind; test_stream_kills kills a stream's pipeline")
def test_half_a_minute_of_kills_and_faults_of_streams(tmp_path: Path, kind: str) -> None:
    outcome = streams.soak(kind, SECONDS / 2, SEED, tmp_path, Console(width=120))
    holds(outcome)
    assert outcome.faults.total() >= 3, "something happened"


@NeedsServer
@pytest.mark.parametrize("kind", databases.KINDS)
@pytest.mark.long("half a minute of `make soak SOURCE=` of a kind; tests/changes and tests/binlog kill stages")
def test_half_a_minute_of_kills_and_faults_of_a_database_that_is_read(kind: str, tmp_path: Path) -> None:
    outcome = databases.soak(kind, SECONDS / 2, SEED, tmp_path, Console(width=120))
    holds(outcome)
    assert outcome.faults.total() >= 3, "something happened"
    assert all(each.total > 0 for each in outcome.judged)


@NeedsServer
@pytest.mark.long("`make soak KIND=debezium`, small; test_debezium kills one that follows a table")
def test_a_table_follows_a_table_while_all_is_killed(tmp_path: Path) -> None:
    outcome = following.soak(600, 2, SEED, tmp_path, Console(width=120))
    holds(outcome)
    assert outcome.kills.total() >= 2
    [judged] = outcome.judged
    assert judged.total > 0
