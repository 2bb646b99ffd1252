"""`sinkpipeline validate`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkpipeline.cli.endings import lines
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.say import say
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.finding import Finding
from sinkpipeline.core.lookups import GivenRefused
from sinkpipeline.core.manifest import ManifestError, SinkPipeline
from sinkpipeline.core.manifest.clear_text import credentials_in_clear
from sinkpipeline.core.rowplan import row_plan, rows_of_all
from sinkpipeline.kinds.given import OPTION, read_given
from sinkpipeline.kinds.looking import foresee_stage, purify
from sinkpipeline.kinds.resolve import SinkSettings, file_owner, resolve_sinks, resolve_stage
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.brief_session import brief_session
from sinkpipeline.spark.encoder import Encoder, EncodingRefused
from sinkpipeline.spark.expressions import ExpressionsInvalid
from sinkpipeline.spark.functions import register_functions
from sinkpipeline.spark.lookups import checked
from sinkpipeline.spark.schemas import planned, schemas_of
from sinkpipeline.spark.session import with_jars

if TYPE_CHECKING:
    from sinkpipeline.changes.ports import Foreseen
    from sinkpipeline.changes.settings import StageSettings

_Refused = tuple[str | None, SinkPipelineError]
"""With its path in the manifest."""


def validate(
    manifest: Path,
    secrets_dir: Path | None,
    output: str,
    *,
    config_maps_dir: Path | None = None,
    jars: Sequence[str] = (),
    offline: bool,
) -> None:
    """Raises the first refusal after all were told."""
    how = _validate_for_programs if output == "json" else _validate
    how(manifest, secrets_dir, config_maps_dir, jars, offline=offline)


def _validate(
    manifest: Path, secrets_dir: Path | None, config_maps_dir: Path | None, jars: Sequence[str], *, offline: bool
) -> None:
    """Sink by sink; then the expressions, which need Spark, also where something was refused before."""
    pipeline = read_manifest(manifest)
    say(f"manifest: {pipeline.metadata.namespace}/{pipeline.metadata.name} is valid")
    for warning in credentials_in_clear(pipeline):
        say(f"warning: {warning}")
    errors: list[SinkPipelineError] = []
    sinks: list[SinkSettings] = []
    if not offline:
        try:
            sinks = resolve_sinks(pipeline, secrets_dir)
            stage = resolve_stage(pipeline, secrets_dir, file_owner(pipeline))
            if stage is not None:
                errors += _tell_stage(foresee_stage(stage))
            for finding in _findings(sinks, stage):
                _tell(finding)
                errors += [] if finding.error is None else [finding.error]
        except SinkPipelineError as error:
            # Now: Spark takes seconds to start.
            say(str(error), err=True)
            errors.append(error)
    refused: list[_Refused] = []
    try:
        given = _given(pipeline, config_maps_dir, offline=offline)
        left_out = _check_expressions(given, sinks, jars, refused, say)
        say("expressions: valid" if left_out is None else f"expressions: {left_out}")
    except SinkPipelineError as error:
        if errors:
            # What is raised is the first one.
            say("\n".join(lines(error)), err=True)
        errors.append(error)
    for path, refusal in refused:
        say(f"{path}: {refusal}", err=True)
        errors.append(refusal)
    if errors:
        raise errors[0]


def _findings(sinks: Sequence[SinkSettings], stage: StageSettings | None) -> Iterator[Finding]:
    """Of each sink; a change topic that is missing is no fault of theirs, as the stage creates it."""
    for each in purify(sinks):
        missing = each.error is not None and each.error.reason is Reason.SOURCE_TOPIC_MISSING
        if stage is None or not missing:
            yield each
        else:
            told = f"is not looked at further: the stage creates topic {stage.topic.name} first"
            yield replace(each, error=None, warnings=(*each.warnings, told))


def _tell_stage(found: Foreseen) -> list[SinkPipelineError]:
    for line in found.told:
        say(f"source: {line}")
    for error in found.errors:
        say(f"source: {error}", err=True)
    return found.errors


def _tell(finding: Finding) -> None:
    name = finding.sink.sink
    say(f"sink {name}: {finding.plan}")
    for line in finding.begins:
        say(f"sink {name}: {line}")
    for warning in finding.warnings:
        say(f"sink {name}: warning: {warning}")
    if finding.error is not None:
        say(f"sink {name}: {finding.error}", err=True)


def _given(pipeline: SinkPipeline, config_maps_dir: Path | None, *, offline: bool) -> SinkPipeline:
    """With what it refers to; offline that may be left out, and is not checked then."""
    return pipeline if offline and config_maps_dir is None else read_given(pipeline, config_maps_dir)


def _validate_for_programs(
    manifest: Path, secrets_dir: Path | None, config_maps_dir: Path | None, jars: Sequence[str], *, offline: bool
) -> None:
    """All that is wrong as one document on stdout, the expressions too where a sink was refused."""
    errors: list[tuple[str | None, SinkPipelineError]] = []
    findings: list[Finding] = []
    sinks: list[SinkSettings] = []
    foreseen: Foreseen | None = None
    left_out: str | None = None
    in_clear: list[str] = []
    try:
        pipeline = read_manifest(manifest)
        in_clear += credentials_in_clear(pipeline)
        if not offline:
            try:
                sinks = resolve_sinks(pipeline, secrets_dir)
                stage = resolve_stage(pipeline, secrets_dir, file_owner(pipeline))
                if stage is not None:
                    foreseen = foresee_stage(stage)
                    errors += [(f"spec.source.{pipeline.spec.source.kind}", each) for each in foreseen.errors]
                findings = list(_findings(sinks, stage))
            except SinkPipelineError as error:
                errors.append(("spec", error))
            names = [sink.name for sink in pipeline.spec.sinks]
            errors += [
                (f"spec.sinks[{names.index(each.sink.sink)}]", each.error)
                for each in findings
                if each.error is not None
            ]
        try:
            refused: list[_Refused] = []
            given = _given(pipeline, config_maps_dir, offline=offline)
            left_out = _check_expressions(given, sinks, jars, refused)
            errors += refused
        except SinkPipelineError as error:
            # Of expressions each has a path of its own; what else is wrong is of the columns.
            errors.append((_place(error), error))
    except SinkPipelineError as error:
        errors.append((None, error))
    document = {
        "valid": not errors,
        "problems": [problem for path, error in errors for problem in _problems(path, error)],
        "warnings": [
            *({"sink": None, "message": text} for text in in_clear),
            *({"sink": each.sink.sink, "message": text} for each in findings for text in each.warnings),
            *([] if left_out is None else [{"sink": None, "message": f"expressions: {left_out}"}]),
        ],
        "sinks": [_sink(each) for each in findings],
        **({} if foreseen is None else {"source": {"told": foreseen.told}}),
    }
    say(json.dumps(document, indent=2))
    if errors:
        raise errors[0][1]


def _place(error: SinkPipelineError) -> str | None:
    if isinstance(error, GivenRefused):
        return error.path
    return None if error.reason is Reason.SPARK_FAILED else "spec.decode"


def _sink(finding: Finding) -> dict[str, Any]:
    """`begins` only of a first start that goes on where somebody else has stopped."""
    begins = {"begins": list(finding.begins)} if finding.begins else {}
    return {"name": finding.sink.sink, "plan": finding.plan, **begins}


def _problems(path: str | None, error: SinkPipelineError) -> Iterator[dict[str, Any]]:
    """Each by its path in the manifest; null where it is of no part of it."""
    if isinstance(error, ManifestError):
        for problem in error.problems:
            yield _problem(problem.path, problem.reason.value, problem.wrong, problem.right)
    elif isinstance(error, ExpressionsInvalid):
        for each in error.problems:
            yield _problem(each.path, error.reason.value, each.fact, each.remedy)
    else:
        yield _problem(path, error.reason.value, error.message, error.remedy)


def _problem(path: str | None, reason: str, message: str, remedy: str) -> dict[str, Any]:
    return {"path": path, "reason": reason, "message": message, "remedy": remedy}


def _check_expressions(
    pipeline: SinkPipeline,
    sinks: Sequence[SinkSettings],
    jars: Sequence[str],
    refused: list[_Refused],
    tell: Callable[[str], None] = lambda _: None,
) -> str | None:
    """Why they are not checked; None where they were, and are valid.

    Args:
        pipeline: the manifest.
        sinks: none where nothing may be asked.
        jars: beside those of Spark.
        refused: is given what a run of a sink would be refused for the schemas that it writes with.
        tell: is given what they are.
    """
    if not pipeline.spec.sinks:
        return None
    registry = sinks[0].source.registry if sinks else None
    if registry is None and pipeline.spec.decode.asks_registry:
        return "not checked: their columns are in the schema registry"
    if pipeline.spec.decode.schema_config_map_ref is not None:
        return f"not checked: their columns are in a ConfigMap, and {OPTION} was not given"
    # What expressions mean. The others are of where the pipeline runs, which may be elsewhere.
    conf = {name: value for name, value in pipeline.spec.spark.conf.items() if name.startswith("spark.sql.")}
    with brief_session(
        f"validate {pipeline.identity}",
        "local[1]",
        with_jars(conf, jars),
        what_for="checks the expressions",
        say=lambda line: say(line, err=True),
    ) as spark:
        register_functions(spark, pipeline.spec.spark.functions)
        schemas = schemas_of(spark, registry)
        plans = [planned(rows, schemas) for rows in rows_of_all(row_plan(pipeline), pipeline)]
        analyse(spark, *plans)
        for line in checked(spark, plans):
            tell(line)
        for sink, rows in zip(sinks, plans, strict=bool(sinks)):
            encoder = Encoder(spark, sink.encodings, registers=False)
            try:
                encoder.plan(rows)
            except EncodingRefused as error:
                refused.append((error.path, error))
            for line in encoder.told:
                tell(f"sink {sink.id.sink}: {line}")
    return None
