"""`sinkpipeline validate`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.kafka.purify import purify
from sinkpipeline.kafka.resolve import resolve_registry, resolve_sinks
from sinkpipeline.spark.driver import row_plan
from sinkpipeline.spark.java import JAVA_OPTIONS, SHORT_LIVED
from sinkpipeline.spark.schemas import Schemas, asked_of
from sinkpipeline.spark.session import spark_session
from sinkpipeline.spark.transform import analyse

_FAST_START = {JAVA_OPTIONS: SHORT_LIVED}


def validate(manifest: Path, secrets_dir: Path | None, *, offline: bool) -> None:
    """Checks sink by sink, and raises the first refusal after all were told; then the expressions, which need Spark."""
    pipeline = read_manifest(manifest)
    click.echo(f"manifest: {pipeline.metadata.namespace}/{pipeline.metadata.name} is valid")
    errors: list[SinkPipelineError] = []
    if not offline:
        for finding in purify(resolve_sinks(pipeline, secrets_dir)):
            click.echo(f"sink {finding.sink.sink}: {finding.plan}")
            for warning in finding.warnings:
                click.echo(f"sink {finding.sink.sink}: warning: {warning}")
            if finding.error is not None:
                click.echo(f"sink {finding.sink.sink}: {finding.error}", err=True)
                errors.append(finding.error)
    if errors:
        click.echo("expressions: not checked", err=True)
        raise errors[0]
    if offline and pipeline.spec.decode.asks_registry:
        click.echo("expressions: not checked: their columns are in the schema registry")
        return
    registry = None if offline else resolve_registry(pipeline, secrets_dir)
    with tempfile.TemporaryDirectory(prefix="sinkpipeline-validate-") as directory:
        log_file = Path(directory) / "spark.log"
        with spark_session(f"validate {pipeline.identity}", "local[1]", _FAST_START, log_file) as spark:
            rows = row_plan(pipeline)
            analyse(spark, rows if registry is None else Schemas(spark, asked_of(registry), registry).plan(rows))
    click.echo("expressions: valid")
