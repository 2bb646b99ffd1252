"""Label selectors as `kubectl -l` takes them, without `in` and `notin`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9][a-z0-9.-]{{0,252}}/)?{_NAME}"
_REQUIREMENT = re.compile(rf"(!?)({_KEY})(?:(==|=|!=)((?:{_NAME})?))?")


class _Requirement(NamedTuple):
    key: str
    value: str | None
    """None: any, as long as there is one."""
    wanted: bool


@dataclass(frozen=True)
class Selector:
    """What labels an object must have; without requirements every object will do."""

    requirements: tuple[_Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Such as `shard=a,team!=b,!test`; raises ValueError with what is wrong."""
        return cls(tuple(_parse(part.strip()) for part in text.split(","))) if text.strip() else cls()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        given = labels or {}
        return all(
            (key in given if value is None else given.get(key) == value) is wanted
            for key, value, wanted in self.requirements
        )

    @override
    def __str__(self) -> str:
        """As the API server takes it."""
        return ",".join(_text(each) for each in self.requirements)


def _parse(part: str) -> _Requirement:
    found = _REQUIREMENT.fullmatch(part)
    if found is None or (found[1] and found[3]):
        raise ValueError(f"{part!r} is no requirement: write KEY=VALUE, KEY!=VALUE, KEY or !KEY")
    if found[3] is None:
        return _Requirement(found[2], None, not found[1])
    return _Requirement(found[2], found[4], found[3] != "!=")


def _text(each: _Requirement) -> str:
    if each.value is None:
        return each.key if each.wanted else f"!{each.key}"
    return f"{each.key}{'=' if each.wanted else '!='}{each.value}"
