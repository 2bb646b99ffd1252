"""`sinkpipeline dlq redrive`: pending letters through the pipeline again, each once."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sinkpipeline.cli.dlq.selection import CONNECT_S, Filters, missing, the_one, with_letters
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.run import writable_log
from sinkpipeline.cli.say import say
from sinkpipeline.cli.signals import stop_on_signal
from sinkpipeline.cli.tables import table, terminal_width
from sinkpipeline.core.deadletter import reason_of
from sinkpipeline.core.log_lines import Plain
from sinkpipeline.core.manifest import SinkPipeline
from sinkpipeline.core.redrive import LetterId
from sinkpipeline.core.rowplan import row_plan, rows_of
from sinkpipeline.core.targets import usage_invalid
from sinkpipeline.kafka.diagnosis import connect
from sinkpipeline.kafka.redrive import Redrive, Summary
from sinkpipeline.kafka.return_to_source import check_returnable, returning, staying
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.survey import Survey
from sinkpipeline.kinds import redrive_of
from sinkpipeline.kinds.given import read_given
from sinkpipeline.kinds.resolve import SinkSettings as AnySettings
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.encoder import Encoder
from sinkpipeline.spark.functions import register_functions
from sinkpipeline.spark.lookups import load
from sinkpipeline.spark.redrive import LetterTransform
from sinkpipeline.spark.schemas import planned, schemas_of
from sinkpipeline.spark.session import spark_session, with_jars

_TELL_EVERY_S = 10.0
_CAMEL = {"dead_lettered": "deadLettered"}
_MASTER = "local[1]"
"""Chunks go one after the other."""


@dataclass(frozen=True, kw_only=True)
class How:
    rate: float | None
    dry_run: bool
    output: str
    log_file: Path | None
    to_source: bool = False
    config_maps_dir: Path | None = None
    jars: Sequence[str] = ()


def redrive_letters(
    manifest: Path, secrets_dir: Path | None, sink: str | None, ids: Sequence[str], filters: Filters, how: How
) -> None:
    """The summary goes to stdout, also after an error; everything else to stderr."""
    pipeline = read_manifest(manifest)
    sinks = resolve_sinks(pipeline, secrets_dir)
    settings = the_one(with_letters(sinks, sink), "each is redriven for itself")
    if how.to_source:
        check_returnable(sinks)
    with closing(redrive_of(settings_of(sinks, settings), filters.wanted([settings], ids), how.rate)) as redrive:
        _redrive(pipeline, settings, redrive, how)


def settings_of(sinks: Sequence[AnySettings], seen: SinkSettings) -> AnySettings:
    """Of a sink, whose dead letters are seen so, its own."""
    return next(each for each in sinks if each.id == seen.id)


def _redrive(pipeline: SinkPipeline, settings: SinkSettings, redrive: Redrive, how: How) -> None:
    connect(redrive.admin, CONNECT_S)
    survey = redrive.survey()
    if survey is None:
        say(missing(settings), err=True)
        _show(Summary(), how.output)
        return
    check_ids(survey, redrive.wanted.ids)
    for line in (*told(survey), *foreseen(redrive, survey, to_source=how.to_source)):
        say(line, err=True)
    if how.dry_run:
        say("nothing was changed (--dry-run)", err=True)
    if how.dry_run or not (survey.pending or survey.hidden):
        _show(Summary(pending=survey.pending), how.output)
        return
    done = Done(survey)
    try:
        with stop_on_signal(redrive.stop), _shown(survey.pending) as show:
            if how.to_source:
                return_letters(redrive, survey, done, show)
            else:
                log_file = writable_log(how.log_file, f"{pipeline.identity}.redrive")
                given = read_given(pipeline, how.config_maps_dir)
                deliver_letters(given, redrive, survey, log_file, done, show, how.jars)
    finally:
        _show(done.summary, how.output)
        for line in left(done.summary):
            say(line, err=True)


class Done:
    """What was done so far, whatever comes next."""

    def __init__(self, survey: Survey) -> None:
        self._waiting = survey.by_source
        """Letters that were not reached yet, by the topics that their records are of."""
        self._done = Summary()
        self.summary = Summary(pending=survey.pending)

    def follow(self, redrive: Redrive, show: Callable[[Summary], None], topic: str | None = None) -> None:
        """What this redrive does is added. `topic`: it takes no letters but those of this topic's records."""
        done = self._done
        waiting = Counter({name: letters for name, letters in self._waiting.items() if topic not in (None, name)})

        def on_change(summary: Summary) -> None:
            self._waiting, self._done = waiting, done + summary
            self.summary = self._done + Summary(pending=waiting.total())
            show(self.summary)

        redrive.on_change = on_change


def deliver_letters(
    pipeline: SinkPipeline,
    redrive: Redrive,
    survey: Survey,
    log_file: Path | None,
    done: Done,
    show: Callable[[Summary], None],
    jars: Sequence[str] = (),
) -> None:
    """Through decode and transform, with a Spark of its own; with what the manifest refers to beside it."""
    spark = pipeline.spec.spark
    conf = {**with_jars(spark.conf, jars), "spark.driver.memory": spark.driver.memory}
    rows = rows_of(row_plan(pipeline), pipeline, redrive.settings.id.sink)
    done.follow(redrive, show)
    with spark_session(f"redrive {pipeline.identity}", _MASTER, conf, log_file) as session:
        register_functions(session, spark.functions)
        schemas = schemas_of(session, redrive.settings.source.registry)
        analyse(session, planned(rows, schemas))
        load(session, [rows])
        encoder = Encoder(session, redrive.settings.encodings, registers=True)
        rows = replace(rows, encodings=encoder.plan(planned(rows, schemas)).encodings)
        redrive.transform = LetterTransform(session, rows, schemas)
        redrive.carry_out(survey)


def return_letters(
    redrive: Redrive, survey: Survey, done: Done, show: Callable[[Summary], None], ends: Sequence[int] | None = None
) -> None:
    """Topic by topic: what is settled of one is seen by the survey of the next. `ends`: see `Redrive.survey`.

    Only of topics that the pipeline reads: the progress remembers also those that it has read before.
    """
    pending = survey.by_source
    # What an open transaction hides may be of any topic. Those that hold something go first: others may be gone.
    known = {*pending, *(redrive.meta().source if survey.hidden else ())}
    for topic in sorted(filter(redrive.settings.source.reads, known), key=lambda each: (each not in pending, each)):
        one = returning(redrive.settings, topic, redrive.wanted)
        one.rate, one.stop = redrive.rate, redrive.stop
        found = one.survey(ends)
        if found is None:
            continue
        done.follow(one, show, topic)
        if found.pending or found.hidden:
            one.carry_out(found)
        else:
            # Somebody else has settled them meanwhile.
            one.on_change(Summary())


def check_ids(survey: Survey, ids: frozenset[LetterId]) -> None:
    """Raises SinkPipelineError: UsageInvalid; what is settled already is no error, but told."""
    found = {LetterId(view.number, offset) for view in survey.partitions for offset in view.matched}
    unknown = sorted(ids - found)
    if unknown and not survey.hidden:
        raise usage_invalid(
            f"{survey.topic.name} has no letter {', '.join(map(str, unknown))} of sink {survey.sink.sink} that fits",
            "`sinkpipeline dlq list` shows the ids",
        )


def told(survey: Survey) -> Iterator[str]:
    """What is pending, one sentence a line."""
    classes = ", ".join(f"{name} {number}" for name, number in survey.by_class.most_common())
    matched = sum(len(view.matched) for view in survey.partitions)
    settled = matched - survey.pending
    yield (
        f"{survey.pending} letters of {survey.sink} are pending{f' ({classes})' if classes else ''}"
        f"{f', {settled} were redriven before' if settled else ''}"
    )
    if survey.hidden:
        yield f"open transactions hide up to {survey.hidden} more records of {survey.topic.name} for now"
    if survey.foreign:
        yield (
            f"{survey.topic.name} has {len(survey.foreign)} records that are no dead letters, the first is "
            f"{reason_of(survey.foreign[0])}"
        )


def foreseen(redrive: Redrive, survey: Survey, *, to_source: bool) -> Iterator[str]:
    """What a person should know before, one sentence a line; changes nothing."""
    if not to_source:
        yield from redrive.forecast(survey)
        return
    yield from staying(redrive.settings, survey)
    for topic in sorted(filter(redrive.settings.source.reads, survey.by_source)):
        yield from returning(redrive.settings, topic, redrive.wanted).forecast(survey)


def left(summary: Summary) -> Iterator[str]:
    """What stays pending though it was reached, one sentence a line."""
    if summary.uncounted:
        yield (
            f"{summary.uncounted} letters stay pending: the progress does not say that their records were handled as "
            "dead letters. Look whether their rows are there; docs/dlq-command.md says what to do then"
        )
    if summary.gone:
        yield (
            f"{summary.gone} letters were deleted before they were read, by the topic's retention or by a purge; "
            "their records are not delivered. Lengthen retention.ms of the dead-letter topic"
        )


def _show(summary: Summary, output: str) -> None:
    numbers = {_CAMEL.get(name, name): number for name, number in asdict(summary).items()}
    if output == "json":
        say(json.dumps(numbers, indent=2))
        return
    written = ("delivered", "returned", "filtered", "dead-lettered again", "repeated")
    names = (*written, "kept", "uncounted", "gone", "pending")
    row = [str(number) for number in numbers.values()]
    say(table(names, [row], right=names, heads=0, width=terminal_width()))


@contextmanager
def _shown(total: int) -> Iterator[Callable[[Summary], None]]:
    """The progress on stderr: a bar on a terminal, else a line now and then; and what there is to warn of."""
    console = Console(stderr=True)
    logger = logging.getLogger("sinkpipeline")
    handler: logging.Handler = (
        RichHandler(console=console, show_path=False, show_time=False)
        if console.is_terminal
        else logging.StreamHandler()
    )
    handler.setFormatter(Plain("%(message)s"))
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.name != "sinkpipeline.kafka")
    logger.addHandler(handler)
    try:
        if console.is_terminal:
            with _bar(console, total) as show:
                yield show
        else:
            yield _Lines()
    finally:
        logger.removeHandler(handler)


@contextmanager
def _bar(console: Console, total: int) -> Iterator[Callable[[Summary], None]]:
    columns = (TextColumn("redriving"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total)

        def show(summary: Summary) -> None:
            progress.update(task, completed=summary.settled, total=summary.settled + summary.pending)

        yield show


class _Lines:
    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, summary: Summary) -> None:
        now = time.monotonic()
        if now - self._told >= _TELL_EVERY_S:
            self._told = now
            say(f"redrove {summary.settled} of {summary.settled + summary.pending} letters", err=True)
