"""A pipeline whose driver answers, and of which no watch tells anything, costs the API server its Secrets alone."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from sinkpipeline.core.status import Condition
from sinkpipeline_operator import reconcile
from sinkpipeline_operator.kube.client import PIPELINE, SECRET, Kind, Ref
from sinkpipeline_operator.observe.kafka_view import Found, Question
from support.kube.fuzz import ANSWER, RUNNING, SINK, SPEC
from support.kube.hostile import Hostile, Object

AUTH = {"sasl": {"mechanism": "PLAIN", "username": "u", "passwordSecretRef": {"name": "user", "key": "password"}}}
PASSWORD = Ref("shop", "user")
LIVES = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


class Rest:
    """A pipeline that runs, its clock, and what was asked of the API server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: 1_767_225_600.0 + self.now)
        monkeypatch.setattr(reconcile, "time", clock)
        self.lag: int | None = None
        self.asked_kafka = 0
        self.hostile = Hostile(kafka=SimpleNamespace(of=self.of_kafka, forget_removal=lambda _: None))
        self.calls: Counter[tuple[str, str]] = Counter()
        self.rows = 1
        check = self.hostile.api._check

        def counted(verb: str, kind: Kind) -> None:
            self.calls[verb, kind.plural] += 1
            check(verb, kind)

        monkeypatch.setattr(self.hostile.api, "_check", counted)
        self.put_password("c2VjcmV0")
        source = {"kafka": {**SPEC["source"]["kafka"], "auth": AUTH}}
        meta = {"name": "orders", "namespace": "shop"}
        api = {"apiVersion": "sinkpipeline.io/v1alpha1", "kind": "SinkPipeline"}
        self.hostile.api.put(PIPELINE, {**api, "metadata": meta, "spec": {**SPEC, "source": source}})
        self.hostile.says = self.answer
        self.hostile.look()
        self.hostile.run_child(RUNNING, LIVES)
        for _ in range(3):
            self.hostile.look()
        assert self.hostile.status["phase"] == "Running", self.hostile.status
        self.calls.clear()

    def put_password(self, text: str) -> None:
        document = {"metadata": {"name": PASSWORD.name, "namespace": PASSWORD.namespace}, "data": {"password": text}}
        self.hostile.api.put(SECRET, document)

    def answer(self, line: Any) -> bytes:
        keys = ("name", "state", "guarantee", "frontier", "epoch", "dataTopicId", "progressTopicId", "proved")
        counts = {"lag": 0, "deadLettered": 0, "dropped": 0, "lost": 0, "rowsDelivered": self.rows}
        sink = {key: SINK[key] for key in keys} | counts
        now = f"2026-01-01T{int(self.now) // 3600 % 24:02}:{int(self.now) // 60 % 60:02}:{int(self.now) % 60:02}Z"
        document = {**ANSWER, "now": now, "configHash": line.config_hash, "sinks": [sink]}
        document["executors"] = {"registered": 2, "wanted": 2}
        return _json(document)

    def of_kafka(self, question: Question) -> Found | None:
        self.asked_kafka += 1
        if self.lag is None:
            return None
        topics = Condition("True", "TopicsAsRequested", "")
        sinks = {SINK["name"]: {"frontier": SINK["frontier"], "lag": self.lag}}
        return Found(config_hash=question.config_hash, at=self.now, sinks=sinks, topics=topics)

    def suspend(self) -> None:
        """With the end of its driver, by whoever plays it."""
        api, resource = self.hostile.api, self.hostile.resource
        api.put(PIPELINE, {**resource, "spec": {**resource["spec"], "suspend": True}})
        self.hostile.look()
        api.objects = {key: each for key, each in api.objects.items() if key[0] not in ("pods", "sparkapplications")}
        self.hostile.look()
        assert self.hostile.status["phase"] == "Suspended", self.hostile.status
        self.calls.clear()

    def poll_for(self, seconds: float) -> int:
        """How often the driver was asked."""
        ends, asked = self.now + seconds, 0
        while self.now < ends:
            wait = self.hostile.reconciler.poll(self.hostile.ref)
            assert wait is not None
            self.now += max(0.1, wait)
            asked += 1
        return asked

    @property
    def others(self) -> dict[tuple[str, str], int]:
        """Calls that were not for its Secrets."""
        return {call: count for call, count in self.calls.items() if call != ("get", "secrets")}


def _json(document: Object) -> bytes:
    return json.dumps(document).encode()


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Rest:
    return Rest(monkeypatch)


def test_at_rest_only_secrets_are_read_and_the_driver_is_asked_less_often(rest: Rest) -> None:
    asked = rest.poll_for(1800)
    assert rest.others == {}
    assert rest.calls["get", "secrets"] <= 30, "once a minute"
    assert 115 <= asked <= 135, "every 15 s"


def test_counts_that_go_on_are_written_without_reading_anything(rest: Rest) -> None:
    for _ in range(20):
        rest.rows += 10
        rest.poll_for(30)
    assert set(rest.others) == {("status", "sinkpipelines")}
    assert 8 <= rest.others["status", "sinkpipelines"] <= 32
    assert rest.hostile.status["totals"]["rowsDelivered"] == rest.rows


def test_a_secret_that_was_changed_restarts_the_driver(rest: Rest) -> None:
    before = rest.hostile.status["sparkApplication"]["configHash"]
    rest.put_password("b3RoZXI=")
    rest.poll_for(120)
    assert (
        rest.hostile.child is None or rest.hostile.child["metadata"]["labels"]["sinkpipeline.io/config-hash"] != before
    )


def test_a_silent_driver_costs_a_look_in_ten_minutes(rest: Rest) -> None:
    rest.hostile.says = lambda _: None
    rest.poll_for(300)
    assert rest.hostile.status["phase"] == "Degraded", "it is told"
    rest.calls.clear()
    rest.poll_for(1800)
    assert rest.calls["get", "sparkapplications"] <= 3
    assert rest.calls["get", "secrets"] <= 40


def test_once_an_hour_everything_is_looked_at(rest: Rest) -> None:
    rest.poll_for(3700)
    assert rest.others[("get", "sparkapplications")] == 1


def test_a_suspended_pipeline_costs_its_secrets_and_what_kafka_says_is_told_all_the_same(rest: Rest) -> None:
    rest.suspend()
    asked = rest.asked_kafka
    rest.poll_for(300)
    assert rest.others == {}
    assert rest.calls["get", "secrets"] <= 6, "once a minute"
    assert rest.asked_kafka - asked >= 5, "so is Kafka"
    rest.lag = 7
    rest.poll_for(61)
    rest.calls.clear()
    rest.lag = 9
    rest.poll_for(61)
    assert rest.others == {("status", "sinkpipelines"): 1}
    assert [each["lag"] for each in rest.hostile.status["sinks"]] == [9]


def test_a_suspended_pipeline_that_is_resumed_is_looked_at(rest: Rest) -> None:
    rest.suspend()
    rest.poll_for(120)
    resource = rest.hostile.resource
    rest.hostile.api.put(PIPELINE, {**resource, "spec": {**resource["spec"], "suspend": False}})
    rest.hostile.look()
    assert rest.hostile.child is not None


def test_what_was_written_here_is_no_news(rest: Rest) -> None:
    reconciler, ref = rest.hostile.reconciler, rest.hostile.ref
    assert reconciler.has_seen(ref, rest.hostile.resource["metadata"]["resourceVersion"])
    rest.rows += 10
    rest.poll_for(70)
    assert reconciler.has_seen(ref, rest.hostile.resource["metadata"]["resourceVersion"])
    assert not reconciler.has_seen(ref, "another")
    assert not reconciler.has_seen(Ref("shop", "other"), "1")
