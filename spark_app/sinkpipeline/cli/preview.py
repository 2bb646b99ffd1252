"""`sinkpipeline preview`: shows rows as they would be written, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sinkpipeline.cli.dlq.showing import base64_of, content_lines, position_of
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.reset import find_sink, some_sinks
from sinkpipeline.cli.say import say
from sinkpipeline.core.batch import count_offsets
from sinkpipeline.core.printable import printable
from sinkpipeline.core.rowplan import row_plan, rows_of
from sinkpipeline.core.status import timestamp
from sinkpipeline.core.targets import parse_targets, usage_invalid
from sinkpipeline.kinds.given import read_given
from sinkpipeline.kinds.looking import preflight
from sinkpipeline.kinds.previewing import TableChange, change_of, letters_topic, look, subject_of
from sinkpipeline.kinds.resolve import SinkSettings, resolve_sinks
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.brief_session import brief_session
from sinkpipeline.spark.encoder import Encoder
from sinkpipeline.spark.functions import register_functions
from sinkpipeline.spark.lookups import load
from sinkpipeline.spark.preview import PreviewRow, preview_rows
from sinkpipeline.spark.schemas import planned, schemas_of
from sinkpipeline.spark.session import with_jars


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks for."""

    manifest: Path
    secrets_dir: Path | None = None
    config_maps_dir: Path | None = None
    sink: str | None = None
    limit: int = 10
    begin: Sequence[str] = ()
    jars: Sequence[str] = ()
    output: str = "table"


def preview(asked: Request) -> None:
    """The rows go to stdout, everything else to stderr."""
    targets = parse_targets(asked.begin) if asked.begin else None
    pipeline = read_given(read_manifest(asked.manifest), asked.config_maps_dir)
    settings = _the_sink(resolve_sinks(pipeline, asked.secrets_dir), asked.sink)
    preflight([settings])
    outlook = look(settings, targets)
    plan = rows_of(row_plan(pipeline), pipeline, settings.id.sink)
    with brief_session(
        f"preview {pipeline.identity}",
        "local[2]",
        with_jars(pipeline.spec.spark.conf, asked.jars),
        what_for="reads the rows",
        say=lambda line: say(line, err=True),
    ) as spark:
        register_functions(spark, pipeline.spec.spark.functions)
        schemas = schemas_of(spark, settings.source.registry)
        analyse(spark, planned(plan, schemas))
        load(spark, [plan])
        encoder = Encoder(spark, settings.encodings, registers=False)
        plan = replace(plan, encodings=encoder.plan(planned(plan, schemas)).encodings)
        for line in encoder.told:
            say(line, err=True)
        rows = preview_rows(spark, settings, plan, outlook, asked.limit, schemas)
    if asked.output == "json":
        say(json.dumps([_document(row, settings) for row in rows], indent=2))
    else:
        for line in (line for row in rows for line in _lines(row, settings)):
            say(line)
    waiting = count_offsets(outlook.ranges)
    begins = "as --from says" if targets is not None else "at its progress" if outlook.resumes else "as a first start"
    say(f"{len(rows)} rows of {waiting} offsets, beginning {begins}; nothing was written", err=True)
    if not rows and targets is None:
        say("no record waits, or `where` drops all: --from earliest shows what was delivered before", err=True)


def _the_sink(sinks: Sequence[SinkSettings], name: str | None) -> SinkSettings:
    if name is not None:
        return find_sink(sinks, name)
    if len(some_sinks(sinks)) > 1:
        names = ", ".join(each.id.sink for each in sinks)
        raise usage_invalid("the manifest has several sinks", f"give --sink with one of {names}")
    return sinks[0]


def _document(row: PreviewRow, settings: SinkSettings) -> dict[str, Any]:
    verdict = row.verdict
    source = position_of(row.source, row.offset)
    change = None if verdict is not None else change_of(settings, row.value)
    if change is not None:
        return {
            "source": source,
            "table": change.table,
            "operation": change.operation,
            "columns": dict(change.columns),
            "orderBy": change.order,
            "error": None,
        }
    headers = [{"name": name, "base64": base64_of(content)} for name, content in row.headers or ()]
    subject = None if verdict is not None else subject_of(settings, row.key)
    if subject is not None:
        value = {"base64": base64_of(row.value)}
        stream = settings.data.name
        return {
            "source": source,
            "stream": stream,
            "subject": subject,
            "headers": headers,
            "value": value,
            "error": None,
        }
    return {
        "source": source,
        "topic": (row.topic or settings.data.name) if verdict is None else letters_topic(settings),
        "partition": row.partition,
        "timestamp": row.timestamp,
        "headers": headers,
        "key": {"base64": base64_of(row.key)},
        "value": {"base64": base64_of(row.value)},
        "error": None
        if verdict is None
        else {"class": verdict.error_class.value, "stage": verdict.error_class.stage.value, "reason": verdict.text},
    }


def _lines(row: PreviewRow, settings: SinkSettings) -> Iterator[str]:
    at = f"{row.source.topic}:{row.source.partition}:{row.offset}"
    change = None if row.verdict is not None else change_of(settings, row.value)
    if change is not None:
        yield f"{at} -> {change.table}, {change.operation}"
        yield from _columns(change)
        return
    subject = None if row.verdict is not None else subject_of(settings, row.key)
    if subject is not None:
        yield f"{at} -> {settings.data.name}, subject {printable(subject)}"
        for name, content in row.headers or ():
            yield from (f"  {line}" for line in content_lines(f"header {printable(name)}", content))
        yield from (f"  {line}" for line in content_lines("value", row.value))
        return
    yield f"{at} -> {_where(row, settings)}"
    at = "when it is written" if row.timestamp is None else f"{row.timestamp} ms, {timestamp(row.timestamp)}"
    yield f"  timestamp {at}"
    for name, content in row.headers or ():
        yield from (f"  {line}" for line in content_lines(f"header {printable(name)}", content))
    yield from (f"  {line}" for line in content_lines("key", row.key))
    yield from (f"  {line}" for line in content_lines("value", row.value))


def _columns(change: TableChange) -> Iterator[str]:
    told = {printable(name): value for name, value in change.columns.items()}
    told |= {} if change.order is None else {"(orderBy)": change.order}
    width = max(map(len, told))
    for name, value in told.items():
        # Another line would look like another column.
        text = "NULL" if value is None else printable(value).replace("\n", "\\n")
        yield f"  {name:{width}}  {text}".rstrip()


def _where(row: PreviewRow, settings: SinkSettings) -> str:
    if row.verdict is None:
        topic = row.topic or settings.data.name
        return f"{topic}, {'any partition' if row.partition is None else f'partition {row.partition}'}"
    why = printable(row.verdict.error_class.error(row.verdict.text)).replace("\n", " ")
    letters = letters_topic(settings)
    return f"{'the sink stops (it has no deadLetter)' if letters is None else f'dead letter in {letters}'}: {why}"
