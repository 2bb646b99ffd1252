"""Turns what pydantic found into problems in the words of the manifest.

Shown is a value only where it can be neither a credential nor somebody's data. An error type that has no words here is
a mistake of ours; it still names its place.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest.paths import Location, path_of, shape_of
from sinkpipeline.core.manifest.problems import FAULTS, Fault, Problem
from sinkpipeline.core.manifest.unserved import is_unserved_kind, unserved_field, unserved_value

UNTRANSLATED = "is not what belongs here"

_HIDDEN = frozenset(
    {
        "auth",
        "properties",
        "conf",
        "config",
        "annotations",
        "labels",
        "bootstrapServers",
        "schema",
        "template",
        "transform",
    }
)
_MOST_SHOWN = 60

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "text",
    "tuple_type": "a list",
}

_HINTS: Mapping[str, str] = {
    "spec.sinks[].kafka.progressTopic.partitions": "remove it: a progress topic has exactly 1 partition",
    "spec.sinks[].kafka.progressTopic.config": "remove it: the progress protocol decides it",
    "spec.source.kafka.topic": "use topics, a list",
    "spec.source.kafka.groupId": "use groupIdPrefix",
}
"""What to say of unknown fields where the closest name would mislead."""


def translate(error: ValidationError, root: type[BaseModel]) -> tuple[Problem, ...]:
    """The problems of a document that `root` refused, in the order of its fields."""
    details = error.errors(include_url=False)
    kinds_elsewhere = {
        detail["loc"][:-1]
        for detail in details
        if detail["type"] == "extra_forbidden" and is_unserved_kind(shape_of(detail["loc"]))
    }
    problems: list[Problem] = []
    for detail in details:
        location = detail["loc"]
        if detail["type"] == "missing" and location[-1] == "kafka" and location[:-1] in kinds_elsewhere:
            continue  # a sink of another kind is one problem, not two
        if detail["type"] == "default_factory_not_called":
            continue  # follows from the problem of the field that the default depends on
        if detail["type"] == "too_short" and detail["input"]:
            continue  # pydantic counts the entries that are right, and every wrong one has its own problem
        problems += _problems(detail, root)
    return tuple(problems)


def unknown_nulls(nulls: Sequence[Location], root: type[BaseModel]) -> tuple[Problem, ...]:
    """Of the places of fields that are null, and so were left out: those that are no fields at all."""
    found = ((each, _known_fields(root, each[:-1])) for each in nulls)
    return tuple(_of_unknown(each, root) for each, known in found if known and each[-1] not in known)


def _problems(detail: ErrorDetails, root: type[BaseModel]) -> Iterator[Problem]:
    location, value = detail["loc"], detail["input"]
    context = detail.get("ctx", {})
    match detail["type"]:
        case t if t == FAULTS:
            for fault in context["faults"]:
                yield _of_fault(location, value, fault)
        case "missing":
            yield Problem(path_of(location), "is missing", "add it")
        case "extra_forbidden":
            yield _of_unknown(location, root)
        case "enum" | "literal_error":
            yield _of_choice(location, value, context)
        case "too_short":
            yield Problem(path_of(location), "is empty", f"give {context['min_length']} or more")
        case "too_long":
            yield Problem(path_of(location), "has too many entries", f"give at most {context['max_length']}")
        case "greater_than_equal" | "less_than_equal":
            right = f"use {context['ge']} or more" if "ge" in context else f"use {context['le']} or less"
            yield Problem(path_of(location), _shown(location, value), right)
        case t if t in _EXPECTED:
            yield _of_type(location, value, _EXPECTED[t])
        case _:
            yield Problem(path_of(location), UNTRANSLATED, "see the documentation of this field")


def _of_fault(location: Location, value: object, fault: Fault) -> Problem:
    at = (*location, *fault.at)
    return Problem(path_of(at), fault.wrong or _shown(at, value), fault.right)


def _of_unknown(location: Location, root: type[BaseModel]) -> Problem:
    shape = shape_of(location)
    instead = unserved_field(shape)
    if instead is not None:
        return Problem(path_of(location), "is not served yet", instead, Reason.NOT_SERVED)
    known = _known_fields(root, location[:-1])
    closest = difflib.get_close_matches(str(location[-1])[:80], known, n=1)
    if shape in _HINTS:
        right = _HINTS[shape]
    elif closest:
        right = f"did you mean {closest[0]}?"
    else:
        right = f"known here: {', '.join(known)}"
    return Problem(path_of(location), "is an unknown field", right)


def _of_choice(location: Location, value: object, context: Mapping[str, Any]) -> Problem:
    shape = shape_of(location)
    instead = unserved_value(shape, value)
    if instead is not None:
        return Problem(
            path_of(location), f"{_shown(location, value)}, which is not served yet", instead, Reason.NOT_SERVED
        )
    # Pydantic's list of choices: 'Fail' or 'Skip'.
    choices = re.findall(r"'([^']*)'", context["expected"])
    return Problem(path_of(location), _shown(location, value), f"use {_either(choices)}")


def _of_type(location: Location, value: object, expected: str) -> Problem:
    right = f"write {expected}"
    if expected == "text" and isinstance(value, bool | int | float):
        right = "put it in quotes"
    elif isinstance(value, str) and expected in {"a whole number", "true or false"}:
        right = f"write {expected}, without quotes"
    return Problem(path_of(location), f"is {_kind(value)}, not {expected}", right)


def _either(choices: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))


def _shown(location: Location, value: object) -> str:
    if not _HIDDEN.isdisjoint(location):
        return "is not allowed here"
    if not isinstance(value, str | int | float):
        return f"is {_kind(value)}"
    text = json.dumps(value, ensure_ascii=False)
    return f"is {text if len(text) <= _MOST_SHOWN else f'{text[:_MOST_SHOWN]}…'}"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case _:
            return "a mapping"


def _known_fields(root: type[BaseModel], location: Location) -> tuple[str, ...]:
    model: type[BaseModel] | None = root
    for step in location:
        if isinstance(step, int) or model is None:
            continue
        field = next((field for field in model.model_fields.values() if field.alias == step), None)
        model = None if field is None else _model_in(field.annotation)
    return () if model is None else tuple(str(field.alias) for field in model.model_fields.values())


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The part that an annotation such as `tuple[Sink, ...]` or `Auth | None` is about."""
    parts = get_args(annotation)  # first: in Python 3.10 `tuple[Sink, ...]` passes for a type
    if not parts and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for model in map(_model_in, parts) if model is not None), None)
