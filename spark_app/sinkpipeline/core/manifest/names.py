"""The names that a manifest may hold, each with its own rule and its own words.

The rules are those of the systems that take the names (Kubernetes, Kafka), or of what is built from them: a pipeline
identity and a sink name become parts of a transactional id, a Secret's name and key become a file path.
"""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator

from sinkpipeline.core.manifest.problems import refuse

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"

MAX_RESOURCE_NAME = 52
"""Names of children derive from it, and theirs may have 63 characters."""

MAX_EXPRESSION = 16 * 1024
MAX_SCHEMA_BYTES = 64 * 1024


def _name(pattern: str, longest: int, right: str, forbidden: Callable[[str], bool] | None = None) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if len(text) > longest or not compiled.fullmatch(text) or (forbidden is not None and forbidden(text)):
            refuse(right, f"has {len(text)} characters" if len(text) > longest else None)
        return text

    return AfterValidator(check)


def _text(longest: int, what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not text.strip():
            refuse(f"write {what}, or leave the field out", "is empty")
        if len(text.encode()) > longest:
            refuse(f"use at most {longest} bytes", "is too long")
        if "\0" in text:
            refuse("remove it", "holds a NUL character")
        return text

    return AfterValidator(check)


ResourceName = Annotated[
    str,
    _name(
        r"[a-z]([-a-z0-9]*[a-z0-9])?",
        MAX_RESOURCE_NAME,
        f"use 1 to {MAX_RESOURCE_NAME} of a-z, 0-9 and -, beginning with a letter and not ending with - (DNS-1035)",
    ),
]
NamespaceName = Annotated[
    str, _name(_LABEL, 63, "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends (DNS-1123 label)")
]
SinkName = Annotated[
    str, _name(_LABEL, 63, "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends (DNS-1123 label)")
]
Identity = Annotated[str, _name(r"[a-z0-9.-]+", 200, "use 1 to 200 of a-z, 0-9, . and -")]
GroupIdPrefix = Annotated[str, _name(r"[A-Za-z0-9._-]+", 249, "use 1 to 249 of a-z, A-Z, 0-9, ., _ and -")]
TopicName = Annotated[
    str,
    _name(
        r"[a-zA-Z0-9._-]+",
        249,
        "use a Kafka topic name: 1 to 249 of a-z, A-Z, 0-9, ., _ and -, but not . or ..",
        lambda text: text in {".", ".."},
    ),
]
SecretName = Annotated[
    str, _name(_SUBDOMAIN, 253, "use the name of a Secret: at most 253 of a-z, 0-9, - and . (DNS-1123 subdomain)")
]
SecretKey = Annotated[
    str,
    _name(
        r"[-._a-zA-Z0-9]+",
        253,
        "use the key of a Secret: at most 253 of a-z, A-Z, 0-9, -, . and _, but not . and nothing that begins with ..",
        lambda text: text == "." or text.startswith(".."),
    ),
]
UserName = Annotated[str, _text(256, "a user name")]
Expression = Annotated[str, _text(MAX_EXPRESSION, "a Spark SQL expression")]
SchemaText = Annotated[str, _text(MAX_SCHEMA_BYTES, 'a Spark DDL schema such as "id BIGINT NOT NULL, amount DOUBLE"')]
Memory = Annotated[
    str,
    _name(
        r"[0-9]+[mg]",
        8,
        "use a whole number of m (MiB) or g (GiB), such as 512m or 2g",
        lambda text: int(text[:-1]) == 0,
    ),
]
