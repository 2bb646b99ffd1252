"""Topics that go under a running pipeline, between two runs and in the last batch: what is delivered, what is told."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.progress_records import encode_meta
from support.app.command import BY_TASKS, App, last_line, manifest, sink
from support.app.stopped import StoppedPipeline
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.kafka.topics import topic_id, unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

PATIENCE_S = 180.0
WEAK = {"guarantee": "AtLeastOnce"}


def failed(app: App) -> dict[str, str]:
    """Of every sink that has failed, why."""
    return {each["name"]: each["error"]["reason"] for each in app.status()["sinks"] if each["state"] == "Failed"}


def conditions(app: App) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in app.status()["conditions"]}


@dataclass(frozen=True)
class Names:
    """The topics of a pipeline whose sinks have each their own, unless they share a progress topic."""

    pipeline: str

    def data(self, sink: str) -> str:
        return f"{self.pipeline}-{sink}-out"

    def progress(self, sink: str) -> str:
        return f"{self.pipeline}-{sink}-progress"

    def sink(self, name: str, progress: str | None = None, **more: Any) -> dict[str, Any]:
        return sink(name, topic=self.data(name), progressTopic={"name": self.progress(progress or name)}, **more)


@pytest.mark.thorough(
    "six sinks with Spark; each topic that goes is in tests/kafka/test_topic_faults, and told in tests/kube"
)
def test_topics_that_go_while_a_pipeline_runs(kafka: LocalKafka, tmp_path: Path) -> None:
    servers, names = kafka.bootstrap_servers, Names(unique("running"))
    source = Stream(servers, f"{names.pipeline}-in", partitions=2).create()
    sinks = [
        *(names.sink("one", "shared"), names.sink("two", "shared"), names.sink("weak", **WEAK)),
        *(names.sink("gone"), names.sink("empty", **WEAK), names.sink("wrong")),
    ]
    document = manifest(servers, names.pipeline, [source.topic], sinks=sinks, trigger={"interval": "1s"})
    app = App(tmp_path, document)
    source.feed(20)

    with app.start() as run:
        run.eventually(lambda: app.rows_delivered() == 6 * source.total, "all have delivered", PATIENCE_S)
        before = {topic: topic_id(servers, topic) for topic in map(names.progress, ("shared", "weak"))}
        for topic in (*before, names.data("gone")):
            topics.delete_topic(servers, topic)
        topics.recreate_topic(servers, names.data("empty"), partitions=3)
        topics.recreate_topic(servers, names.progress("wrong"), config={"cleanup.policy": "delete"})
        refused = {"gone": "DataTopicLost", "empty": "DataTopicLost", "wrong": "ProgressTopicInvalid"}
        run.eventually(lambda: failed(app) == refused, "three sinks have failed", PATIENCE_S)

        def are_back() -> bool:
            return all(topic_id(servers, topic) not in (None, old) for topic, old in before.items())

        run.eventually(are_back, "their progress topics are there again", PATIENCE_S)
        run.eventually(lambda: app.status()["totals"]["sinksReady"] == "3/6", "the others run again", PATIENCE_S)

        source.feed(20)
        run.eventually(lambda: app.rows_delivered() == 3 * 80 + 3 * 40, "the others have delivered", PATIENCE_S)
        for each in ("one", "two", "weak"):
            assert source.judge(names.data(each)) == EXACTLY_ONCE, each
        assert conditions(app)["TopicsReady"]["status"] == "False"
        assert conditions(app)["ExactlyOnce"]["reason"] == "AtLeastOnceRequested", "an exact frontier was written back"
        assert "weak: ProgressTopicRecreated" in run.stderr
        assert "one: ProgressTopicRecreated" in run.stderr or "two: ProgressTopicRecreated" in run.stderr

        # So that the driver never sees the moment in between, in which the topic is missing.
        os.kill(run.pid, signal.SIGSTOP)
        topics.recreate_topic(servers, source.topic, partitions=2)
        os.kill(run.pid, signal.SIGCONT)
        assert run.wait(PATIENCE_S) == 3, run.stderr
        recreated = f"SourceRecreated: source topic {source.topic} was deleted and created"
        assert last_line(run.stderr).startswith(recreated), run.stderr

    assert failed(app) == refused | dict.fromkeys(("one", "two", "weak"), "SourceRecreated")


@pytest.mark.long("starts of Spark; test_topics_that_go_while has it, tests/kafka/test_starting each row of the policy")
def test_topics_that_went_while_nothing_ran(kafka: LocalKafka, tmp_path: Path) -> None:
    """Each sink of one pipeline meets another fault; those that can go on do, and the others say why they don't."""
    servers, names = kafka.bootstrap_servers, Names(unique("stopped"))
    source = Stream(servers, f"{names.pipeline}-in", partitions=2).create()
    expected = {
        **dict.fromkeys(("gone", "empty", "gone-weak"), "DataTopicLost"),
        **dict.fromkeys(("split", "shortened"), "ProgressTopicInvalid"),
        **dict.fromkeys(("copied", "other-source"), "ProgressLost"),
        "newer": "ProgressVersionUnknown",
        "garbled": "ProgressCorrupt",
        "behind": "ProgressRegressed",
        "theirs": "IdentityInUse",
    }
    goes_on = [names.sink("fine"), names.sink("one", "shared"), names.sink("two", "shared"), names.sink("weak", **WEAK)]
    sinks = [*goes_on, *(names.sink(what, **(WEAK if what == "gone-weak" else {})) for what in expected)]
    document = manifest(servers, names.pipeline, [source.topic], sinks=sinks, trigger={"interval": "1s"})
    app = App(tmp_path, document)
    source.feed(20)
    stopped = StoppedPipeline(app, source, delivered=10)

    def write(what: str, key: str, value: bytes) -> None:
        topics.produce(servers, names.progress(what), [(f"{stopped.sinks[what].id.prefix}{key}".encode(), value)])

    for what in ("gone", "gone-weak"):
        topics.delete_topic(servers, names.data(what))
    topics.recreate_topic(servers, names.data("empty"), partitions=3)
    for what in ("shared", "weak", "other-source"):
        topics.delete_topic(servers, names.progress(what))
    stopped.misremember("other-source", lambda found: found["frontier"][0].update(topicId="another"))
    topics.add_partitions(servers, names.progress("split"), 2)
    topics.alter_topic(servers, names.progress("shortened"), {"cleanup.policy": "compact,delete"})
    copy = [(record.key, record.value) for record in topics.read_committed(servers, names.progress("copied"))]
    topics.recreate_topic(servers, names.progress("copied"), config=topics.COMPACTED)
    topics.produce(servers, names.progress("copied"), copy)
    write("newer", "meta", b'{"v":3}')
    write("garbled", f"p/{source.topic}/0", b"{")
    stopped.misremember("behind", lambda found: found["frontier"][0].update(next=[11, 0]))
    theirs = stopped.progress["theirs"].meta
    assert theirs is not None
    write("theirs", "meta", encode_meta(replace(theirs, owner=replace(theirs.owner, name="other/pipeline"))))

    with app.start("--until-idle") as run:
        assert run.wait(PATIENCE_S) == 3, run.stderr
        assert last_line(run.stderr).startswith("DataTopicLost: ")

    assert failed(app) == expected
    assert {each["name"] for each in app.status()["sinks"] if each["state"] == "Suspended"} == {
        "fine",
        "one",
        "two",
        "weak",
    }
    for what in ("fine", "one", "two", "weak"):
        assert source.judge(names.data(what)) == EXACTLY_ONCE, what
    told = conditions(app)
    assert (told["ExactlyOnce"]["status"], told["ExactlyOnce"]["reason"]) == ("Unknown", "ProgressRestored")
    at_most = "the rows of at most 30 records"
    assert f"one: {at_most} may be duplicated; two: {at_most}" in told["ExactlyOnce"]["message"]
    assert told["TopicsReady"]["status"] == "False"
    for what, reason in expected.items():
        found = app.sink_status(what)
        assert found["error"]["remedy"], what
        assert f"{what}: {reason}: {found['error']['message']}" in told["SinksHealthy"]["message"]
        assert found["rowsDelivered"] == 10, "what was known is not forgotten"
    assert topic_id(servers, names.data("gone")) is None
    assert topic_id(servers, names.data("gone-weak")) is None
    assert topic_id(servers, names.progress("other-source")) is None


@pytest.mark.long("starts of Spark; test_topics_that_go_while_a_pipeline_runs is beside it")
def test_topics_that_go_in_the_last_batch_of_a_run(kafka: LocalKafka, tmp_path: Path) -> None:
    servers, name = kafka.bootstrap_servers, unique("last")
    # One task: another one that begins only after the topic went is refused, and its rows wait.
    source = Stream(servers, f"{name}-in", partitions=1).create()
    app = App(tmp_path, manifest(servers, name, [source.topic], spark=BY_TASKS))

    def stop_in_a_batch(topic: str, **config: Any) -> tuple[int, str]:
        source.feed(20)
        app.arm("after-progress-before-commit")
        with app.start() as run:
            run.until_held("after-progress-before-commit")
            before = topic_id(servers, topic)
            topics.recreate_topic(servers, topic, **config)
            os.kill(run.pid, signal.SIGTERM)
            app.disarm()
            code = run.wait()
            assert topic_id(servers, topic) != before
            return code, run.stderr

    code, told = stop_in_a_batch(f"{name}-progress", config=topics.COMPACTED)
    assert code == 0, told
    # What the driver knew for certain is in the new topic: nobody needs its status.
    app.status_file.unlink()

    code, told = stop_in_a_batch(f"{name}-out", partitions=3)
    assert code == 3, told
    assert last_line(told).startswith(f"DataTopicLost: data topic {name}-out is lost: it was re-created while")
    assert app.sink_status()["state"] == "Failed"
    assert app.rows_delivered() == source.total, "nothing was delivered twice"
