"""What `deletionPolicy: Delete` removes, and what it leaves to others."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.ports import Creation
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.removal import KeptTopic, SinkRemoval
from sinkpipeline.sinks.starting import SinkStarter, StartedSink
from support.kafka import topics
from support.sink.one_sink import OneSink, deliver
from support.sink.starts import once, refusal

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]


def remove(sink: OneSink, settings: SinkSettings | None = None) -> KeptTopic | None:
    return removal(settings or sink.settings()).carry_out()


def removal(settings: SinkSettings) -> SinkRemoval:
    admin = Admin(settings.connection)
    return SinkRemoval(ports=ports(settings, admin, admin))


def with_rows(sink: OneSink) -> None:
    """It has delivered all but the last ten of its source."""
    deliver(sink, sink.start(), range(20))


def left(sink: OneSink) -> dict[str, Any]:
    """What the progress topic still says of the sink."""
    return {key: value for key, value in sink.truth().items() if value is not None}


def exists(sink: OneSink, topic: str) -> bool:
    return Admin(sink.connection).topics([topic])[topic] is not None


def test_a_sink_is_removed_with_the_data_topic_that_it_made(filled: OneSink) -> None:
    with_rows(filled)
    assert remove(filled) is None
    assert left(filled) == {}
    assert not exists(filled, filled.data)
    assert exists(filled, filled.source)
    assert exists(filled, filled.progress)


def test_what_comes_after_a_removal_is_a_first_start(filled: OneSink) -> None:
    with_rows(filled)
    remove(filled)
    started = filled.start("run-2")
    assert (started.progress.rows, filled.frontier()) == (0, {0: 0})


@pytest.mark.thorough("twice is beside it, after a kill")
def test_a_removal_is_done_as_often_as_one_likes(filled: OneSink) -> None:
    remove(filled)
    with_rows(filled)
    remove(filled)
    remove(filled)
    assert left(filled) == {}


def test_a_data_topic_that_was_there_before_stays(filled: OneSink) -> None:
    topics.create_topic(filled.servers, filled.data, partitions=1)
    with_rows(filled)
    kept = remove(filled)
    assert kept is not None
    assert (kept.name, "it was there before" in kept.why) == (filled.data, True)
    assert left(filled) == {}
    assert len(filled.delivered()) == 20


def test_a_data_topic_that_somebody_made_again_stays(filled: OneSink) -> None:
    with_rows(filled)
    topics.delete_topic(filled.servers, filled.data)
    topics.create_topic(filled.servers, filled.data, partitions=1)
    kept = remove(filled)
    assert kept is not None
    assert "created it again" in kept.why
    assert left(filled) == {}
    assert exists(filled, filled.data)


@pytest.mark.thorough("one start is beside it")
def test_that_it_made_the_data_topic_is_known_after_more_starts(filled: OneSink) -> None:
    with_rows(filled)
    deliver(filled, filled.start("run-2"), range(20, 30))
    filled.start("run-3")
    remove(filled)
    assert not exists(filled, filled.data)


@pytest.mark.thorough("one sink is beside it")
def test_other_sinks_of_the_progress_topic_stay(filled: OneSink) -> None:
    with_rows(filled)
    other = SinkId(filled.name, "other")
    admin = Admin(filled.connection)
    remaining = replace(filled.settings(), id=other, data=replace(filled.settings().data, name=f"{filled.data}-2"))
    filled.starter("run-o", id=other, data=remaining.data).start().hold.close()
    remove(filled)
    keys = topics.progress_truth(filled.servers, filled.progress)
    mine = f"sinkpipeline/v1/{filled.name}/"
    assert {key.split("/")[3] for key, value in keys.items() if key.startswith(mine) and value is not None} == {"other"}
    assert admin.topics([remaining.data.name])[remaining.data.name] is not None


def test_the_progress_of_another_owner_stays(filled: OneSink) -> None:
    with_rows(filled)
    before = filled.truth()
    theirs = filled.settings(owner=Owner(cluster="another", name="shop/orders"))
    refusal(lambda: remove(filled, theirs), Reason.IDENTITY_IN_USE)
    assert filled.truth() == before


@pytest.mark.parametrize("goes", ["records", "topic"])
def test_a_data_topic_whose_progress_is_gone_stays_and_is_told(filled: OneSink, goes: str) -> None:
    with_rows(filled)
    if goes == "topic":
        topics.delete_topic(filled.servers, filled.progress)
    else:
        keys = [f"{filled.id.prefix}{key}".encode() for key in left(filled)]
        topics.produce(filled.servers, filled.progress, [(key, None) for key in keys])
    kept = remove(filled)
    assert kept is not None
    assert (kept.name, "it has no progress" in kept.why) == (filled.data, True)
    assert exists(filled, filled.data)


def test_a_driver_that_runs_cannot_write_any_more(filled: OneSink) -> None:
    started = filled.start()
    deliver(filled, started, range(10))
    remove(filled)
    with pytest.raises(SinkPipelineError) as caught:
        deliver(filled, started, range(10, 20))
    assert caught.value.reason is Reason.TOPICS_CHANGED
    assert left(filled) == {}


def test_a_removal_that_was_killed_in_between_is_finished_by_the_next(
    filled: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rows(filled)

    def crash() -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        once("removal-before-tombstones", crash, patched)
        with pytest.raises(RuntimeError, match="killed"):
            remove(filled)
    assert not exists(filled, filled.data)
    assert filled.truth()["meta"]["created"] is not None
    remove(filled)
    assert left(filled) == {}


def test_progress_that_contradicts_itself_is_removed_too(filled: OneSink) -> None:
    with_rows(filled)
    key = filled.id.partition_key(filled.at(0))
    topics.produce(filled.servers, filled.progress, [(key.encode(), b'{"v":1,"epoch":7}')])
    remove(filled)
    assert left(filled) == {}


# Whose the data topic is


def beside(sink: OneSink, **changes: Any) -> SinkSettings:
    """Another pipeline that delivers into the same data topic."""
    name = f"{sink.name}-beside"
    return sink.settings(id=SinkId(name, "out"), owner=Owner(cluster="file", name=name), **changes)


def start(settings: SinkSettings) -> StartedSink:
    admin = Admin(settings.connection)
    started = SinkStarter(ports=ports(settings, admin, admin)).start()
    started.hold.close()
    return started


def test_of_two_that_ask_for_a_topic_at_once_one_has_created_it(sink: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = Barrier(2)
    create = Admin.create_topic

    def at_once(admin: Admin, request: TopicRequest) -> Creation:
        if request.name == sink.data:
            # Both have seen that it is missing.
            barrier.wait(30)
        return create(admin, request)

    monkeypatch.setattr(Admin, "create_topic", at_once)
    apart = replace(sink.settings().progress, name=f"{sink.name}-progress-2")
    both = [sink.settings(), beside(sink, progress=apart)]
    with ThreadPoolExecutor(2) as pool:
        metas = [started.progress.meta for started in pool.map(start, both)]
    created = [None if meta is None else meta.created for meta in metas]
    assert sorted(created, key=str) == sorted([None, topics.topic_id(sink.servers, sink.data)], key=str)

    loser = both[created.index(None)]
    assert removal(loser).doomed() == ()
    remove(sink, loser)
    assert exists(sink, sink.data)


def test_a_topic_whose_creation_was_not_confirmed_stays(filled: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Admin._create
    unconfirmed = {filled.data}

    def lose_the_answer(admin: Admin, request: TopicRequest, **how: bool) -> Future[None]:
        future = create(admin, request, **how)
        if request.name not in unconfirmed:
            return future
        unconfirmed.remove(request.name)
        future.result(30)
        lost: Future[None] = Future()
        lost.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return lost

    monkeypatch.setattr(Admin, "_create", lose_the_answer)
    with_rows(filled)
    remove(filled)
    assert left(filled) == {}
    assert len(filled.delivered()) == 20


def test_a_deletion_that_got_no_answer_is_not_repeated_on_somebody_elses_topic(
    filled: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Admin._delete
    to_lose = {filled.data}

    def lose_the_answer(admin: Admin, name: str) -> Future[None]:
        future = delete(admin, name)
        if name not in to_lose:
            return future
        to_lose.remove(name)
        future.result(30)
        topics.create_topic(filled.servers, name, partitions=1)
        lost: Future[None] = Future()
        lost.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
        return lost

    monkeypatch.setattr(Admin, "_delete", lose_the_answer)
    with_rows(filled)
    refusal(lambda: remove(filled), Reason.TOPICS_CHANGED)
    assert to_lose == set()
    kept = remove(filled)
    assert kept is not None
    assert "created it again" in kept.why
    assert exists(filled, filled.data)


def test_a_topic_into_which_another_pipeline_delivers_stays(filled: OneSink) -> None:
    with_rows(filled)
    assert removal(filled.settings()).doomed() == (filled.data,)
    start(beside(filled))
    assert removal(filled.settings()).doomed() == ()
    remove(filled)
    assert left(filled) == {}
    assert exists(filled, filled.data)


def test_a_topic_goes_once_the_other_pipeline_is_removed(filled: OneSink) -> None:
    with_rows(filled)
    start(beside(filled))
    remove(filled, beside(filled))
    assert exists(filled, filled.data)
    remove(filled)
    assert not exists(filled, filled.data)


@pytest.mark.parametrize("point", ["starting-after-meta", "starting-before-first-start"])
def test_who_created_a_topic_and_was_killed_on_its_first_start_has_created_it(
    filled: OneSink, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash() -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        once(point, crash, patched)
        with pytest.raises(RuntimeError, match="killed"):
            filled.start()
    with_rows(filled)
    remove(filled)
    assert not exists(filled, filled.data)


def test_who_is_fenced_after_the_creation_knows_of_it(filled: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    def fence() -> None:
        TransactionalProducer(filled.connection, filled.id.control_id).close()

    once("starting-after-data-topic", fence, monkeypatch)
    with_rows(filled)
    assert filled.truth()["meta"]["created"] == topics.topic_id(filled.servers, filled.data)
