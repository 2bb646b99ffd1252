"""docs/reference.md: every field of both kinds, with its type and default, out of the types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crd.schema import shown, spec_schema
from sinkpipeline.core.manifest import KIND, Spec
from sinkpipeline.core.manifest.action import ACTION_KIND, ActionSpec
from sinkpipeline.core.manifest.properties import SINK, SOURCE, Values

Schema = dict[str, Any]

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"

_HEADER = """# Reference

Every field with its default; `make crds` makes this page from the types in `spark_app/sinkpipeline/core/manifest`.
A field without a default is absent where it is left out. A **bold** one is required in the mapping that holds it.
[manifest.md](manifest.md) tells what names and types don't; `kubectl explain` has the same words.
"""


def text() -> str:
    """The file."""
    parts = [_HEADER]
    for kind, spec in ((KIND, Spec), (ACTION_KIND, ActionSpec)):
        rows = "".join(_rows(spec_schema(spec, stored=False), ""))
        parts.append(f"## {kind}\n\n| `spec.` | type | default | |\n| --- | --- | --- | --- |\n{rows}")
    parts.append(_properties("source.kafka.properties", "of Kafka's Java consumer", SOURCE))
    parts.append(_properties("sinks[].kafka.properties", "of librdkafka's producer", SINK))
    return "\n".join(parts)


def _properties(field: str, whose: str, allowed: Mapping[str, Values]) -> str:
    rows = "".join(f"| `{name}` | {values.right.removeprefix('use ')} |\n" for name, values in allowed.items())
    head = f"## {field}\n\nThese properties {whose} may be set, and no others.\n\n"
    return f"{head}| property | value |\n| --- | --- |\n{rows}"


def _rows(schema: Schema, place: str) -> Iterator[str]:
    for name, field in schema["properties"].items():
        path = f"{place}.{name}".lstrip(".")
        field_ = f"**`{path}`**" if name in schema.get("required", ()) else f"`{path}`"
        # That of a mapping is that of its fields, but for those that are required in it.
        told = "default" in field and (
            "properties" not in field or set(field.get("required", ())) & set(field["default"])
        )
        default = f"`{shown(field['default'])}`" if told else ""
        about = field["description"].replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
        yield f"| {field_} | {_type(field)} | {default} | {about} |\n"
        inner, into = (field["items"], f"{path}[]") if "items" in field else (field, path)
        if "properties" in inner:
            yield from _rows(inner, into)


def _type(field: Schema) -> str:
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    match field["type"]:
        case "array":
            return f"list of {_type(field['items'])}{_bounds(field, 'minItems', 'maxItems')}"
        case "object":
            return "mapping of text to text" if "additionalProperties" in field else "mapping"
        case "string":
            return f"text{_bounds(field, 'minLength', 'maxLength', ' characters')}"
        case kind:
            return f"{kind}{_bounds(field, 'minimum', 'maximum')}"


def _bounds(field: Schema, least: str, most: str, unit: str = "") -> str:
    low, high = field.get(least), field.get(most)
    if high in (None, 2**31 - 1):
        return "" if low is None else f", at least {low}"
    return f", {low or 0} to {high}{unit}" if low else f", at most {high}{unit}"
