"""What an API server does with a custom resource, for tests that have none: nulls, defaults, schema, list types, CEL.

Follows Kubernetes 1.34 (apiextensions-apiserver), as far as the resource's schema needs it; unknown fields are refused
as `kubectl` asks for (strict field validation). The real server has the last word, in tests/kube.
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
from collections.abc import Iterator
from typing import Any

import cel
import jsonschema
from jsonschema import ValidationError
from jsonschema.validators import extend

Schema = dict[str, Any]

_RULES = "x-kubernetes-validations"
_OPEN = "x-kubernetes-preserve-unknown-fields"


def admit(schema: Schema, document: Any, old: Any = None) -> tuple[Any, list[str]]:
    """The document as it would be stored, and every reason, with its place, not to store it."""
    document = _defaulted(schema, copy.deepcopy(document))
    errors = [*_unknown(schema, document, ""), *_invalid(schema, document), *_repeated(schema, document, "")]
    if not errors:  # as the server does: rules see only what fits the schema
        errors = list(_broken(schema, document, None if old is None else _defaulted(schema, copy.deepcopy(old)), ""))
    return document, errors


def _defaulted(schema: Schema, value: Any) -> Any:
    if isinstance(value, list) and "items" in schema:
        return [_defaulted(schema["items"], each) for each in value]
    if not isinstance(value, dict):
        return value
    for name, each in schema.get("properties", {}).items():
        if value.get(name) is None and not each.get("nullable"):
            value.pop(name, None)
            if "default" in each:
                value[name] = copy.deepcopy(each["default"])
        if name in value:
            value[name] = _defaulted(each, value[name])
    more = schema.get("additionalProperties")
    if isinstance(more, dict) and not more.get("nullable"):
        return {name: each for name, each in value.items() if each is not None}
    return value


def _unknown(schema: Schema, value: Any, at: str) -> Iterator[str]:
    if isinstance(value, list) and "items" in schema:
        for index, each in enumerate(value):
            yield from _unknown(schema["items"], each, f"{at}[{index}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, each in value.items():
            if name in schema["properties"]:
                yield from _unknown(schema["properties"][name], each, f"{at}.{name}")
            else:
                yield f"{at}.{name}: unknown field"


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
    # In Go's expressions `$` is the end of the text, in Python's also the place before a last line break.
    whole = pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern
    yield from jsonschema.Draft202012Validator.VALIDATORS["pattern"](_Validator({}), whole, value, {})


_Validator: Any = extend(jsonschema.Draft202012Validator, {"pattern": _pattern})


_MOST = 16
"""Validators that are kept."""
_FORMATS = jsonschema.FormatChecker(formats=[])


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or bool(dt.datetime.strptime(value, "%Y-%m-%dT%H:%M:%S%z"))


def _invalid(schema: Schema, value: Any) -> Iterator[str]:
    for error in _validator_of(schema).iter_errors(value):
        yield f"{_place(error.absolute_path)}: {error.message}"


_made: list[tuple[Schema, Any]] = []


def _validator_of(schema: Schema) -> Any:
    """To make one takes longer than to use it; nobody changes a schema that was used."""
    for each, validator in _made:
        if each is schema:
            return validator
    validator = _Validator(_nullable(schema), format_checker=_FORMATS)
    _made.insert(0, (schema, validator))
    del _made[_MOST:]
    return validator


def _nullable(schema: Any) -> Any:
    """`nullable` in the words of JSON Schema."""
    if isinstance(schema, list):
        return [_nullable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: _nullable(each) for name, each in schema.items()}
    if schema.get("nullable") is True:
        result["type"] = [schema["type"], "null"]
    return result


def _place(path: Any) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _repeated(schema: Schema, value: Any, at: str) -> Iterator[str]:
    if isinstance(value, list) and "items" in schema:
        names = [_key(schema, each) for each in value]
        for index, each in enumerate(value):
            if names[index] is not None and names[index] in names[:index]:
                yield f"{at}[{index}]: duplicate value"
            yield from _repeated(schema["items"], each, f"{at}[{index}]")
    elif isinstance(value, dict):
        for name, each in schema.get("properties", {}).items():
            if name in value:
                yield from _repeated(each, value[name], f"{at}.{name}")


def _key(schema: Schema, item: Any) -> Any:
    """What an entry is told by, or None where the list is atomic."""
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return item
        case "map" if isinstance(item, dict):
            return tuple(item.get(name) for name in schema["x-kubernetes-list-map-keys"])
        case _:
            return None


def _broken(schema: Schema, value: Any, old: Any, at: str) -> Iterator[str]:
    for rule in schema.get(_RULES, []):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        if not _holds(rule["rule"], value, old):
            yield f"{at}{rule.get('fieldPath', '')}: {rule['message']}"
    if isinstance(value, list):
        before = {_key(schema, each): each for each in old or [] if _key(schema, each) is not None}
        for index, each in enumerate(value):
            yield from _broken(schema["items"], each, before.get(_key(schema, each)), f"{at}[{index}]")
    elif isinstance(value, dict):
        for name, each in schema.get("properties", {}).items():
            if name in value:
                yield from _broken(each, value[name], (old or {}).get(name), f"{at}.{name}")


@functools.cache
def _program(rule: str) -> Any:
    return cel.compile(rule)


def _holds(rule: str, value: Any, old: Any) -> bool:
    try:
        return _program(rule).execute({"self": value, "oldSelf": old}) is True
    except RuntimeError as error:
        if "not a valid regex" not in str(error):
            raise  # a mistake in a rule
        return False
