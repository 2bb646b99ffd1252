"""The schemas that a sink writes with: asked for, or registered, once in a run and before its first row."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.spark.analysis import selected_structs
from sinkpipeline.spark.avro import whole_schema
from sinkpipeline.spark.encode import NoSchema, check_avro, own_schema
from sinkpipeline.spark.schemas import asked_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sinkpipeline.core.encoding import Encoding
    from sinkpipeline.core.rowplan import RowPlan
    from sinkpipeline.kafka.registry import FoundReader
    from sinkpipeline.kafka.settings import EncodingSettings, RegistrySettings

_LOG = logging.getLogger("sinkpipeline.encoder")

_MAX_SHOWN = 1000
_UNREGISTERED = 0
"""No registry gives it. Only a preview shows it."""


class Asked(Protocol):
    """What is asked of a registry."""

    def reader(self, subject: str, version: str) -> FoundReader: ...

    def id_of(self, subject: str, kind: str, text: str) -> int | None: ...

    def register(self, subject: str, kind: str, text: str) -> int: ...

    def check_fits(self, subject: str, kind: str, text: str) -> None: ...


class EncodingRefused(SinkPipelineError):
    """With its place in the manifest."""

    def __init__(self, error: SinkPipelineError, path: str) -> None:
        super().__init__(error.reason, error.message, error.remedy)
        self.path = path


@contextmanager
def _telling_where(encoding: Encoding) -> Iterator[None]:
    try:
        yield
    except SinkPipelineError as error:
        raise EncodingRefused(error, encoding.path) from error


class _New(NamedTuple):
    """A schema that its subject doesn't have."""

    encoding: Encoding
    registry: Asked
    subject: str
    kind: str
    text: str


class Encoder:
    """Of one sink, for a run."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Iterable[EncodingSettings],
        *,
        registers: bool,
        ask: Callable[[RegistrySettings], Asked] = asked_of,
    ) -> None:
        """`registers`: whether rows are written; else a schema that isn't there yet is only compared."""
        self._spark = spark
        self._settings = {each.part: each for each in settings}
        self._registers = registers
        self._ask = ask
        self._settled: tuple[Encoding, ...] | None = None
        self.told: list[str] = []
        """Which schemas these are, for people."""

    def plan(self, rows: RowPlan) -> RowPlan:
        """`rows`, which have their columns and have passed `analyse`, with the schemas of what is encoded.

        Raises:
            EncodingRefused: SchemaRefused, SchemaNotFound, SchemaRegistryUnreachable, NotServed, ...
        """
        if not self._settings:
            return rows
        if self._settled is None:
            selected = selected_structs(self._spark, rows)
            found = [self._found(each, selected[each.part]) for each in rows.encodings]
            new = [each for each in found if isinstance(each, _New)]
            if len(new) > 1 or not self._registers:
                # Nobody takes a version of a subject back: what the registry would refuse of one registers no other.
                for each in new:
                    with _telling_where(each.encoding):
                        each.registry.check_fits(each.subject, each.kind, each.text)
            self._settled = tuple(self._registered(each) if isinstance(each, _New) else each for each in found)
        return replace(rows, encodings=self._settled)

    def _found(self, encoding: Encoding, selected: DataFrame) -> Encoding | _New:
        """With the schema that the registry has, or as one that it doesn't have yet."""
        settings = self._settings[encoding.part]
        registry, subject = self._ask(settings.registry), settings.registry.subject or ""
        with _telling_where(encoding):
            try:
                if not settings.auto_register and encoding.format == "avro":
                    return self._as_latest(encoding, selected, registry.reader(subject, "latest"))
                text, kind = own_schema(selected, encoding), encoding.format.upper()
            except NoSchema as error:
                raise _refused(encoding, str(error)) from error
            number = registry.id_of(subject, kind, text)
            if number is None and not settings.auto_register:
                raise _not_found(encoding, subject, text)
        if number is None:
            return _New(encoding, registry, subject, kind, text)
        self._tell(encoding, f"id {number} of subject {subject}")
        return encoding.settled(text, number)

    def _registered(self, new: _New) -> Encoding:
        if self._registers:
            with _telling_where(new.encoding):
                number = new.registry.register(new.subject, new.kind, new.text)
            self._tell(new.encoding, f"id {number}, registered for subject {new.subject}")
        else:
            number = _UNREGISTERED
            self._tell(new.encoding, f"a run registers it for subject {new.subject}; its id is not known yet")
        return new.encoding.settled(new.text, number)

    def _as_latest(self, encoding: Encoding, selected: DataFrame, found: FoundReader) -> Encoding:
        of = f"version {found.version} of subject {found.subject}"
        if found.schema.kind != "AVRO":
            raise _refused(encoding, f"{of} is {found.schema.kind}, and not Avro")
        try:
            schema = whole_schema(self._spark, found.schema.text, found.schema.references)
        except SinkPipelineError as error:
            # It is no schema of decode, of which that error speaks.
            raise _refused(encoding, f"{of}: {error.message}") from error
        try:
            check_avro(selected, encoding, schema)
        except NoSchema as error:
            raise _refused(encoding, f"what select.{encoding.part} gives does not fit {of}: {error}") from error
        self._tell(encoding, f"id {found.id}, {of}")
        return encoding.settled(schema, found.id)

    def _tell(self, encoding: Encoding, what: str) -> None:
        self.told.append(f"schema of the {encoding.part}: {what}")
        _LOG.info("%s: %s", encoding.path, self.told[-1])


def _refused(encoding: Encoding, fact: str) -> SinkPipelineError:
    remedy = f"change select.{encoding.part} so that it fits, or the subject"
    return SinkPipelineError(Reason.SCHEMA_REFUSED, f"{encoding.path}: {fact}", remedy)


def _not_found(encoding: Encoding, subject: str, text: str) -> SinkPipelineError:
    _LOG.warning("%s: subject %s does not have this schema: %s", encoding.path, subject, text)
    shown = text if len(text) <= _MAX_SHOWN else "which the log has"
    fact = f"{encoding.path}: subject {subject} does not have the schema of select.{encoding.part}, {shown}"
    return SinkPipelineError(Reason.SCHEMA_NOT_FOUND, fact, "register it, or set autoRegister: true")
