"""The schemas of a driver's run: the reader's, fixed at its start, and the writers', learnt as records name them."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from sinkpipeline.core.avro_meaning import other_meaning
from sinkpipeline.core.debezium import NoEnvelope, disagreement, kinds_of_avro
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.json_columns import NoColumns, columns_of
from sinkpipeline.core.schemas import Known, ReaderInfo, Writer, names_of, number_of
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.avro import given_schema, misfit, require_avro, whole_schema
from sinkpipeline.spark.expressions import ExpressionsInvalid, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from sinkpipeline.core.rowplan import RowPlan
    from sinkpipeline.kafka.registry import Answers, Found, FoundReader, Registry
    from sinkpipeline.kafka.settings import RegistrySettings

LATEST = "latest"
_READER_PATH = "spec.decode.schemaRegistry.reader.schema"

_SECOND_LOOKS_S = (0.5, 1.0, 1.5)
_BETWEEN_LOOKS_S = 60.0
"""Whoever sends ids that no registry has costs no more than these pauses in so long a time."""
_NEW_IDS = 10_000
"""So far behind the ids that are known one may be that has just been given."""

_AN_ENVELOPE = "name the subject of Debezium's values, as registered by its Avro converter"

_LOG = logging.getLogger("sinkpipeline.schemas")


class Asked(Protocol):
    """What is asked of a registry."""

    def reader(self, subject: str, version: str) -> FoundReader: ...

    def writers(self, frames: Sequence[bytes]) -> Answers: ...


@dataclass(frozen=True)
class Reader:
    """The schema whose fields are the columns."""

    schema: str
    """JSON that refers to nothing outside."""
    info: ReaderInfo


def asked_of(settings: RegistrySettings) -> Registry:
    """The registry itself."""
    # Only who has a registry pays for its client, a quarter of a second.
    from sinkpipeline.kafka import registry  # noqa: PLC0415

    return registry.Registry(settings)


class SchemaFormat(Protocol):
    """What schemas of a registry mean for one format of records."""

    def given(self, text: str) -> str:
        """The reader's schema, as the manifest has it.

        Raises:
            ExpressionsInvalid: there are no columns for it.
        """

    def reader(self, found: Found) -> str:
        """As a plan has it.

        Raises:
            SinkPipelineError: SchemaUnsupported.
        """

    def writer(self, frame: bytes, found: Found, reader: str) -> Writer:
        """With an empty schema where no record of it can be decoded."""


class AvroSchemas:
    """Each value is read by its writer's schema."""

    def __init__(self, spark: SparkSession) -> None:
        """Raises: NotServed."""
        require_avro(spark)
        self._spark = spark

    def given(self, text: str) -> str:
        return given_schema(self._spark, text, _READER_PATH)

    def reader(self, found: Found) -> str:
        return whole_schema(self._spark, found.text, found.references)

    def writer(self, frame: bytes, found: Found, reader: str) -> Writer:
        if found.kind != "AVRO":
            return Writer(frame, "", f"it is {found.kind}, and not Avro")
        try:
            schema = whole_schema(self._spark, found.text, found.references)
        except SinkPipelineError as error:
            return Writer(frame, "", error.message)
        if (other := other_meaning(json.loads(reader), json.loads(schema))) is not None:
            return Writer(frame, "", other)
        return Writer(frame, schema, misfit(self._spark, reader, schema))


class EnvelopeSchemas(AvroSchemas):
    """Likewise; a writer's schema that means another thing by a number of the row is none to decode with."""

    @override
    def given(self, text: str) -> str:
        schema = super().given(text)
        try:
            kinds_of_avro(schema)
        except NoEnvelope as error:
            raise ExpressionsInvalid([Problem(_READER_PATH, str(error), _AN_ENVELOPE)]) from error
        return schema

    @override
    def reader(self, found: Found) -> str:
        schema = super().reader(found)
        try:
            kinds_of_avro(schema)
        except NoEnvelope as error:
            fact = f"the reader's schema is of no envelope: {error}"
            raise SinkPipelineError(Reason.SCHEMA_UNSUPPORTED, fact, _AN_ENVELOPE) from error
        return schema

    @override
    def writer(self, frame: bytes, found: Found, reader: str) -> Writer:
        writer = super().writer(frame, found, reader)
        if not writer.schema or (other := disagreement(reader, writer.schema)) is None:
            return writer
        return Writer(frame, "", other)


class JsonSchemas:
    """A value says itself what it holds: that its writer's schema is one of JSON is all that is asked of it."""

    def given(self, text: str) -> str:
        raise NotImplementedError("the manifest's types let no schema of JSON through that it gives itself")

    def reader(self, found: Found) -> str:
        if found.kind != "JSON":
            raise no_columns(f"it is {found.kind}, and no JSON Schema")
        try:
            return columns_of(found.text)
        except NoColumns as error:
            raise no_columns(str(error)) from error

    def writer(self, frame: bytes, found: Found, reader: str) -> Writer:  # noqa: ARG002 - whatever the reader's is
        if found.kind != "JSON":
            return Writer(frame, "", f"it is {found.kind}, and not JSON")
        return Writer(frame, found.kind)


def no_columns(fact: str) -> SinkPipelineError:
    """SchemaUnsupported, of the reader's schema."""
    return SinkPipelineError(
        Reason.SCHEMA_UNSUPPORTED,
        f"there are no columns for the reader's schema: {fact}",
        "register a schema that docs/manifest.md has columns for; for json, decode.schema may give them as DDL",
    )


def _format_of(spark: SparkSession, settings: RegistrySettings) -> SchemaFormat:
    match settings.decode_format:
        case "json":
            return JsonSchemas()
        case "protobuf":
            # Only who reads Protobuf pays for its library.
            from sinkpipeline.spark.protobuf_schemas import ProtobufSchemas  # noqa: PLC0415

            return ProtobufSchemas(spark, settings.message)
        case "debezium":
            return EnvelopeSchemas(spark)
        case _:
            return AvroSchemas(spark)


class Schemas:
    """One for all sinks of a driver; any thread may ask."""

    def __init__(self, spark: SparkSession, registry: Asked, settings: RegistrySettings) -> None:
        """Asks for the reader's schema.

        Raises:
            SinkPipelineError: SchemaNotFound, SchemaUnsupported, NotServed, SchemaRegistryUnreachable, ...
        """
        self._spark = spark
        self._format = _format_of(spark, settings)
        self._registry = registry
        self.reader = self._find_reader(settings)
        self._is_latest = settings.reader is None and settings.version in (None, LATEST)
        self._known = Known(id_bytes=settings.id_bytes)
        self._waits_from = -math.inf
        self._lock = threading.Lock()

    def plan(self, rows: RowPlan) -> RowPlan:
        """`rows` with the reader's schema and the writers that are known now."""
        return replace(rows, schema=self.reader.schema, known=self._known)

    def analyse(self, plans: Iterable[RowPlan]) -> None:
        """Checks schema and expressions, as `analysis.analyse`.

        Raises:
            SinkPipelineError: as there; SchemaUnsupported where expressions don't fit the columns of a `latest`
                version: whoever registered it is to blame, and no edit of the manifest.
        """
        try:
            analyse(self._spark, *map(self.plan, plans))
        except ExpressionsInvalid as error:
            raise (misfit_of_latest(error, self.reader.info) if self._is_latest else error) from error

    def learn(self, frames: Iterable[bytes], *, forgets: bool = False) -> None:
        """Asks for the schemas of these frames, if they are not known yet; the first ones are needed first.

        There may be more to learn than one round takes; the first one is known then.

        `forgets`: earlier ones make room for these, and there are never too many.

        Raises:
            SinkPipelineError: TooManySchemas, SchemaRegistryUnreachable, ...
        """
        with self._lock:
            new = self._known.to_ask(frames)
            if not new:
                return
            writers: list[Writer] = []
            unusable: list[Writer] = []
            missing: list[bytes] = []
            answers = self._asked_again(self._registry.writers(new))
            for frame, found in answers.found.items():
                if found is None:
                    missing.append(frame)
                    continue
                writer = self._format.writer(frame, found, self.reader.schema)
                (writers if writer.schema else unusable).append(writer)
            refused = (None if forgets else self._known.no_room(writers)) or answers.error
            # What was found before is kept, whatever comes of the rest.
            self._known = self._known.learnt(writers, unusable, missing, forgets=forgets)
        _LOG.info("schemas learnt: %s", names_of(tuple(answers.found)))
        if refused is not None:
            raise refused

    def _asked_again(self, answers: Answers) -> Answers:
        """With what a registry of several nodes has a moment later: those that follow learn of a new schema last.

        Records that were never framed name ids at random: of those nobody waits.
        """
        if time.monotonic() < self._waits_from:
            return answers
        for pause_s in _SECOND_LOOKS_S:
            missing = [frame for frame, each in answers.found.items() if each is None and self._may_be_new(frame)]
            if not missing:
                break
            time.sleep(pause_s)
            self._waits_from = time.monotonic() + _BETWEEN_LOOKS_S
            again = self._registry.writers(missing)
            # Of what has no answer now nothing is known: one look is not believed.
            known = {
                frame: again.found.get(frame, each)
                for frame, each in answers.found.items()
                if frame in again.found or frame not in missing
            }
            answers = replace(answers, found=known, error=answers.error or again.error)
        return answers

    def _may_be_new(self, frame: bytes) -> bool:
        """Whether an id is one that the registry may just have given."""
        number = number_of(frame)
        known = [number_of(each) for each in self._known.frames - {*self._known.missing}]
        numbers = [each for each in (*known, self.reader.info.id) if each is not None]
        return number is None or not numbers or number <= max(numbers) + _NEW_IDS

    def _find_reader(self, settings: RegistrySettings) -> Reader:
        if settings.reader is not None:
            schema = self._format.given(settings.reader)
            return Reader(schema, ReaderInfo(fingerprint=_fingerprint(schema)))
        found = self._registry.reader(settings.subject or "", settings.version or LATEST)
        schema = self._format.reader(found.schema)
        fingerprint = _fingerprint(schema)
        return Reader(
            schema, ReaderInfo(subject=found.subject, version=found.version, id=found.id, fingerprint=fingerprint)
        )


def misfit_of_latest(error: ExpressionsInvalid, reader: ReaderInfo) -> SinkPipelineError:
    """What expressions that don't fit the latest version mean; the error itself where no columns would mend it."""
    if any(each.whatever_columns for each in error.problems):
        return error
    return SinkPipelineError(
        Reason.SCHEMA_UNSUPPORTED,
        f"version {reader.version} of subject {reader.subject}, the latest one, does not fit: {error.message}",
        "set decode.schemaRegistry.reader.version to a version that fits, register one, or correct the expressions",
    )


def schemas_of(spark: SparkSession, settings: RegistrySettings | None) -> Schemas | None:
    """The schemas of records that name theirs in this registry; None where there is none.

    Raises:
        SinkPipelineError: as `Schemas`.
    """
    return None if settings is None else Schemas(spark, asked_of(settings), settings)


def planned(rows: RowPlan, schemas: Schemas | None) -> RowPlan:
    """`rows` with the schemas that are known now."""
    return rows if schemas is None else schemas.plan(rows)


def _fingerprint(schema: str) -> str:
    return hashlib.sha256(schema.encode()).hexdigest()
