"""The names that a manifest may hold, each with its own rule and its own words.

The rules are those of the systems that take the names (Kubernetes, Kafka), or of what is built from them: a pipeline
identity and a sink name become parts of a transactional id, a Secret's name and key become a file path.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from sinkpipeline.core.changes.checkpoints import BINLOG_PLACE, PLACE
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.manifest.problems import refuse
from sinkpipeline.core.moments import POINT

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"

_HOST_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
_HOST = rf"({_HOST_LABEL}(\.{_HOST_LABEL})*\.?|\[[0-9A-Fa-f:.]{{2,45}}\])"
_PORT = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
ADDRESS_PATTERN = rf"{_HOST}:{_PORT}"
"""host:port."""

BLANKS = " \t\n\f\r"
"""What Go's expressions call blank; Python's, and `str.strip`, know more."""

MAX_RESOURCE_NAME = 52
"""Names of children derive from it, and theirs may have 63 characters."""

MAX_EXPRESSION = 16 * 1024
MAX_SCHEMA_BYTES = 64 * 1024
MAX_TABLE_SCHEMA = 4 * 1024
MAX_INLINE_TABLE = 16 * 1024
MAX_SQL_TYPE = 4096
MAX_DEBEZIUM_OFFSET = 8192


NOT_BLANK = r"[^\x00]*[^\x00 \t\n\f\r][^\x00]*"
COLUMN_NAME = r"[!-~]([ -~]{0,61}[!-~])?"


@dataclass(frozen=True)
class _Name:
    """Text that matches a pattern as a whole. Patterns are written so that Python, Go and CEL read them alike."""

    pattern: str
    longest: int
    right: str

    def _check(self, text: str) -> str:
        if len(text) > self.longest or not re.fullmatch(self.pattern, text):
            refuse(self.right, f"has {len(text)} characters" if len(text) > self.longest else None)
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "minLength": 1, "maxLength": self.longest, "pattern": f"^({self.pattern})$"}


@dataclass(frozen=True)
class _Text:
    """Text that is not blank."""

    longest: int
    """In bytes of UTF-8."""
    what: str

    def _check(self, text: str) -> str:
        if not text.strip(BLANKS):
            refuse(f"write {self.what}, or leave the field out", "is empty")
        if len(text.encode()) > self.longest:
            refuse(f"use at most {self.longest} bytes", "is too long")
        if "\0" in text:
            refuse("remove it", "holds a NUL character")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "minLength": 1, "maxLength": self.longest, "pattern": f"^{NOT_BLANK}$"}


ResourceName = Annotated[
    str,
    _Name(
        r"[a-z]([-a-z0-9]*[a-z0-9])?",
        MAX_RESOURCE_NAME,
        f"use 1 to {MAX_RESOURCE_NAME} of a-z, 0-9 and -, beginning with a letter and not ending with - (DNS-1035)",
    ),
]
NamespaceName = Annotated[
    str, _Name(_LABEL, 63, "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends (DNS-1123 label)")
]
SinkName = Annotated[
    str, _Name(_LABEL, 63, "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends (DNS-1123 label)")
]
Identity = Annotated[str, _Name(r"[a-z0-9.-]+", 200, "use 1 to 200 of a-z, 0-9, . and -")]
GroupIdPrefix = Annotated[str, _Name(r"[A-Za-z0-9._-]+", 249, "use 1 to 249 of a-z, A-Z, 0-9, ., _ and -")]
TopicName = Annotated[
    str,
    _Name(
        r"([a-zA-Z0-9_-]|\.[a-zA-Z0-9_-]|\.\.[a-zA-Z0-9._-])[a-zA-Z0-9._-]*",
        249,
        "use a Kafka topic name: 1 to 249 of a-z, A-Z, 0-9, ., _ and -, but not . or ..",
    ),
]
StreamName = Annotated[
    str, _Name(r"[A-Za-z0-9_-]+", 255, "use 1 to 255 of a-z, A-Z, 0-9, _ and -, as the name of a stream")
]
_KEY_WORD = r"[^\x00-\x20\x7f{}]"
REDIS_KEY = rf"{_KEY_WORD}+|{_KEY_WORD}*\{{{_KEY_WORD}+\}}{_KEY_WORD}*"
RedisKey = Annotated[
    str, _Name(REDIS_KEY, 255, "use a key without blanks, such as orders, with at most one hash tag: {shop}:orders")
]
MasterName = Annotated[
    str, _Name(r"[A-Za-z0-9._-]+", 255, "use the name of a master as sentinels have it: a-z, A-Z, 0-9, ., _ and -")
]
_PART_OF_SUBJECT = r"[^\x00-\x20\x7f.*>]+"
_SUBJECT = rf"{_PART_OF_SUBJECT}(\.{_PART_OF_SUBJECT})*"
NatsSubject = Annotated[str, _Name(_SUBJECT, 255, "use a subject of NATS without wildcards, such as orders.enriched")]
_PATTERN_OF_SUBJECTS = rf"(({_PART_OF_SUBJECT}|\*)\.)*({_PART_OF_SUBJECT}|\*|>)"
NatsPattern = Annotated[
    str, _Name(_PATTERN_OF_SUBJECTS, 255, "use a subject of NATS, which may have wildcards, such as orders.>")
]
SecretName = Annotated[
    str, _Name(_SUBDOMAIN, 253, "use the name of a Secret: at most 253 of a-z, 0-9, - and . (DNS-1123 subdomain)")
]
SecretKey = Annotated[
    str,
    _Name(
        r"\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*",
        253,
        "use the key of a Secret: at most 253 of a-z, A-Z, 0-9, -, . and _, but not . and nothing that begins with ..",
    ),
]
ConfigMapName = Annotated[
    str, _Name(_SUBDOMAIN, 253, "use the name of a ConfigMap: at most 253 of a-z, 0-9, - and . (DNS-1123 subdomain)")
]
ConfigMapKey = Annotated[
    str,
    _Name(
        r"\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*",
        253,
        "use the key of a ConfigMap: at most 253 of a-z, A-Z, 0-9, -, . and _, but not . and nothing that begins "
        "with ..",
    ),
]
UserName = Annotated[str, _Text(256, "a user name")]
ClientId = Annotated[
    str,
    # Both clients send it as Basic, by which the secret begins behind the first colon.
    _Name(r"[!-9;-~]([ -9;-~]*[!-9;-~])?", 256, "use 1 to 256 characters of visible ASCII without a colon"),
]
TokenEndpointUrl = Annotated[
    str,
    # Without what would have to be quoted for Java, and without a user: a password in it would be shown.
    _Name(
        rf"https://{_HOST}(:{_PORT})?(/[A-Za-z0-9._~:/?!&()*+;=%-]*)?",
        2048,
        "use the URL of the token endpoint: https://, a host, and a path, without a user and a fragment",
    ),
]
Scope = Annotated[
    str,
    _Name(
        r"[!#$%&'()*+,./0-9:;<=>?@A-Z^_`a-z{|}~-]+( [!#$%&'()*+,./0-9:;<=>?@A-Z^_`a-z{|}~-]+)*",
        1024,
        "use words of visible ASCII without quotes and backslashes, with one blank between them",
    ),
]
Expression = Annotated[str, _Text(MAX_EXPRESSION, "a Spark SQL expression")]


def _json_object(text: str) -> str:
    fault = avro_fault(text)
    if fault is not None:
        refuse(AVRO_OF_A_RECORD, fault)
    return text


AVRO_OF_A_RECORD = 'give an Avro schema of a record as JSON: {"type": "record", "name": ..., "fields": [...]}'


def avro_fault(text: str) -> str | None:
    """Why a text can be no Avro schema of a record; None where Spark has to say. Never the text, which may be long."""
    try:
        schema = parse_json(text)
    except ValueError:
        return "is no JSON"
    return None if isinstance(schema, dict) else "is no JSON object"


SchemaText = Annotated[
    str,
    _Text(
        MAX_SCHEMA_BYTES,
        'a Spark DDL schema such as "id BIGINT NOT NULL, amount DOUBLE", for avro JSON, for protobuf a .proto file',
    ),
]
AvroText = Annotated[str, _Text(MAX_SCHEMA_BYTES, "an Avro schema as JSON"), AfterValidator(_json_object)]
ColumnName = Annotated[
    str, _Name(r"[A-Za-z][A-Za-z0-9_]*", 64, "use letters, digits and underscores, and begin with a letter")
]
TableSchema = Annotated[str, _Text(MAX_TABLE_SCHEMA, 'a Spark DDL schema such as "id BIGINT NOT NULL, name STRING"')]
TableColumn = Annotated[str, _Name(r"[^\x00-\x1f\x7f]+", 255, "write the name of a column of schema")]
SlotName = Annotated[str, _Name(r"[a-z0-9_]+", 63, "use 1 to 63 of a-z, 0-9 and _, as the name of a slot")]
Quantity = Annotated[str, _Name(r"[1-9][0-9]{0,11}([KMGT]i)?", 14, "write bytes, such as 20Gi or 500Mi")]
TableOfChanges = Annotated[
    str,
    _Name(r"[^.\x00-\x1f\x7f]+\.[^\x00-\x1f\x7f]+", 127, "write schema.table, such as public.orders"),
]
InlineTable = Annotated[str, _Text(MAX_INLINE_TABLE, "the lines of the table")]
Delimiter = Annotated[
    str,
    _Name(r"[^\x00\n\r\"\\A-Za-z0-9]", 1, "use one character that is no letter, digit, quote, backslash or line break"),
]
SubjectName = Annotated[
    str,
    _Name(
        r"[A-Za-z0-9._:/~ -]*[A-Za-z0-9._:/~-]",
        512,
        "use the name of a subject, such as orders-value: at most 512 of a-z, A-Z, 0-9, ., _, :, /, ~, - and blanks",
    ),
]
RecordName = Annotated[
    str,
    _Name(
        r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
        249,
        "use the full name of a record, such as com.example.Order: words of a-z, A-Z, 0-9 and _ with dots between",
    ),
]
FunctionName = Annotated[
    str, _Name(r"[A-Za-z_][A-Za-z0-9_]*", 64, "use 1 to 64 letters, digits and underscores, not beginning with a digit")
]
JavaClass = Annotated[
    str,
    _Name(
        r"[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*",
        512,
        "use the full name of a Java class, such as com.example.MaskEmail",
    ),
]
AwsRegion = Annotated[
    str, _Name(r"[a-z]{2,}(-[a-z]+)+-[0-9]{1,2}", 32, "use the name of a region of AWS, such as eu-central-1")
]
SqlType = Annotated[str, _Text(MAX_SQL_TYPE, "a Spark SQL type such as STRING or ARRAY<BIGINT>")]
SchemaVersion = Annotated[
    str, _Name(r"latest|[1-9][0-9]{0,8}", 9, 'use latest, or the number of a version in quotes, such as "3"')
]
Memory = Annotated[
    str,
    _Name(
        r"0*[1-9][0-9]*[mg]",
        8,
        "use a whole number of m (MiB) or g (GiB), such as 512m or 2g",
    ),
]
TargetList = Annotated[
    str,
    _Name(
        rf"(([A-Za-z0-9._-]{{1,249}}(:[0-9]{{1,9}})?=)?(earliest|latest|[0-9]{{1,18}}|{POINT})"
        rf"(,([A-Za-z0-9._-]{{1,249}}(:[0-9]{{1,9}})?=)?(earliest|latest|[0-9]{{1,18}}|{POINT}))*|Data|Source)",
        32_768,
        "write earliest, latest, a time such as 2026-01-01T00:00:00Z, or a list such as orders:0=120,orders:1=latest,"
        "refunds=earliest; for a Redrive, Data or Source",
    ),
]
Moment = Annotated[
    str,
    _Name(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
        r"|([0-9]+(ms|s|m|h)){1,4}",
        64,
        "write a time such as 2026-11-22T08:00:00Z, or how long before the action was created: 90m, 720h",
    ),
]
LetterPlace = Annotated[
    str,
    _Name(
        r"(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,17})",
        28,
        "write a partition and an offset of the dead-letter topic, such as 0:120",
    ),
]
PointInTime = Annotated[
    str, _Name(POINT, 29, 'write a time with its zone, since 1970, in quotes, such as "2026-01-01T00:00:00Z"')
]
LogPlace = Annotated[
    str,
    _Name(
        PLACE,
        38,
        'write an LSN, such as "0/3279E770"; with the index of a change as the status has it: "0/3279E770 (439)"',
    ),
]
TableOfDatabase = Annotated[
    str,
    _Name(r"[^.\x00-\x1f\x7f]+\.[^\x00-\x1f\x7f]+", 129, "write database.table, such as shop.orders"),
]
BinlogPlace = Annotated[
    str,
    _Name(
        BINLOG_PLACE,
        200,
        'write a file of the binary log and a place in it, such as "binlog.000003:4711"',
    ),
]
DebeziumOffset = Annotated[str, _Text(MAX_DEBEZIUM_OFFSET, "the offset that Debezium keeps, in quotes")]
GroupId = Annotated[str, _Text(249, "the id of a consumer group")]
SqlName = Annotated[
    str, _Name(r"[!-~]([ -~]*[!-~])?", 63, "use 1 to 63 characters of ASCII, without a blank at either end")
]
SQL_TYPE = (
    r"(double precision|character varying|bit varying|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?)"
    r"( ?\([0-9]{1,4}(, ?[0-9]{1,4})?\))?( with(out)? time zone)?(\[\])*"
)
"""It becomes a part of CREATE TABLE as it is."""
Directory = Annotated[
    str,
    _Name(r"/[^\x00-\x1f\x7f]*", 1024, "write the path of a directory, beginning with /, at most 1024 characters"),
]
FilePath = Annotated[
    str,
    _Name(r"/[^\x00-\x1f\x7f]*", 1024, "write the path of a file, beginning with /, at most 1024 characters"),
]
Digest = Annotated[str, _Name(r"[0-9a-f]{16}", 16, "copy status.digest")]
