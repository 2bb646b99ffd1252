"""`make soak`: kills and faults for as long as one likes, in an order that a seed decides; then everything is counted.

One broker behind a proxy, the real command with an ExactlyOnce and an AtLeastOnce sink, a source that never stops. It
ends with 1 if a row is missing, or is there twice where it must not be, or out of order, or if the command gives up;
some records are bad, and the same holds for their dead letters.
The order of the faults repeats with the seed; their moments don't, so a seed finds its bug again only by and large.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from soak.faults import Driver, Faults
from soak.feeder import Feeder
from soak.options import command_line
from support.app.command import App, by_driver, manifest, sink
from support.kafka.streams import EXACTLY_ONCE, Verdict
from support.waiting import wait_until
from support.worlds.faults import faulty_kafka

PARTITIONS: Final = 3
SETTLE_S: Final = 240.0
START_S: Final = 120.0
# As the feeder's bad values want it.
BAD_ROWS: Final = (
    "CASE CAST(value AS STRING) WHEN 'astray' THEN 99 WHEN 'zero' THEN CAST(1 DIV (length(value) - 4) AS INT) END"
)
MAY_END_WITH: Final = {1}
"""What is tried again by whoever runs the command: no broker answered while it started."""


@dataclass
class Outcome:
    """What a soak did and found."""

    seed: int
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    ends: list[tuple[int, str]] = field(default_factory=list)
    rows: int = 0
    bad: int = 0
    exact: Verdict | None = None
    relaxed: Verdict | None = None
    exact_letters: Verdict | None = None
    relaxed_letters: Verdict | None = None
    problems: list[str] = field(default_factory=list)

    def judge(self) -> None:
        for what, exact in (("rows", self.exact), ("dead letters", self.exact_letters)):
            if exact != EXACTLY_ONCE:
                self.problems.append(f"the {what} of the ExactlyOnce sink: {exact}")
        for what, relaxed in (("rows", self.relaxed), ("dead letters", self.relaxed_letters)):
            if relaxed is None or relaxed.missing or relaxed.foreign:
                self.problems.append(f"the {what} of the AtLeastOnce sink: {relaxed}")
        for code, word in self.ends:
            if code not in MAY_END_WITH:
                self.problems.append(f"the command ended by itself with {code}: {word}")


def soak(seconds: float, seed: int, directory: Path, console: Console) -> Outcome:
    outcome = Outcome(seed, seconds)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:7.1f} s[/dim]  {text}", highlight=False)

    with ExitStack() as stack:
        faulty = stack.enter_context(faulty_kafka())
        feeder = Feeder(faulty.direct, "soak-in", PARTITIONS, seed)
        document = manifest(
            faulty.servers,
            "soak",
            [feeder.topic],
            # So that a batch is always running.
            trigger={"interval": "0s", "maxOffsetsPerTrigger": 3000},
            # Some batches are the driver's, others those of tasks.
            spark=by_driver(1000),
            # Whatever is broken here is mended soon.
            failurePolicy={"maxConsecutiveFailures": 10_000, "backoff": {"initial": "200ms", "max": "1s"}},
            decode={"format": "raw", "onNull": "DeadLetter"},
            transform={"select": {"partition": BAD_ROWS}},
            sinks=[with_letters(sink("exact")), with_letters(sink("relaxed", guarantee="AtLeastOnce"))],
        )
        driver = Driver(App(directory, document))
        stack.callback(driver.close)
        faults = Faults(seed, faulty, driver, feeder, ["exact-progress", "relaxed-progress"])
        try:
            say(f"seed {seed}: {seconds:.0f} s of faults once it runs")
            wait_until(lambda: driver.app.rows_delivered() > 0, "rows are delivered", START_S)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                fault = faults.next()
                say(fault.__name__.replace("_", " "))
                fault()
                outcome.faults[fault.__name__] += 1
                faults.pause()
                driver.look()
            say("no more faults; waiting until all is delivered")
            faulty.heal()
            feeder.close()
            wait_until(faults.is_quiet, "all is delivered", SETTLE_S)
            driver.stop()
        except AssertionError as error:
            outcome.problems.append(str(error))
        outcome.starts, outcome.ends = driver.starts, driver.ends
        outcome.rows, outcome.bad = feeder.good, feeder.bad
        outcome.exact, outcome.relaxed = feeder.judge("exact-out"), feeder.judge("relaxed-out")
        outcome.exact_letters = feeder.judge_letters("exact-dead")
        outcome.relaxed_letters = feeder.judge_letters("relaxed-dead")
    outcome.judge()
    return outcome


def with_letters(document: dict[str, Any]) -> dict[str, Any]:
    topic = {"name": f"{document['name']}-dead", "partitions": 2, "replicationFactor": 1}
    return {**document, "deadLetter": {"topic": topic}}


def show(outcome: Outcome, console: Console) -> None:
    faults = Table(title=f"seed {outcome.seed}, {outcome.seconds:.0f} s", box=None, title_justify="left")
    faults.add_column("fault")
    faults.add_column("times", justify="right")
    for name, times in sorted(outcome.faults.items()):
        faults.add_row(name.replace("_", " "), str(times))
    console.print(faults)
    console.print(f"\nthe command was started {outcome.starts} times, and ended by itself {len(outcome.ends)} times")
    for code, word in outcome.ends:
        console.print(f"  with {code}: {word}", markup=False, highlight=False)
    rows = Table(box=None)
    for name in ("sink", "rows", "duplicates", "missing", "out of order", "foreign"):
        rows.add_column(name, justify="left" if name == "sink" else "right")
    for name, total, verdict in (
        ("ExactlyOnce", outcome.rows, outcome.exact),
        ("AtLeastOnce", outcome.rows, outcome.relaxed),
        ("ExactlyOnce, dead letters", outcome.bad, outcome.exact_letters),
        ("AtLeastOnce, dead letters", outcome.bad, outcome.relaxed_letters),
    ):
        if verdict is not None:
            counts = (total, verdict.duplicates, verdict.missing, verdict.disorder, verdict.foreign)
            rows.add_row(name, *(f"{count:,}" for count in counts))
    console.print(rows)
    for problem in outcome.problems:
        console.print(f"problem: {problem}", style="red", markup=False)


def main() -> int:
    options = command_line("soak", "Kills and faults, and then everything is counted.").parse_args()
    seconds, seed = options.seconds, options.seed
    console = Console(soft_wrap=True)
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    outcome = soak(seconds, seed, directory, console)
    show(outcome, console)
    if outcome.problems:
        console.print(f"FAILED; the logs are in {directory}; again: --seconds {seconds:.0f} --seed {seed}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    console.print("OK")
    return 0
