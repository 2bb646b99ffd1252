"""Where the schemas of records are: `spec.decode.schemaRegistry`.

Refused: addresses that hold a password, two ways to authenticate at once, and a reader's schema that is named twice.
"""

import enum
import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.kafka import SecretRef, Tls
from sinkpipeline.core.manifest.names import ADDRESS_PATTERN, AvroText, SchemaVersion, SubjectName, UserName
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


class SchemaRegistry(Part):
    """A registry that speaks the REST interface of Confluent's Schema Registry."""

    url: RegistryUrl
    """http or https, host, port, and a path where there is one: http://apicurio:8080/apis/ccompat/v7."""
    auth: RegistryAuth | None = None
    """How to authenticate; left out, as nobody."""
    subject: SubjectName | None = None
    """The subject of the reader's schema; default <topic>-value, where the source has one topic."""
    reader: ReaderSchema | None = None
    """The schema whose fields are the columns; default {version: latest}."""
    id_format: IdFormat = IdFormat.INT32
    """How large the id is that a value begins with: Int32, as of Confluent's serializers; Int64, as of Apicurio's older
    ones."""

    @model_validator(mode="after")
    def _tls_has_a_meaning(self) -> Self:
        if not self.is_encrypted and self.auth is not None and self.auth.tls is not None:
            refuse("write https in url, or remove it", "has no meaning for http", ("auth", "tls"))
        return self

    @property
    def is_encrypted(self) -> bool:
        return self.url.startswith("https://")

    @property
    def only_frames(self) -> bool:
        """Whether nothing is asked of it but how values are framed."""
        return self.reader is None and self.subject is None

    @property
    def means_subject_of_topic(self) -> bool:
        """Whether the subject follows from the name of the topic."""
        return self.subject is None and self.reader_version is not None

    @property
    def reader_version(self) -> str | None:
        """None where the reader's schema is given."""
        if self.reader is None:
            return "latest"
        return self.reader.version
