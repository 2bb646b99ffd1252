"""Whose progress it is: two pipelines with one identity, the adoption by annotation, and two into one data topic.

All in one story, as each of its four drivers is a real Spark.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.app.command import sink
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE, Verdict, judge
from support.kube.spark_pipeline import START_S, Pipeline

pytestmark = [pytest.mark.kube, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(420)]


@pytest.mark.long("four drivers with Spark; test_operator_topics and tests/kafka/test_starting have other owners")
def test_an_identity_has_one_owner_and_a_data_topic_may_have_two(new_pipeline: Callable[..., Pipeline]) -> None:
    owner = new_pipeline()
    owner.apply(identity=f"shared.{owner.name}", deletionPolicy="Delete")
    # The same rows into the same topic, under an identity of its own, and to be told apart there.
    guest = new_pipeline(like=owner)
    guest.document["spec"].pop("identity")
    guest.progress = f"{guest.name}-progress"
    marked = {"select": {"value": "concat('guest-', CAST(value AS STRING))"}}
    guest.apply(sinks=[sink(guest.name, topic=owner.data)], transform=marked, deletionPolicy="Retain")

    def verdict() -> Verdict:
        both = owner.stream.rows | {f"guest-{row}" for row in owner.stream.rows}
        return judge(topics.read_committed(owner.servers, owner.data), both)

    def until_both_delivered() -> None:
        owner.until(lambda: verdict().missing == 0, "each row is delivered by both", START_S)
        assert verdict() == EXACTLY_ONCE

    owner.stream.feed(200)
    owner.until_ready()
    guest.until_ready()
    until_both_delivered()

    # The owner keeps it, whoever else comes, and says who that is.
    other = new_pipeline(like=owner)
    patience = {"backoff": {"initial": "1s", "max": "5m"}}
    other.apply(deletionPolicy="Retain", failurePolicy=patience, restartNonce=1)
    other.until_condition("Stalled", "True IdentityInUse", START_S)
    # While the refused driver's pod goes, that is told.
    other.until_condition("Ready", "False IdentityInUse")
    other.until(lambda: other.status["phase"] == "Failed", "its phase is Failed")
    cluster, _, named = owner.owner.partition("/")
    assert f"{owner.identity} belongs to {named} of cluster {cluster}" in other.sink["error"]["message"]
    assert other.events("IdentityInUse")
    owner.stream.feed(200)
    until_both_delivered()
    assert owner.told("Ready") == "True Running"
    assert owner.status["restarts"]["total"] == 0

    # Told whose progress that is, the other one takes it over where it was.
    other.annotate(f"sinkpipeline.io/adopt-owner={owner.owner}")
    owner.stream.feed(200)
    # At once, not at the next look after a refusal.
    other.apply(restartNonce=2)
    other.until_ready()
    owner.stream.feed(200)
    owner.until_condition("Ready", "False Superseded")
    # Its driver says so before it ends.
    owner.until(lambda: owner.status["restarts"].get("lastExitCode") == 4, "its driver has ended with 4")
    until_both_delivered()
    assert other.counted() == owner.stream.total
    assert guest.told("Ready") == "True Running"
    assert guest.status["restarts"]["total"] == 0

    # What was its own is not any more: it takes nothing away when it goes.
    owner.delete()
    assert len(other.remembered()) == 1 + owner.stream.partitions
    owner.stream.feed(50)
    until_both_delivered()
