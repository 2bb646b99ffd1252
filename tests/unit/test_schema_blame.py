"""Who is to blame for columns that don't fit: the manifest, or who registered a schema."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from sinkpipeline.core.errors import ExitCode, Reason, SinkPipelineError
from sinkpipeline.core.rowplan import RowPlan
from sinkpipeline.kafka.registry import Found, FoundReader
from sinkpipeline.kafka.settings import RegistrySettings
from sinkpipeline.spark import analysis, avro, schemas
from sinkpipeline.spark.expressions import ExpressionsInvalid, Problem
from sinkpipeline.spark.schemas import Schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = cast("SparkSession", None)
NO_COLUMN = Problem("spec.transform.where", "there is no column `amount`", "use one of the available columns")
NO_SQL = Problem("spec.transform.where", "Syntax error at ')'", "write one expression", whatever_columns=True)


class Registry:
    def reader(self, subject: str, version: str) -> FoundReader:
        assert version == "latest" or int(version) == 4
        return FoundReader(schema=Found("{}", "AVRO"), subject=subject, version=4, id=9)

    def writers(self, frames: object) -> Any:
        raise NotImplementedError


def ended(monkeypatch: pytest.MonkeyPatch, settings: RegistrySettings, *problems: Problem) -> SinkPipelineError:
    """What a driver ends with whose expressions have these problems."""

    def analyse(*_: object) -> None:
        raise ExpressionsInvalid(list(problems))

    monkeypatch.setattr(schemas, "require_avro", lambda _: None)
    monkeypatch.setattr(schemas, "whole_schema", lambda _, text, *__: text)
    monkeypatch.setattr(schemas, "given_schema", lambda _, text, __: text)
    monkeypatch.setattr(schemas, "analyse", analyse)
    with pytest.raises(SinkPipelineError) as caught:
        Schemas(SPARK, Registry(), settings).analyse([])
    return caught.value


@pytest.mark.parametrize("version", ["latest", None])
def test_a_latest_version_that_does_not_fit_refuses_no_configuration(
    monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """Else the operator would take the proven one for wrong, and go back to the one before."""
    error = ended(monkeypatch, RegistrySettings(url="", subject="orders-value", version=version), NO_COLUMN)
    assert error.reason is Reason.SCHEMA_UNSUPPORTED
    assert error.reason.exit_code is ExitCode.REFUSED
    assert error.reason.heals, "who registers one that fits lifts it"
    assert "version 4 of subject orders-value" in error.message
    assert "there is no column `amount`" in error.message
    assert "reader.version" in error.remedy


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        (RegistrySettings(url="", subject="orders-value", version="4"), [NO_COLUMN]),
        (RegistrySettings(url="", reader="{}"), [NO_COLUMN]),
        (RegistrySettings(url="", subject="orders-value", version="latest"), [NO_COLUMN, NO_SQL]),
    ],
)
def test_what_no_registry_can_mend_is_of_the_manifest(
    monkeypatch: pytest.MonkeyPatch, settings: RegistrySettings, problems: list[Problem]
) -> None:
    assert ended(monkeypatch, settings, *problems).reason.exit_code is ExitCode.MANIFEST


UNREADABLE = SinkPipelineError(Reason.SCHEMA_UNSUPPORTED, "the schema is bigint, and no record", "give a record")


@pytest.mark.parametrize("registry", [False, True])
def test_a_schema_of_the_manifest_that_has_no_columns_is_of_the_manifest(
    monkeypatch: pytest.MonkeyPatch, registry: bool
) -> None:
    def refuse(*_: object) -> None:
        raise UNREADABLE

    monkeypatch.setattr(avro, "whole_schema", lambda _, text: text)
    monkeypatch.setattr(avro, "avro_columns", refuse)
    monkeypatch.setattr(schemas, "require_avro", lambda _: None)
    monkeypatch.setattr(analysis, "source_frame", lambda _: SimpleNamespace())
    settings = RegistrySettings(url="", reader='"long"')

    def start() -> None:
        if registry:
            Schemas(SPARK, Registry(), settings)
        else:
            analysis.analyse(SPARK, RowPlan("avro", '"long"'))

    with pytest.raises(SinkPipelineError) as caught:
        start()
    assert caught.value.reason.exit_code is ExitCode.MANIFEST
    where = "spec.decode.schemaRegistry.reader.schema" if registry else "spec.decode.schema"
    assert caught.value.message == f"{where}: the schema is bigint, and no record"
