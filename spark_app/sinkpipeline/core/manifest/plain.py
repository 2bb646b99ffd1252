"""Reduces whatever a YAML reader returned to plain JSON values, before any model sees it.

YAML can say what the API server could never store: keys that are not text, dates, sets, values that contain
themselves, aliases that grow without bound. These are refused here, so that a manifest from a file and one from the
cluster mean the same. As in the API server, a null field is an absent field. What belongs to the API server alone is
dropped.
"""

import datetime as dt
import math
from collections.abc import Mapping
from typing import TypeAlias

from sinkpipeline.core.manifest.paths import Location, path_of
from sinkpipeline.core.manifest.problems import ManifestError, Problem

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_MOST_LEVELS = 48
_MOST_VALUES = 50_000
"""The API server takes 1.5 MiB; a resource that large has about this many values."""

_INT64 = 2**63

_OPEN_MAPS = frozenset({"properties", "config", "conf", "labels", "annotations"})
"""Mappings whose keys are data: a null in them is a mistake, not an absent field."""

_SERVER_TIMES = frozenset({"creationTimestamp", "deletionTimestamp"})

_SERVER_BOOKKEEPING = (("status",), ("metadata", "managedFields"), ("metadata", "selfLink"))


def to_plain(document: object) -> tuple[Json, tuple[Location, ...]]:
    """A copy of the document that holds only JSON values, and where fields of its spec were null, and so left out.

    Raises:
        ManifestError: with everything that is no JSON value.
    """
    copy = _Copy()
    return copy.run(document), tuple(copy.nulls)


class _Copy:
    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._values = 0
        self.nulls: list[Location] = []

    def run(self, document: object) -> Json:
        plain = self._copy(document, ())
        if self._problems:
            raise ManifestError(self._problems)
        return plain

    def _copy(self, value: object, at: Location) -> Json:
        self._count(at)
        if isinstance(value, Mapping):
            return self._mapping(value, at)
        if isinstance(value, (list, tuple)):
            return [self._copy(item, (*at, index)) for index, item in enumerate(value)]
        if isinstance(value, dt.date) and not _SERVER_TIMES.isdisjoint(at[-1:]):
            return value.isoformat()  # some YAML writers leave the quotes out
        wrong, right = _scalar_fault(value)
        if not wrong and (value is None or isinstance(value, (str, int, float))):
            return value
        self._refuse(at, wrong, right)
        return None

    def _count(self, at: Location) -> None:
        self._values += 1
        if self._values > _MOST_VALUES or len(at) > _MOST_LEVELS:
            too_large = "is too large or nested too deeply to be a manifest"
            remedy = "look for a YAML alias that refers to itself"
            raise ManifestError([*self._problems, Problem(path_of(()), too_large, remedy)])

    def _mapping(self, mapping: Mapping[object, object], at: Location) -> dict[str, Json]:
        plain: dict[str, Json] = {}
        null_is_absent = not at or at[-1] not in _OPEN_MAPS
        for key, value in mapping.items():
            if not isinstance(key, str):
                self._refuse(at, "has a key that is not text", "put the key in quotes")
            elif not _encodable(key):
                self._refuse(at, "has a key that is not valid Unicode", "use valid Unicode text")
            elif (*at, key) in _SERVER_BOOKKEEPING:
                continue
            elif value is None and null_is_absent:
                self.nulls += [(*at, key)] if at[:1] == ("spec",) else []
            else:
                plain[key] = self._copy(value, (*at, key))
        return plain

    def _refuse(self, at: Location, wrong: str, right: str) -> None:
        self._problems.append(Problem(path_of(at), wrong, right))


def _scalar_fault(value: object) -> tuple[str, str]:
    """What is wrong and what would be right; both empty for a JSON scalar."""
    match value:
        case None | bool():
            return "", ""
        case str():
            return ("", "") if _encodable(value) else ("is not valid Unicode", "use valid Unicode text")
        case int():
            return ("", "") if -_INT64 <= value < _INT64 else ("is too large a number", "use one of 64 bits")
        case float():
            return ("", "") if math.isfinite(value) else ("is not a finite number", "use a finite one")
        case dt.date():
            return "is a date, not text", "put it in quotes"
        case _:
            return "is neither text, a number, a list nor a mapping", "use plain YAML"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
