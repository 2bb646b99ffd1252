"""`sinkpipeline validate`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.say import say
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.manifest import ManifestError, SinkPipeline
from sinkpipeline.kafka.purify import Finding, purify
from sinkpipeline.kafka.resolve import resolve_sinks
from sinkpipeline.spark.brief_session import brief_session
from sinkpipeline.spark.driver import row_plan
from sinkpipeline.spark.expressions import ExpressionsInvalid
from sinkpipeline.spark.transform import analyse


def validate(manifest: Path, secrets_dir: Path | None, output: str, *, offline: bool) -> None:
    """Raises the first refusal after all were told."""
    if output == "json":
        _validate_for_programs(manifest, secrets_dir, offline=offline)
    else:
        _validate(manifest, secrets_dir, offline=offline)


def _validate(manifest: Path, secrets_dir: Path | None, *, offline: bool) -> None:
    """Sink by sink; then the expressions, which need Spark, unless something was refused."""
    pipeline = read_manifest(manifest)
    say(f"manifest: {pipeline.metadata.namespace}/{pipeline.metadata.name} is valid")
    errors: list[SinkPipelineError] = []
    if not offline:
        for finding in purify(resolve_sinks(pipeline, secrets_dir)):
            say(f"sink {finding.sink.sink}: {finding.plan}")
            for line in finding.begins:
                say(f"sink {finding.sink.sink}: {line}")
            for warning in finding.warnings:
                say(f"sink {finding.sink.sink}: warning: {warning}")
            if finding.error is not None:
                say(f"sink {finding.sink.sink}: {finding.error}", err=True)
                errors.append(finding.error)
    if errors:
        say("expressions: not checked", err=True)
        raise errors[0]
    _check_expressions(pipeline)
    say("expressions: valid")


def _validate_for_programs(manifest: Path, secrets_dir: Path | None, *, offline: bool) -> None:
    """All that is wrong as one document on stdout, the expressions too where a sink was refused."""
    errors: list[tuple[str | None, SinkPipelineError]] = []
    findings: list[Finding] = []
    try:
        pipeline = read_manifest(manifest)
        if not offline:
            try:
                findings = list(purify(resolve_sinks(pipeline, secrets_dir)))
            except SinkPipelineError as error:
                errors.append(("spec", error))
            names = [sink.name for sink in pipeline.spec.sinks]
            errors += [
                (f"spec.sinks[{names.index(each.sink.sink)}]", each.error)
                for each in findings
                if each.error is not None
            ]
        _check_expressions(pipeline)
    except SinkPipelineError as error:
        errors.append((None, error))
    document = {
        "valid": not errors,
        "problems": [problem for path, error in errors for problem in _problems(path, error)],
        "warnings": [{"sink": each.sink.sink, "message": text} for each in findings for text in each.warnings],
        "sinks": [_sink(each) for each in findings],
    }
    say(json.dumps(document, indent=2))
    if errors:
        raise errors[0][1]


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


def _check_expressions(pipeline: SinkPipeline) -> None:
    with brief_session(
        f"validate {pipeline.identity}",
        "local[1]",
        {},
        what_for="checks the expressions",
        say=lambda line: say(line, err=True),
    ) as spark:
        analyse(spark, row_plan(pipeline))
