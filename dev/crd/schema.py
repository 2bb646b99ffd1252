"""The structural schema of `spec`, read out of the manifest's types: what they say is said once."""

from __future__ import annotations

import enum
import re
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import override

from sinkpipeline.core.manifest import Duration, Spec, StringMap
from sinkpipeline.core.manifest.base import Part

Schema = dict[str, Any]

_KEPT = (
    *("type", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"),
    *("minProperties", "maxProperties"),
)


class _WithDefaults(GenerateJsonSchema):
    @override
    def encode_default(self, dft: Any) -> Any:
        match dft:
            case Part():
                # Without what depends on another field: a default that is stored would outlive a change of that field.
                dependent = {name for name, field in type(dft).model_fields.items() if field.default_factory}
                return dft.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=dependent)
            case Duration():
                return str(dft)
            case StringMap():
                return dict(dft)
            case enum.Enum():
                return dft.value
            case _:
                return super().encode_default(dft)


def spec_schema(spec: type[Part] = Spec, *, stored: bool = True) -> Schema:
    """The schema of `spec`, without what only Kubernetes knows of (list types, CEL).

    Args:
        spec: the type.
        stored: without the defaults below lists, which only the types have. An applied list replaces the stored one: if
            the API server added a default to it, the two would differ for ever.
    """
    schema = spec.model_json_schema(by_alias=True, schema_generator=_WithDefaults)
    return _structural(schema, schema["$defs"], stored=stored)


def _structural(schema: Schema, definitions: Schema, *, stored: bool, listed: bool = False) -> Schema:
    """Inlines references; drops titles, `null` and closedness, which a structural schema can't say."""
    schema = _inlined(schema, definitions)
    plain = {name: schema[name] for name in _KEPT if name in schema}
    default = None if schema.get("default") in (None, {}, []) else _without_empty(schema["default"])
    if "description" in schema:
        told = f" Default: {shown(default)}." if default is not None and listed else ""
        plain = {"description": _text(schema["description"]) + told, **plain}
    if "enum" in plain:
        plain["type"] = "string"
    if default is not None and not listed:
        plain["default"] = default
    if "items" in schema:
        plain["items"] = _structural(schema["items"], definitions, stored=stored, listed=stored)
    if "properties" in schema:
        plain["properties"] = {
            name: _structural(each, definitions, stored=stored, listed=listed)
            for name, each in sorted(schema["properties"].items())
        }
        if schema.get("required"):
            plain["required"] = sorted(schema["required"])
    elif schema.get("additionalProperties") is True:
        plain["x-kubernetes-preserve-unknown-fields"] = True
    elif "additionalProperties" in schema:
        plain["additionalProperties"] = _structural(schema["additionalProperties"], definitions, stored=stored)
    return plain


def _inlined(schema: Schema, definitions: Schema) -> Schema:
    outer = {name: value for name, value in schema.items() if name not in {"anyOf", "$ref"}}
    if "anyOf" in schema:  # an optional field: in the cluster as in a file, null is absent
        [inner] = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return {**_inlined(inner, definitions), **outer}
    if "$ref" in schema:
        return {**_inlined(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions), **outer}
    return outer


def shown(default: Any) -> str:
    """As one writes it in a manifest."""
    if isinstance(default, dict):
        return f"{{{', '.join(f'{name}: {shown(each)}' for name, each in default.items())}}}"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _without_empty(default: Any) -> Any:
    return {name: value for name, value in default.items() if value != {}} if isinstance(default, dict) else default


def _text(docstring: str) -> str:
    """One paragraph per line, without the marks of a docstring."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip())
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).replace("`", "")
