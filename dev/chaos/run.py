"""`make chaos`: a real node is broken in every way, in an order that a seed decides; after each, everything is counted.

A pipeline under steady load on the node of `make cluster`, with Kubeflow's real operator and three brokers. After each
fault: how long until the first new row, what the status said and when, and a count by an independent consumer. It ends
with 1 if a row is missing, foreign, out of order or there twice, if the pipeline does not come back, or if nothing came
for long and the status did not say so. The report is in `build/chaos`.
The order of the faults repeats with the seed; their moments don't.

`--sink spark` breaks Spark's own sink with a checkpoint instead, by the same seed; its report is in
`build/chaos-spark`, and what is wrong with its rows is told and is no failure of this run.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from chaos.faults import FAULTS, Subject, World
from chaos.own_sink import OwnSink
from chaos.plan import LASTS_S, OURS_ONLY, Step, steps
from chaos.report import Case, by_fault, picture, table
from chaos.seen import Span, find
from chaos.watching import Rows, Status
from cluster.target import ROOT, Target
from node.cgroups import resident_bytes
from node.state import NodeError
from servers.control_plane import ControlPlaneError
from servers.local_kafka import LocalKafka
from soak.feeder import Feeder
from soak.options import command_line
from support.cluster.installed import TOKEN_S, Installation, Pipeline
from support.cluster.report import Report
from support.waiting import wait_until

OUT: Final = {"sinkpipeline": ROOT / "build" / "chaos", "spark": ROOT / "build" / "chaos-spark"}
"""Where the report of which sink is."""
FRESH_S: Final = 300.0
READY_S: Final = 120.0
COUNT_S: Final = 120.0
STEADY_S: Final = 5.0
PARTITIONS: Final = 4
_DATA_PARTITIONS: Final = 3
_REPLICAS: Final = 3


class Run:
    def __init__(
        self, installed: Installation, pipeline: Subject, kafka: LocalKafka, seed: int, out: Path, con: Console
    ) -> None:
        self._console = con
        self._seed = seed
        self._out = out
        self._began = time.monotonic()
        self._installed, self._pipeline = installed, pipeline
        self._feeder = Feeder(kafka.bootstrap_servers, pipeline.name, PARTITIONS, seed, replicas=_REPLICAS, bad=0.0)
        self._world = World(installed, pipeline, kafka, self._feeder, self._is_quiet, self._begin)
        self._step_began = 0.0
        self.cases: list[Case] = []
        self._memory: list[int] = []
        self._lived_s = 0.0
        pipeline.apply()
        pipeline.until(lambda: pipeline.told("Ready").startswith("True"), "it is Ready", FRESH_S)
        self._rows = Rows(kafka.bootstrap_servers, pipeline.data, _DATA_PARTITIONS, self._began)
        self._status = Status(pipeline, self._began)

    def close(self) -> None:
        self._feeder.close()
        self._rows.close()
        self._status.close()

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def go_on(self, seconds: float, faults: Collection[str]) -> None:
        """Until the time is over; what has begun comes to its end."""
        end = self._now + seconds
        deck = [each for each in faults if isinstance(self._pipeline, Pipeline) or each not in OURS_ONLY]
        for step in steps(self._seed, deck):
            if self._now > end:
                return
            case = self._take(step)
            self.cases.append(case)
            self.write()
            if case.span.fresh is None:
                self._say(self._pipeline.describe())
                return

    def _take(self, step: Step) -> Case:
        self._comes(lambda: self._pipeline.driver and self._pipeline.executors(), READY_S)
        self._say(f"{step.fault}, for {step.lasts_s:.0f} s" if step.lasts_s else step.fault)
        self._begin()
        failed: list[str] = []
        try:
            with FAULTS[step.fault](self._world, step.choice):
                self._rows.mark(self._feeder.counts())
                time.sleep(step.lasts_s)
        except (AssertionError, ControlPlaneError, LookupError, NodeError) as error:
            failed.append(f"it could not be done: {error}")
            self._rows.mark(self._feeder.counts())
        over = self._now
        self._comes(lambda: self._rows.fresh is not None, FRESH_S)
        fresh = self._rows.fresh
        self._comes(lambda: self._status.ready, READY_S)
        ready = self._status.ready_since(over if fresh is None else fresh)
        time.sleep(STEADY_S)
        span = Span(step.fault, self._step_began, over, fresh, ready, self._now)
        finding = find(span, [at for at, _ in self._rows.arrivals], self._status.told)
        finding = replace(finding, problems=(*failed, *finding.problems))
        self._look_at_the_operator()
        case = Case(span, finding, sum(self._feeder.counts().values()), self._count())
        self._say(f"  first row {finding.first_row_s}, {case.count}, {list(finding.problems)}")
        return case

    def _count(self) -> str:
        self._feeder.pause()
        try:
            self._comes(self._is_quiet, COUNT_S)
            return self._rows.judge(self._feeder.counts())
        finally:
            self._feeder.resume()

    def _begin(self) -> None:
        self._step_began = self._now

    def _is_quiet(self) -> bool:
        return self._rows.distinct >= sum(self._feeder.counts().values())

    def _comes(self, condition: Callable[[], object], deadline_s: float) -> None:
        """Or does not: what is missing then stands in the report."""
        with suppress(AssertionError):
            wait_until(condition, "it comes", deadline_s)

    def _look_at_the_operator(self) -> None:
        with suppress(LookupError, OSError, ValueError, ControlPlaneError):
            self._lived_s = max(self._lived_s, self._installed.operator_age_s())
            for pod in self._installed.operators():
                self._memory.append(resident_bytes(pod["metadata"]["uid"]))

    @property
    def problems(self) -> list[str]:
        return [
            f"{case.span.fault}: {words}"
            for case in self.cases
            for words in (*([] if case.count == "exact" else [case.count]), *case.finding.problems)
        ]

    def write(self) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        svg = picture(self.cases, self._rows.arrivals, self._status.told, self._now)
        (self._out / "timeline.svg").write_text(svg)
        rows = sum(self._feeder.counts().values())
        (self._out / "report.md").write_text(
            f"# {self._now:.0f} s of chaos, seed {self._seed}\n\n{self._whose()}"
            f"{len(self.cases)} faults, {rows:,} rows, {len(self.problems)} problems.\n\n"
            f"![rows and status over time](timeline.svg)\n\n{by_fault(self.cases)}\n{table(self.cases)}"
        )

    def _whose(self) -> str:
        if not isinstance(self._pipeline, Pipeline):
            return "Spark's own sink with a checkpoint on the node. "
        memory = f"{min(self._memory) / 1e6:.0f} to {max(self._memory) / 1e6:.0f} MB" if self._memory else "unknown"
        return (
            f"The operator holds {memory}; of its pods, whose tokens are good for {TOKEN_S} s, "
            f"the oldest lived {self._lived_s:.0f} s. "
        )

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{self._now:7.1f} s[/dim]  ", end="")
        self._console.print(text, markup=False, highlight=False)


@contextmanager
def _running(seed: int, sink: str, console: Console) -> Iterator[Run]:
    target = Target.load()
    if target is None or target.kind != "local":
        raise SystemExit("chaos: it breaks a node, and takes only the local one: run `make chaos`")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        kafka = stack.enter_context(LocalKafka(brokers=3, host=target.kafka_host))
        report = Report(OUT[sink] / "told.md")
        report.begin()
        installed = Installation(target, directory, report)
        stack.callback(installed.close)
        installed.install()
        pipeline: Subject
        if sink == "spark":
            made = {"partitions": _DATA_PARTITIONS, "replicas": _REPLICAS}
            pipeline = OwnSink(installed, kafka.bootstrap_servers, directory, **made)
        else:
            installed.shorten_tokens(TOKEN_S)
            pipeline = Pipeline(installed, kafka.bootstrap_servers, replicas=_REPLICAS)
        stack.callback(pipeline.delete, "--timeout=90s")
        run = Run(installed, pipeline, kafka, seed, OUT[sink], console)
        stack.callback(run.close)
        yield run


def main() -> int:
    parser = command_line("chaos", "A real node is broken, and everything is counted.")
    parser.add_argument("--sink", choices=sorted(OUT), default="sinkpipeline", help="spark: its own, to compare with")
    parser.add_argument("--fault", action="append", choices=sorted(LASTS_S), help="only this one; repeatable")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(soft_wrap=True)
    with _running(options.seed, options.sink, console) as run:
        run.go_on(options.seconds, options.fault or LASTS_S)
        run.write()
    console.print(table(run.cases), markup=False, highlight=False)
    for problem in run.problems:
        console.print(f"problem: {problem}", style="red", markup=False)
    again = f"--seconds {options.seconds:.0f} --seed {options.seed} --sink {options.sink}"
    failed = bool(run.problems) and options.sink == "sinkpipeline"
    console.print(f"{'FAILED' if failed else 'OK'}: {OUT[options.sink] / 'report.md'}; again: {again}")
    return int(failed)
