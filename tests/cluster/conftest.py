from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cluster.target import ROOT, Target
from servers.local_kafka import LocalKafka
from support.cluster import witness
from support.cluster.installed import Installation, Pipeline
from support.cluster.report import Report
from support.cluster.shared import Shared
from support.cluster.unserved import Unserved


@pytest.fixture(scope="session")
def target() -> Target:
    found = Target.load()
    if found is None:
        pytest.fail("there is no cluster: `make e2e` brings one up and runs these tests, `make cluster` one that stays")
    return found


@pytest.fixture(scope="session")
def brokers(target: Target) -> Iterator[LocalKafka]:
    """Three of them, which pods reach; one for a process beside another one, which has three."""
    number = 3 if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0" else 1
    with LocalKafka(brokers=number, host=target.kafka_host) as ours:
        yield ours


@pytest.fixture(scope="session")
def installed(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The operator, by the commands of docs/install.md; by the first process of a run."""
    shared = Shared(ROOT / "build" / "e2e")
    report = Report(shared.directory / "report.md")
    with shared.turn() as first:
        ours = Installation(target, tmp_path_factory.mktemp("installed"), report, shared.recorded)
        if first:
            report.begin()
            ours.install()
            witness.install(ours)
    yield ours
    ours.close()


@pytest.fixture
def pipeline(installed: Installation, brokers: LocalKafka) -> Iterator[Pipeline]:
    ours = Pipeline(installed, brokers.bootstrap_servers, replicas=len(brokers.pids))
    ours.stream.create()
    yield ours
    # It ends while the next test begins.
    installed.leave(ours)


@pytest.fixture(scope="module")
def unserved(installed: Installation, brokers: LocalKafka) -> Iterator[Unserved]:
    """Of a module whose other tests pass the five minutes that it takes until a person is called for."""
    with Unserved(installed, brokers.bootstrap_servers) as ours:
        yield ours
