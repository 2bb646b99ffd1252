"""The steps in which the operator has a pipeline's sinks removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from sinkpipeline.core.changes.dropping import Kept
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.sinks.removal import KeptTopic
from sinkpipeline_operator.child.remedies import without_topics
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.observe import kafka_view
from sinkpipeline_operator.observe.kafka_clients import KafkaClients
from sinkpipeline_operator.observe.kafka_view import KafkaView, Question, Removal
from support.resource.manifests import KAFKA, SINK, changed, smallest
from support.waiting import wait_until

REF = Ref("shop", "orders")
QUESTION = cast("Question", SimpleNamespace(ref=REF, lane=frozenset({"kafka:9092"})))
TROUBLE = SinkPipelineError(Reason.BROKER_UNREACHABLE, "no answer", "wait")


class Kafka:
    """Removals as they are asked for; one raises what stands in `errors`."""

    def __init__(self) -> None:
        self.carried_out: list[frozenset[str] | None] = []
        self.errors: list[SinkPipelineError] = []

    def removal(self, *, announced: frozenset[str] | None, **_: Any) -> SimpleNamespace:
        def carry_out() -> None:
            if self.errors:
                raise self.errors.pop()
            self.carried_out.append(announced)

        settings = SimpleNamespace(data=SimpleNamespace(name="orders-out"))
        return SimpleNamespace(doomed=lambda: ("orders-out",), carry_out=carry_out, settings=settings)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    kafka = Kafka()
    sink = Mock(spec=KafkaSettings, connection=None)
    monkeypatch.setattr(kafka_view, "SinkRemoval", kafka.removal)
    monkeypatch.setattr(KafkaClients, "admin", lambda *_: None)
    monkeypatch.setattr(KafkaView, "opened", lambda *_: nullcontext(kafka_view.Opened(sinks=[sink])))
    return kafka


class Asking:
    def __init__(self, view: KafkaView, question: Question = QUESTION) -> None:
        self.view = view
        self.question = question

    def __call__(self, announced: tuple[str, ...] | None) -> Removal:
        """Asks, and waits until what that has begun has come to an end."""
        found = self.view.remove(self.question, announced)
        wait_until(lambda: REF not in self.view._asked, "nothing goes on")
        return found


@pytest.fixture
def ask(kafka: Kafka) -> Iterator[Asking]:  # noqa: ARG001 - it is asked
    with KafkaView(every_s=1.0, tell=lambda _: None) as view:
        yield Asking(view)


def test_nothing_is_removed_before_it_was_told(kafka: Kafka, ask: Asking) -> None:
    assert ask(None) == Removal(done=False)
    for _ in range(2):
        assert ask(None) == Removal(done=False, doomed=("orders-out",))
    assert kafka.carried_out == []
    ask(("orders-out",))
    assert ask(("orders-out",)) == Removal(done=True)
    assert kafka.carried_out == [frozenset({"orders-out"})]


def test_after_an_error_it_is_looked_again_after_a_while(
    kafka: Kafka, ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.errors.append(TROUBLE)
    ask(None)
    ask(("orders-out",))
    assert ask(None) == ask(None) == Removal(done=False, error=TROUBLE), "not before some seconds have passed"
    monkeypatch.setattr(kafka_view, "_REMOVE_AGAIN_S", 0)
    assert ask(None) == Removal(done=False, error=TROUBLE), "while it is looked again"
    assert ask(None) == Removal(done=False, doomed=("orders-out",))


def test_a_sink_whose_progress_is_another_pipelines_leaves_the_others_to_go(
    kafka: Kafka, ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Mock(spec=KafkaSettings, connection=None)
    monkeypatch.setattr(KafkaView, "opened", lambda *_: nullcontext(kafka_view.Opened(sinks=[sink, sink])))
    theirs = SinkPipelineError(Reason.IDENTITY_IN_USE, "identity a belongs to b", "use another one")
    kafka.errors.append(theirs)
    ask(("orders-out",))
    removal = ask(("orders-out",))
    assert removal == Removal(done=True, kept=(KeptTopic("orders-out", theirs.message),))
    assert kafka.carried_out == [frozenset({"orders-out"})]


def test_a_pipeline_that_came_again_is_not_removed_yet(kafka: Kafka, ask: Asking) -> None:
    for _ in range(2):
        ask(())
    assert ask(()) == Removal(done=True)
    ask.view.forget_removal(REF)
    ask(())
    assert len(kafka.carried_out) == 2


def test_a_stage_is_removed_before_the_sinks(kafka: Kafka, ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its database is away nothing is; what stays there is told."""
    done: list[str] = []
    kept = Kept("slot", "s", "it was there before")

    def stage(_stage: object, _admin: object, announced: frozenset[str] | None) -> SimpleNamespace:
        def carry_out() -> None:
            if away:
                raise away.pop()
            done.append(f"stage, and {len(kafka.carried_out)} sinks before; announced: {sorted(announced or ())}")

        return SimpleNamespace(doomed=lambda: ("changes", "slot s"), carry_out=carry_out, kept=[kept])

    away = [SinkPipelineError(Reason.SOURCE_UNREACHABLE, "it is away", "wait")]
    sink = Mock(spec=KafkaSettings, connection=None)
    opened = kafka_view.Opened(sinks=[sink], stage=Mock(kafka=None))
    monkeypatch.setattr(KafkaView, "opened", lambda *_: nullcontext(opened))
    monkeypatch.setattr(kafka_view, "stage_removal", stage)
    monkeypatch.setattr(kafka_view, "_REMOVE_AGAIN_S", 0)
    ask(None)
    doomed = ("changes", "slot s", "orders-out")
    assert ask(None).doomed == doomed
    ask(doomed)
    failed = ask(doomed)
    assert failed.error is not None
    assert failed.error.reason is Reason.SOURCE_UNREACHABLE
    assert ask(doomed) == Removal(done=True, kept_in_database=(kept,))
    assert done == [f"stage, and 0 sinks before; announced: {sorted(doomed)}"]
    assert kafka.carried_out == [frozenset(doomed)]


@pytest.mark.parametrize("whose", ["the source's", "a sink's"])
def test_the_operator_logs_in_nowhere_as_itself(whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At an address of the manifest's author, by what the operator's pod has: neither to look nor to remove."""
    auth = {"tls": {}, "sasl": {"mechanism": "AWS_MSK_IAM", "awsMskIam": {"region": "eu-central-1"}}}
    at = KAFKA if whose == "the source's" else (*SINK, "kafka")
    more = () if whose == "the source's" else (((*at, "bootstrapServers"), "msk:9098"),)
    pipeline = parse_manifest(changed(smallest(), ((*at, "auth"), auth), *more))
    question = Question(ref=REF, pipeline=pipeline, config_hash="", status={}, secrets={}, cluster="")
    asked: list[object] = []
    monkeypatch.setattr(KafkaClients, "admin", asked.append)
    with KafkaView(every_s=1.0, tell=lambda _: None) as view:
        found = view._find(question)
        removal = Asking(view, question)(None)
        removal = Asking(view, question)(None)
    assert (found.topics.status, found.topics.reason) == ("Unknown", "NotServed")
    assert removal.error is not None
    assert removal.error.reason is Reason.NOT_SERVED
    assert without_topics(REF) in removal.error.remedy
    assert not removal.done
    assert asked == []
