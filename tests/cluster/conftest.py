from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.target import ROOT, Target
from servers.local_kafka import LocalKafka
from support.cluster.installed import TOKEN_S, Installation, Pipeline
from support.cluster.report import Report


@pytest.fixture(scope="session")
def target() -> Target:
    found = Target.load()
    if found is None:
        pytest.fail("there is no cluster: `make e2e` brings one up and runs these tests, `make cluster` one that stays")
    return found


@pytest.fixture(scope="session")
def brokers(target: Target) -> Iterator[LocalKafka]:
    """Three of them, which pods reach."""
    with LocalKafka(brokers=3, host=target.kafka_host) as ours:
        yield ours


@pytest.fixture(scope="session")
def installed(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The operator, by the commands of docs/install.md."""
    report = Report(ROOT / "build" / "e2e" / "report.md")
    ours = Installation(target, tmp_path_factory.mktemp("installed"), report)
    ours.install()
    ours.shorten_tokens(TOKEN_S)
    yield ours
    ours.close()


@pytest.fixture
def pipeline(installed: Installation, brokers: LocalKafka) -> Iterator[Pipeline]:
    ours = Pipeline(installed, brokers.bootstrap_servers)
    ours.stream.create()
    yield ours
    # Its pods make room for those of the next test.
    ours.delete("--timeout=90s")
