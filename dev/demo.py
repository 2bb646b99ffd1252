"""`make demo`: a pipeline is killed, its progress topic deleted, its data topic deleted; and every row is counted.

A real broker, real data (336,776 flights), the real `sinkpipeline` command with Spark, and an independent consumer that
counts. It takes one to three minutes, and leaves nothing behind.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import pandas as pd
import yaml
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

import demo_flights
from demo_audit import Audit, Broker
from demo_flights import Row
from demo_pipeline import Pipeline
from local_kafka import LocalKafka

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "flights.yaml"
PARTITIONS: Final = 4
APPENDED: Final = 20_000
MIDDLE: Final = (0.2, 0.8)
REFUSED: Final = 3

# How long each step may take on a slow and busy machine.
START_S: Final = 90.0
DELIVERY_S: Final = 150.0
REACTION_S: Final = 45.0
FAST_POLL_S: Final = 0.002


class Story:
    """Tells what happens, and keeps what went wrong."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self.problems: list[str] = []

    def step(self, title: str) -> None:
        self._console.print()
        self._line(f"[bold]{title}[/bold]")

    def say(self, text: str) -> None:
        self._line(f"  {text}")

    def check(self, sentence: str, *, holds: bool) -> None:
        self._line(f"  [green]ok[/green]     {sentence}" if holds else f"  [red]WRONG[/red]  {sentence}")
        if not holds:
            self.problems.append(sentence)

    def show(self, text: str) -> None:
        """Another program's words."""
        for line in text.rstrip().splitlines():
            self._console.print(f"{'':12}{line.rstrip()}", style="dim", markup=False)

    def table(self, audits: Mapping[str, Audit]) -> None:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("", no_wrap=True)
        for name in ("expected", "delivered", "duplicates", "missing", "wrong"):
            table.add_column(name, justify="right")
        for title, audit in audits.items():
            numbers = (audit.expected, audit.delivered, audit.duplicates, audit.missing, audit.wrong)
            table.add_row(title, *(f"{number:,}" for number in numbers), style="" if audit.exactly_once else "red")
        self._console.print()
        self._line("[bold]Counted by an independent read_committed consumer[/bold]")
        self._console.print(Padding(table, (0, 0, 0, 2)))

    def end(self) -> int:
        self._console.print()
        for problem in self.problems:
            self._console.print(f"problem: {problem}", style="red", markup=False)
        if self.problems:
            self._line("[bold red]FAILED[/bold red]")
            return 1
        self._line("[bold green]OK[/bold green]")
        return 0

    def _line(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:7.1f} s[/dim]  {text}")


class Demo:
    def __init__(self, story: Story, broker: Broker, pipeline: Pipeline) -> None:
        self._story = story
        self._broker = broker
        self._pipeline = pipeline
        spec = yaml.safe_load(EXAMPLE.read_text())["spec"]
        kafka = spec["sinks"][0]["kafka"]
        self._source: str = spec["source"]["kafka"]["topics"][0]
        self._data: str = kafka["topic"]["name"]
        self._progress: str = kafka["progressTopic"]["name"]
        self._expected: dict[int, Row] = {}
        self._audits: dict[str, Audit] = {}

    def play(self) -> None:
        flights = self.load()
        self.kill()
        self.resume()
        with self._pipeline.run():
            self.lose_progress()
            self.append(flights.head(APPENDED))
            self.lose_data()
        self._story.table(self._audits)

    def load(self) -> pd.DataFrame:
        self._story.step(f"Loading flights into the topic {self._source}")
        flights = demo_flights.flights()
        self._broker.create(self._source, PARTITIONS)
        demo_flights.produce(flights, self._broker.bootstrap_servers, self._source)
        self._expected = demo_flights.expected_rows(flights)
        loaded = self._broker.records(self._source)
        self._story.check(
            f"{loaded:,} records in {PARTITIONS} partitions; by pandas, {len(self._expected):,} are late departures",
            holds=loaded == len(flights) and bool(self._expected),
        )
        return flights

    def kill(self) -> None:
        story, pipeline = self._story, self._pipeline
        story.step(f"Running {EXAMPLE.name}, and killing it in the middle: sinkpipeline run -f {EXAMPLE.name}")
        with pipeline.run():
            pipeline.wait_for("Spark and the sink have started", START_S, self._is_running)
            story.say("it is running")
            pipeline.wait_for(f"{MIDDLE[0]:.0%} are delivered", DELIVERY_S, self._in_the_middle)
            aim = pipeline.processes()
            pipeline.wait_for("a transaction is open", DELIVERY_S, self._in_a_transaction, FAST_POLL_S)
            killed = pipeline.kill(aim)
        story.say(f"kill -9 for the driver, its JVM and its Python workers: {killed} processes")
        story.say(f"{self._broker.open_records(self._data):,} rows are left in transactions that nobody ended")
        delivered = self._broker.audit(self._data, self._expected).delivered
        low, high = (share * len(self._expected) for share in MIDDLE)
        story.check(f"{delivered:,} of {len(self._expected):,} rows were delivered", holds=low <= delivered <= high)
        story.step("What the dead pipeline knows: sinkpipeline progress")
        if self._broker.open_records(self._progress):
            story.say("a progress record is in such a transaction too: the broker gives that up after a minute")
        story.show(pipeline.progress_table())

    def resume(self) -> None:
        story, pipeline = self._story, self._pipeline
        story.step("Starting it again: sinkpipeline run --until-idle")
        with pipeline.run("--until-idle"):
            pipeline.wait_for("Spark and the sink have started", START_S, self._is_running)
            story.say(f"it goes on from source record {pipeline.handled():,} of {self._broker.records(self._source):,}")
            code = pipeline.exit_code(DELIVERY_S)
        story.check(f"it ended by itself with exit code {code}", holds=code == 0)
        self._audit("killed, started again")

    def lose_progress(self) -> None:
        story, pipeline = self._story, self._pipeline
        story.step(f"Deleting the progress topic {self._progress} while the pipeline runs")
        pipeline.wait_for("Spark and the sink have started", START_S, self._is_running)
        before, old_id = pipeline.progress(), self._broker.topic_id(self._progress)
        self._broker.delete(self._progress)
        story.say(f"the topic with the id {old_id} is deleted")
        new_id = pipeline.wait_for("the progress topic is back", REACTION_S, lambda: self._other_progress_topic(old_id))
        story.say(f"a topic with the id {new_id} has taken its place")
        after = pipeline.wait_for("the frontier is written back", REACTION_S, lambda: pipeline.progress() or None)
        story.show("\n".join(line for line in pipeline.stderr_lines() if "ProgressTopicRecreated" in line))
        story.show(pipeline.progress_table())
        frontier = ", ".join(f"{partition}: {line['next']}" for partition, line in after.items())
        story.check(
            f"the frontier is the same as before ({frontier}), and so are the counts",
            holds=len(before) == PARTITIONS and _facts(before) == _facts(after),
        )

    def append(self, flights: pd.DataFrame) -> None:
        story, pipeline = self._story, self._pipeline
        loaded = self._broker.records(self._source)
        story.step(f"Appending {len(flights):,} records to {self._source}")
        more = demo_flights.with_ids(flights, first=loaded)
        demo_flights.produce(more, self._broker.bootstrap_servers, self._source)
        self._expected |= demo_flights.expected_rows(more)
        end = self._broker.records(self._source)
        pipeline.wait_for("the frontier reaches the end", DELIVERY_S, lambda: pipeline.handled() == end or None)
        self._audit("progress topic deleted")

    def lose_data(self) -> None:
        story, pipeline = self._story, self._pipeline
        story.step(f"Deleting the data topic {self._data} while the pipeline runs")
        self._broker.delete(self._data)
        code = pipeline.exit_code(REACTION_S)
        last = (pipeline.stderr_lines() or [""])[-1]
        story.show(last)
        story.check(
            f"it refuses to go on: exit code {code}, and the last line names DataTopicLost",
            holds=code == REFUSED and last.startswith("DataTopicLost: "),
        )
        story.check("it did not create the topic again", holds=self._broker.topic_id(self._data) is None)

    def _audit(self, title: str) -> None:
        audit = self._audits[title] = self._broker.audit(self._data, self._expected)
        self._story.check(
            f"{audit.delivered:,} rows delivered, {audit.expected:,} expected: {audit.duplicates:,} duplicates, "
            f"{audit.missing:,} missing, {audit.wrong:,} wrong",
            holds=audit.exactly_once,
        )

    def _is_running(self) -> bool | None:
        return self._pipeline.sink().get("state") == "Running" or None

    def _in_the_middle(self) -> bool | None:
        return self._pipeline.sink().get("rowsDelivered", 0) >= MIDDLE[0] * len(self._expected) or None

    def _in_a_transaction(self) -> bool | None:
        return self._broker.open_records(self._data) > 0 or None

    def _other_progress_topic(self, old_id: str | None) -> str | None:
        topic_id = self._broker.topic_id(self._progress)
        return None if topic_id == old_id else topic_id


def _facts(progress: Mapping[int, Mapping[str, Any]]) -> dict[int, tuple[int, ...]]:
    return {
        partition: tuple(line[name] for name in ("next", "rows", "dead", "dropped", "lost"))
        for partition, line in progress.items()
    }


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


def main() -> int:
    story = Story()
    with _interruptible():
        try:
            with tempfile.TemporaryDirectory(prefix="sinkpipeline-demo-") as directory:
                story.step("Starting a Kafka broker")
                with LocalKafka() as kafka:
                    story.say(f"it listens on {kafka.bootstrap_servers}")
                    pipeline = Pipeline(EXAMPLE, kafka.bootstrap_servers, Path(directory))
                    try:
                        Demo(story, Broker(kafka.bootstrap_servers), pipeline).play()
                    except Exception:
                        story.show(pipeline.tails())
                        raise
        except KeyboardInterrupt as interrupt:
            story.problems.append(f"it was interrupted ({interrupt})")
        except Exception as error:  # noqa: BLE001 - whatever it is, the demo has failed, and says so in its last line
            story.problems.append(f"{type(error).__name__}: {error}")
        return story.end()


if __name__ == "__main__":
    sys.exit(main())
