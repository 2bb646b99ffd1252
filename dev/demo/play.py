"""`make demo`: a SinkPipeline on a real API server, its driver killed, its topics deleted, and every row counted.

A real broker, real data (336,776 flights), a real API server with the operator under the rights of its account, real
Spark, and an independent consumer that counts. What runs drivers here plays Kubeflow's Spark operator: pods are
processes of this machine. Once everything is built it takes about two minutes, and leaves nothing behind.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import pandas as pd
import yaml
from typing_extensions import override

from demo import data
from demo.audit import Broker
from demo.changes import changes_demo
from demo.stage import DELIVERY_S, REACTION_S, START_S, FlightsStage, Stage
from demo.story import Story
from demo.streams import EXAMPLES, stream_demo
from demo.table import table_demo
from deployed.cluster import ROOT, Kubernetes
from servers.local_kafka import LocalKafka

COMMAND: Final = Path(sys.executable).with_name("sinkpipeline")
EXAMPLE: Final = ROOT / "examples" / "flights.yaml"
_SOURCE: Final = "source-"
"""Before the name of a kind that is a source."""
APPENDED: Final = 20_000
MIDDLE: Final = (0.1, 0.9)

COMMAND_S: Final = 100.0
FAST_POLL_S: Final = 0.002
SLOW_POLL_S: Final = 1.5


class Demo(FlightsStage):
    def __init__(self, story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path) -> None:
        super().__init__(story, broker, kubernetes, directory, yaml.safe_load(EXAMPLE.read_text()))
        [sink] = self._document["spec"]["sinks"]
        kafka = sink["kafka"]
        self._data: str = kafka["topic"]["name"]
        self._dead_letters: str = sink["deadLetter"]["topic"]["name"]
        self._progress: str = kafka["progressTopic"]["name"]
        self._bad = directory / "bad.yaml"

    @override
    def play(self) -> None:
        flights = self.load()
        self.refuse_bad_manifest()
        self.apply()
        self.kill()
        self.lose_progress()
        self.append(flights.head(APPENDED))
        self.lose_data()
        self._story.table(self._audits)

    def refuse_bad_manifest(self) -> None:
        story = self._story
        story.step("A manifest with two mistakes")
        document = yaml.safe_load(self._manifest.read_text())
        document["spec"]["sinks"][0]["deliveryGuarantee"] = "ExactlyTwice"
        document["spec"]["trigger"]["interval"] = "soon"
        self._bad.write_text(yaml.safe_dump(document, sort_keys=False))
        story.typed(f"kubectl apply -f {self._bad.name}")
        said = self._kubernetes.refused(self._bad)
        story.show(said)
        story.check(
            "the API server refuses it, and names both",
            holds="deliveryGuarantee" in said and "interval" in said,
        )

    def kill(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("Killing the driver while it delivers")
        kubernetes.wait_for(f"{MIDDLE[0]:.0%} are delivered", DELIVERY_S, self._in_the_middle, 0.05)
        kubernetes.wait_for("a transaction is open", DELIVERY_S, self._in_a_transaction, FAST_POLL_S)
        killed = kubernetes.kill_driver(self.name)
        story.say(f"kill -9 for the driver, its JVM and its Python workers: {killed} processes")
        story.say(f"{self._broker.open_records(self._data):,} rows are left in transactions that nobody ended")
        delivered = self._broker.audit(self._data, self._expected).delivered
        story.check(f"{delivered:,} of {len(self._expected):,} rows were delivered", holds=delivered > 0)
        kubernetes.wait_for("the operator has noted it", REACTION_S, self._has_restarts)
        self._get("-o", "wide")
        story.say("the operator starts it again after its backoff of 5 s")
        kubernetes.wait_for("the rest is delivered", START_S + DELIVERY_S, self._is_all_delivered, SLOW_POLL_S)
        self._audit("driver killed, started again")

    def lose_progress(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step(f"Deleting the progress topic {self._progress} while the pipeline runs")
        kubernetes.wait_for("the pipeline is Ready", REACTION_S, self._is_ready)
        before, old_id = self._frontier(), self._broker.topic_id(self._progress)
        self._broker.delete(self._progress)
        story.say(f"the topic with the id {old_id} is deleted")
        new_id = kubernetes.wait_for("the progress topic is back", REACTION_S, lambda: self._other_topic(old_id))
        story.say(f"a topic with the id {new_id} has taken its place")
        kubernetes.wait_for(
            "the status knows it", REACTION_S, lambda: self._sink().get("progressTopicId") == new_id or None
        )
        kubernetes.wait_for("the pipeline is Ready", REACTION_S, self._is_ready)
        self._events("ProgressTopicRecreated")
        after = self._frontier()
        story.check(f"the frontier is the same as before: {after}", holds=before == after and bool(after))

    def append(self, flights: pd.DataFrame) -> None:
        self._story.step(f"Appending {len(flights):,} records to {self._source}")
        more = data.with_ids(flights, first=self._broker.records(self._source))
        data.produce_broken(self._broker.bootstrap_servers, self._source)
        data.produce(more, self._broker.bootstrap_servers, self._source)
        self._story.say(f"and {len(data.BROKEN)} before them that are no flights")
        self._expected |= data.expected_rows(more)
        self._kubernetes.wait_for("they are delivered", DELIVERY_S, self._is_all_delivered, SLOW_POLL_S)
        self._audit("progress topic deleted")
        self._show_dead_letters()

    def _show_dead_letters(self) -> None:
        story, found = self._story, self._broker.values(self._dead_letters)
        story.check(
            f"the {len(found)} that are none stand in {self._dead_letters}, byte for byte, each once",
            holds=Counter(found) == Counter(data.BROKEN),
        )
        story.typed(f"sinkpipeline dlq list -f {self._manifest.name}")
        story.show(self._command("dlq", "list", "-f", str(self._manifest)))

    def lose_data(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step(f"Deleting the data topic {self._data} while the pipeline runs")
        self._broker.delete(self._data)
        kubernetes.wait_for("the pipeline has Failed", 2 * REACTION_S, self._has_failed)
        self._get()
        message = kubernetes.condition(self.name, "Stalled").get("message", "")
        story.typed(f"kubectl get sinkpipeline {self.name} -o jsonpath=... (the condition Stalled)")
        story.show(message)
        story.check(
            "it refuses to go on: the sink is Failed with DataTopicLost",
            holds=self._sink().get("error", {}).get("reason") == "DataTopicLost",
        )
        story.check("nobody created the topic again", holds=self._broker.topic_id(self._data) is None)

    def _audit(self, title: str) -> None:
        self._audited(title, self._broker.audit(self._data, self._expected))

    def _frontier(self) -> list[int]:
        """The next offset of each source partition, as `sinkpipeline progress` reads it from the progress topic."""
        return [line["next"] for line in json.loads(self._command("progress", "-f", str(self._manifest), "-o", "json"))]

    @staticmethod
    def _command(*arguments: str) -> str:
        command = [str(COMMAND), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=True).stdout

    def _is_all_delivered(self) -> bool | None:
        return self._broker.audit(self._data, self._expected).missing == 0 or None

    def _knows_topic(self, topic_id: str) -> bool | None:
        return self._sink().get("progressTopicId") == topic_id or None

    def _has_failed(self) -> bool | None:
        return self._kubernetes.status(self.name).get("phase") == "Failed" or None

    def _in_the_middle(self) -> bool | None:
        if self._broker.topic_id(self._data) is None:
            return None
        committed = self._broker.records(self._data) - self._broker.open_records(self._data)
        return committed >= MIDDLE[0] * len(self._expected) or None

    def _in_a_transaction(self) -> bool | None:
        return self._broker.open_records(self._data) > 0 or None

    def _other_topic(self, old_id: str | None) -> str | None:
        topic_id = self._broker.topic_id(self._progress)
        return None if topic_id == old_id else topic_id


@contextmanager
def _interruptible() -> Iterator[None]:
    """Whatever ends us also cleans up; and while that is done, nothing interrupts it."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, _frame: object) -> NoReturn:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _play(story: Story, directory: Path, kind: str) -> None:
    story.step("Starting a Kafka broker")
    with LocalKafka() as kafka:
        story.say(f"it listens on {kafka.bootstrap_servers}")
        story.step("Starting a Kubernetes API server, and the operator of deploy/install.yaml")
        namespace = yaml.safe_load(EXAMPLE.read_text())["metadata"]["namespace"]
        with Kubernetes(directory, namespace) as kubernetes:
            story.say("they run")
            broker = Broker(kafka.bootstrap_servers)
            with _DEMOS[kind](story, broker, kubernetes, directory) as demo:
                try:
                    demo.play()
                except Exception:
                    story.show(kubernetes.tails(demo.name))
                    raise


_DEMOS: Mapping[str, Callable[[Story, Broker, Kubernetes, Path], AbstractContextManager[Stage]]] = {
    "kafka": lambda *of: nullcontext(Demo(*of)),
    "postgresql": table_demo,
    **{kind: partial(stream_demo, kind) for kind in EXAMPLES},
    **{f"{_SOURCE}{kind}": partial(changes_demo, kind) for kind in ("postgresql", "mysql", "mariadb")},
}


def _asked(kind: str) -> str:
    """As a person asks for it."""
    source = kind.removeprefix(_SOURCE)
    return f"SINK={kind}" if source == kind else f"SOURCE={source}"


def main(kind: str = "kafka") -> int:
    """`kind`: what `SINK` says, or `source-` and what `SOURCE` says."""
    story = Story()
    if kind not in _DEMOS:
        story.problems.append(f"there is no demo with {_asked(kind)}: write one of {', '.join(map(_asked, _DEMOS))}")
        return story.end()
    with _interruptible():
        try:
            with tempfile.TemporaryDirectory(prefix="sinkpipeline-demo-") as directory:
                _play(story, Path(directory), kind)
        except KeyboardInterrupt as interrupt:
            story.problems.append(f"it was interrupted ({interrupt})")
        except Exception as error:  # noqa: BLE001 - whatever it is, the demo has failed, and says so in its last line
            story.problems.append(f"{type(error).__name__}: {error}")
        return story.end()
