"""Where the schemas of records are: `spec.decode.schemaRegistry`, and `schemaRegistry` of `encode`.

Refused: addresses that hold a password, two ways to authenticate at once, and a subject or a reader's schema that is
named twice.
"""

import enum
import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.kafka import SecretRef, Tls
from sinkpipeline.core.manifest.names import (
    ADDRESS_PATTERN,
    AvroText,
    RecordName,
    SchemaVersion,
    SubjectName,
    UserName,
)
from sinkpipeline.core.manifest.problems import refuse

_MAX_URL = 2048
_URL = rf"https?://{ADDRESS_PATTERN}(/[A-Za-z0-9._~%/-]*)?"


def _url(text: str) -> str:
    if len(text) > _MAX_URL or not re.fullmatch(_URL, text):
        # Not shown: people paste a user and a password into it.
        refuse("write http or https, host and port, such as https://registry:8081", "is no address of a registry")
    return text.rstrip("/")


RegistryUrl = Annotated[
    str,
    AfterValidator(_url),
    WithJsonSchema({"type": "string", "minLength": 8, "maxLength": _MAX_URL, "pattern": f"^({_URL})$"}),
]


class IdFormat(str, enum.Enum):
    INT32 = "Int32"
    INT64 = "Int64"

    @property
    def size(self) -> int:
        """In bytes."""
        return 4 if self is IdFormat.INT32 else 8


class BasicAuth(Part):
    """A user name and a password."""

    username: UserName
    """The user; at most 256 bytes."""
    password_secret_ref: SecretRef
    """The key of a Secret that holds the password."""


class BearerAuth(Part):
    """A token, as it is."""

    token_secret_ref: SecretRef
    """The key of a Secret that holds the token."""


class RegistryAuth(Part):
    """How we authenticate to the registry."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    tls: Tls | None = None
    """Which authorities are trusted and who we are; https without it trusts the authorities of the image."""
    basic: BasicAuth | None = None
    """A user name and a password."""
    bearer: BearerAuth | None = None
    """A token."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self == RegistryAuth.model_construct():
            refuse("give tls, basic or bearer, or leave auth out", "is empty")
        if self.basic is not None and self.bearer is not None:
            refuse("give basic or bearer, not both", "stands beside basic", ("bearer",))
        return self


class ReaderSchema(Part):
    """The schema whose fields are the columns: of a version of the subject, or given here."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    version: SchemaVersion | None = None
    """A version of the subject in quotes, or latest: the latest one when the driver starts."""
    schema_text: AvroText | None = Field(default=None, alias="schema")
    """An Avro schema as JSON. At most 65536 bytes."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.version is None and self.schema_text is None:
            refuse("give version or schema, or leave reader out", "is empty")
        if self.version is not None and self.schema_text is not None:
            refuse("give version or schema, not both", "stands beside version", ("schema",))
        return self


class SubjectNameStrategy(str, enum.Enum):
    """How a subject is called after what it is for; the names are those of Confluent's serializers."""

    TOPIC_NAME = "TopicName"
    RECORD_NAME = "RecordName"
    TOPIC_RECORD_NAME = "TopicRecordName"

    @property
    def of_topic(self) -> bool:
        """Whether the name of the topic is in it."""
        return self is not SubjectNameStrategy.RECORD_NAME

    @property
    def of_record(self) -> bool:
        return self is not SubjectNameStrategy.TOPIC_NAME


class RegistrySubject(Part):
    """A registry that speaks the REST interface of Confluent's Schema Registry, and a subject there."""

    url: RegistryUrl
    """http or https, host, port, and a path where there is one: http://apicurio:8080/apis/ccompat/v7."""
    auth: RegistryAuth | None = None
    """How to authenticate; left out, as nobody."""
    subject: SubjectName | None = None
    """The subject of the schema; left out, it follows from subjectNameStrategy."""
    subject_name_strategy: SubjectNameStrategy | None = None
    """How the subject is called: TopicName (the default), <topic>-value or <topic>-key; RecordName, as the record;
    TopicRecordName, <topic>-<record>."""
    record_name: RecordName | None = None
    """The full name of the record, such as com.example.Order."""

    @model_validator(mode="after")
    def _tls_has_a_meaning(self) -> Self:
        if not self.is_encrypted and self.auth is not None and self.auth.tls is not None:
            refuse("write https in url, or remove it", "has no meaning for http", ("auth", "tls"))
        return self

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        if self.subject is not None and self.subject_name_strategy is not None:
            refuse("give subject or subjectNameStrategy, not both", "stands beside subject", ("subjectNameStrategy",))
        if self.strategy.of_record and self.record_name is None:
            refuse("give the full name of the record", f"is missing, and {self.strategy.value} needs it", _RECORD_NAME)
        return self

    @property
    def is_encrypted(self) -> bool:
        return self.url.startswith("https://")

    @property
    def strategy(self) -> SubjectNameStrategy:
        """Where no subject is given."""
        return self.subject_name_strategy or SubjectNameStrategy.TOPIC_NAME

    def subject_of(self, topic: str | None, part: str) -> str | None:
        """The subject; `part` is key or value. None where it follows from a topic, and there is none."""
        if self.subject is not None:
            return self.subject
        if self.strategy.of_topic and topic is None:
            return None
        match self.strategy:
            case SubjectNameStrategy.TOPIC_NAME:
                return f"{topic}-{part}"
            case SubjectNameStrategy.RECORD_NAME:
                return self.record_name
            case SubjectNameStrategy.TOPIC_RECORD_NAME:
                return f"{topic}-{self.record_name}"


_RECORD_NAME = ("recordName",)


class SchemaRegistry(RegistrySubject):
    """Where the schemas of the source's records are."""

    reader: ReaderSchema | None = None
    """The schema whose fields are the columns; default {version: latest}."""
    id_format: IdFormat = IdFormat.INT32
    """How large the id is that a value begins with: Int32, as of Confluent's serializers; Int64, as of Apicurio's older
    ones."""

    @model_validator(mode="after")
    def _names_a_record_for_something(self) -> Self:
        if self.record_name is not None and not self.strategy.of_record:
            right = "give subjectNameStrategy RecordName or TopicRecordName, or remove it"
            refuse(right, "has no meaning here", _RECORD_NAME)
        return self

    @property
    def only_frames(self) -> bool:
        """Whether nothing is asked of it but how values are framed."""
        return self.reader is None and self.subject is None and self.subject_name_strategy is None

    @property
    def means_subject_of_topic(self) -> bool:
        """Whether the subject follows from the name of the topic."""
        return self.subject is None and self.strategy.of_topic and self.reader_version is not None

    @property
    def reader_version(self) -> str | None:
        """None where the reader's schema is given."""
        if self.reader is None:
            return "latest"
        return self.reader.version
