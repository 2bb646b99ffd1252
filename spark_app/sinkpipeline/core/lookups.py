"""A table that records are looked up in: its lines, and whether they are a valid table. Spark parses them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.texts import shortened

MAX_TABLE_BYTES = 1024 * 1024
"""What a ConfigMap holds."""
MAX_ORIGIN = 1024
_MOST_TOLD = 5
_LONGEST_KEY = 100
_BOM = b"\xef\xbb\xbf"


class GivenRefused(SinkPipelineError):
    """What a manifest refers to can't be used; its message begins with the path there."""

    def __init__(self, reason: Reason, path: str, fact: str, remedy: str) -> None:
        self.path, self._fact = path, fact
        super().__init__(reason, f"{path}: {fact}", remedy)

    @override
    def __reduce__(self) -> tuple[type[GivenRefused], tuple[Reason, str, str, str]]:
        # An exception is rebuilt from its `args`, which are the base class's.
        return type(self), (self.reason, self.path, self._fact, self.remedy)


@dataclass(frozen=True, kw_only=True)
class TableText:
    """What a table is made of: equal ones are the same table."""

    format: str
    schema: str
    """DDL."""
    key: str
    origin: str
    """In words, for people."""
    content: bytes | None = field(default=None, repr=False)
    """None where it was not read: expressions can be checked without it."""
    delimiter: str = ","
    header: bool = False


@dataclass(frozen=True)
class Line:
    """One line that holds a row."""

    number: int
    """From 1 on."""
    content: bytes


@dataclass(frozen=True)
class ParsedLine:
    """What became of one."""

    number: int
    key: Any
    error: str | None


@dataclass(frozen=True)
class TableInfo:
    """What is told of a table."""

    name: str
    origin: str
    rows: int
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        """As the status has it."""
        origin = shortened(self.origin, MAX_ORIGIN)
        return {"name": self.name, "table": origin, "rows": self.rows, "fingerprint": self.fingerprint}


def fingerprint_of(table: TableText) -> str:
    """As `sha256sum` gives it for the file."""
    return hashlib.sha256(table.content or b"").hexdigest()


def lines_of(content: bytes) -> list[Line]:
    """Those that are not empty, as any reader of CSV or JSON lines has it."""
    found = [each.removesuffix(b"\r") for each in content.removeprefix(_BOM).split(b"\n")]
    return [Line(number, each) for number, each in enumerate(found, 1) if each.strip()]


def without_header(lines: list[Line], at: str, table: TableText, columns: Iterable[str]) -> list[Line]:
    """The lines behind the header, which has the names of the columns.

    Raises:
        SinkPipelineError: LookupInvalid.
    """
    if not table.header:
        return lines
    names = list(columns)
    # Names are plain words, or between quotes as a whole.
    found = [] if not lines else lines[0].content.decode(errors="replace").split(table.delimiter)
    if [each.strip().strip('"').lower() for each in found] != [each.lower() for each in names]:
        wrong = f"the first line does not name the columns {table.delimiter.join(names)}"
        raise invalid(at, table, wrong, "write them there, in the order of schema; or leave csv.header out")
    return lines[1:]


def check_lines(at: str, table: TableText, lines: Iterable[ParsedLine]) -> None:
    """That each is a row, with a key that no other has.

    Raises:
        SinkPipelineError: LookupInvalid, LookupNotUnique.
    """
    seen: dict[Any, int] = {}
    wrong: list[str] = []
    twice: list[str] = []
    for line in lines:
        if line.error is not None:
            wrong.append(f"line {line.number}: {line.error}")
        elif line.key is None:
            wrong.append(f"line {line.number}: {table.key}, the key, is null")
        elif seen.setdefault(line.key, line.number) != line.number:
            told = shortened(str(line.key), _LONGEST_KEY)
            twice.append(f"{table.key} {told} stands in lines {seen[line.key]} and {line.number}")
    if wrong:
        raise invalid(at, table, _first(wrong), f"correct {table.origin}, then start again")
    if twice:
        raise GivenRefused(
            Reason.LOOKUP_NOT_UNIQUE,
            at,
            f"{table.origin} has keys more than once: {_first(twice)}",
            "keep one line of each: a record finds one row or none",
        )


def invalid(at: str, table: TableText, fact: str, remedy: str) -> GivenRefused:
    """LookupInvalid."""
    return GivenRefused(Reason.LOOKUP_INVALID, at, f"{table.origin} is no table: {fact}", remedy)


def _first(found: list[str]) -> str:
    more = len(found) - _MOST_TOLD
    return "; ".join(found[:_MOST_TOLD]) + (f"; and {more} more" if more > 0 else "")


def told(infos: Iterable[TableInfo]) -> list[Mapping[str, Any]]:
    """For the status: each table once."""
    return [each.to_dict() for each in dict.fromkeys(infos)]
