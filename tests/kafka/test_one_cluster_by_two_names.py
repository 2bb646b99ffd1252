"""A pipeline whose source and sinks are one cluster by different addresses, on a real broker without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SENTINEL_KEY
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.admin import Admin, Cluster
from sinkpipeline.kafka.apart import Claims
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KafkaPorts
from sinkpipeline.kafka.purify import purify
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.kinds.looking import preflight
from sinkpipeline.sinks.starting import SinkStarter
from support.kafka import topics
from support.sink.one_sink import OneSink
from support.sink.starts import refusal

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]


def other_name(sink: OneSink) -> Connection:
    return Connection(bootstrap_servers=sink.servers.replace("127.0.0.1", "localhost"))


def loop(sink: OneSink) -> SinkSettings:
    """It reads every topic of the test, by the cluster's other name, also those that it writes."""
    return sink.settings(source={"connection": other_name(sink), "topics": (), "pattern": f"{sink.name}.*"})


def start(settings: SinkSettings, claims: Claims | None = None) -> None:
    admins = {each: Admin(each) for each in (settings.source.connection, settings.connection)}
    starter = SinkStarter(
        ports=KafkaPorts(settings, admins[settings.source.connection], admins[settings.connection], claims or Claims())
    )
    starter.start().hold.close()


@pytest.fixture
def cluster_without_id(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a proxy would hide it."""
    cluster = Admin.cluster
    with monkeypatch.context() as patched:
        patched.setattr(Admin, "cluster", lambda *of, **how: Cluster(id=None, brokers=cluster(*of, **how).brokers))
        yield


def test_a_pipeline_that_would_read_what_it_writes_is_refused_before_anything_is_created(sink: OneSink) -> None:
    error = refusal(lambda: start(loop(sink)), Reason.MANIFEST_INVALID)
    assert "localhost" in error.message
    assert "127.0.0.1" in error.message
    assert (topics.topic_id(sink.servers, sink.data), topics.topic_id(sink.servers, sink.progress)) == (None, None)
    [finding] = purify([loop(sink)])
    assert finding.error is not None
    assert finding.error.reason is Reason.MANIFEST_INVALID
    refusal(lambda: preflight([loop(sink)]), Reason.MANIFEST_INVALID)


@pytest.mark.usefixtures("cluster_without_id")
@pytest.mark.parametrize("written", ["data", "progress", "dead"])
def test_a_topic_that_is_read_and_written_is_known_by_its_id(sink: OneSink, written: str) -> None:
    name = str(getattr(sink, written))
    topics.create_topic(sink.servers, name, config=topics.COMPACTED)
    settings = replace(loop(sink), dead_letter=DeadLetterSettings(topic=TopicRequest(name=sink.dead)))
    settings = replace(settings, source=replace(settings.source, topics=(sink.source, name), pattern=None))
    refusal(lambda: start(settings), Reason.MANIFEST_INVALID)
    assert topics.read_uncommitted(sink.servers, name) == []
    [finding] = purify([settings])
    assert finding.error is not None
    assert finding.error.reason is Reason.MANIFEST_INVALID


@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
def test_two_sinks_that_write_one_topic_by_two_names(
    sink: OneSink, by_id: bool, request: pytest.FixtureRequest
) -> None:
    first = sink.settings()
    second = replace(first, id=replace(sink.id, sink="second"), connection=other_name(sink))
    if by_id:
        request.getfixturevalue("cluster_without_id")
        topics.create_topic(sink.servers, sink.data)
    else:
        refusal(lambda: preflight([first, second]), Reason.MANIFEST_INVALID)
    findings = list(purify([first, second]))
    assert [finding.error and finding.error.reason for finding in findings] == [None, Reason.MANIFEST_INVALID]


def test_two_names_alone_are_no_fault(sink: OneSink) -> None:
    settings = sink.settings(source={"connection": other_name(sink)})
    preflight([settings])
    [finding] = purify([settings])
    assert finding.error is None
    start(settings)


def test_of_two_sinks_that_meet_on_a_topic_the_later_one_is_refused(sink: OneSink) -> None:
    """Where nobody could compare them before: their clusters were not reached together."""
    first = sink.settings()
    apart = replace(first.progress, name=f"{sink.name}-progress-2")
    second = replace(first, id=replace(sink.id, sink="second"), connection=other_name(sink), progress=apart)
    claims = Claims()
    start(first, claims)
    refusal(lambda: start(second, claims), Reason.MANIFEST_INVALID)
    assert topics.progress_truth(sink.servers, apart.name).keys() <= {SENTINEL_KEY}
    start(first, claims)
