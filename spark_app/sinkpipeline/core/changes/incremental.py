"""How far an incremental snapshot has come: tables whose rows are read while the stream goes on.

Stands in the progress of a stage from the start that asks for it until the last of these tables was read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sinkpipeline.core.errors import Reason, SinkPipelineError

ALL = "*"
"""The entry of each table of a source of which all tables are read."""
_SHOWN = 5


class Listed(NamedTuple):
    """How a table is among those of a source."""

    by: str
    """The entry by which it is: its own, or one that it shares with others."""
    id: str
    """By what the kind tells it from another table of its name; a name, where it has nothing else."""


@dataclass(frozen=True, kw_only=True)
class IncrementalMark:
    """What is still to be read."""

    waiting: tuple[str, ...]
    """Tables as `schema.table`, in the order in which they are read; the first one has begun where `after` is given."""
    after: tuple[str, ...] = ()
    """The key of the last row that is in the topic, a text for each of its columns as the kind spells it; empty before
    the first row of a table."""
    key: str = ""
    """By what the rows are ordered, as the kind spells it: `after` means something for that order alone."""
    more: bool = False
    """Whether rows of the table are to be read once more from its beginning, as changes have not told all of them."""
    rows: int = 0
    """How many rows were read of all tables, also such that were left out as the stream had changed them."""

    def __post_init__(self) -> None:
        if not self.waiting:
            raise ValueError("an incremental snapshot of no table")

    def by(self, key: str) -> IncrementalMark:
        """As a snapshot goes on with it that is ordered by this: from the beginning of the table, if it was another."""
        return self if key == self.key else replace(self, after=(), key=key)

    @property
    def with_more(self) -> IncrementalMark:
        return self if self.more else replace(self, more=True)

    @property
    def from_its_beginning(self) -> IncrementalMark:
        """The first table is read once more."""
        return replace(self, after=(), more=False)

    def moved(self, after: Sequence[str], rows: int) -> IncrementalMark:
        """With so many rows more, up to this key."""
        return replace(self, after=tuple(after), rows=self.rows + rows)

    @property
    def without_first(self) -> IncrementalMark | None:
        """The first table was read; None where it was the last one."""
        waiting = self.waiting[1:]
        return replace(self, waiting=waiting, after=(), key="", more=False) if waiting else None

    @property
    def with_first_last(self) -> IncrementalMark:
        """The others are read before the first table, which is read from its beginning then."""
        first, *others = self.waiting
        return replace(self, waiting=(*others, first), after=(), key="", more=False)

    def renamed(self, names: Mapping[str, str]) -> IncrementalMark:
        """With the names that its tables have now, by those that they had."""
        return replace(self, waiting=tuple(names.get(each, each) for each in self.waiting))

    def to_record(self) -> dict[str, Any]:
        """As progress records have it."""
        more = {"more": True} if self.more else {}
        return {"waiting": list(self.waiting), "after": list(self.after), "key": self.key, **more, "rows": self.rows}


def incremental_from_record(value: object) -> IncrementalMark:
    """What `to_record` has made; ValueError if it wasn't."""
    match value:
        case {"waiting": [_, *_] as waiting, "after": [*after], "key": str(key), "rows": int(rows), **others}:
            if rows >= 0 and all(isinstance(each, str) for each in (*waiting, *after)) and rows is not True:
                more = others.get("more") is True
                return IncrementalMark(waiting=tuple(waiting), after=tuple(after), key=key, more=more, rows=rows)
        case _:
            pass
    raise ValueError(f"{value!r} is no mark of an incremental snapshot")


def asked(mark: IncrementalMark | None, *, now: Collection[str], added: Sequence[str]) -> IncrementalMark | None:
    """What a start goes on with.

    Args:
        mark: of the progress.
        now: the tables that are read from here on: one that is not among them is not waited for any more.
        added: those whose rows are asked for since, in order.
    """
    before = () if mark is None else mark.waiting
    left = tuple(each for each in before if each in now)
    waiting = (*left, *(each for each in added if each not in left))
    if not waiting:
        return None
    if mark is None:
        return IncrementalMark(waiting=waiting)
    goes_on = bool(left) and left[0] == before[0] and left[0] not in added
    return replace(mark, waiting=waiting) if goes_on else replace(mark, waiting=waiting, after=(), key="", more=False)


def told(mark: IncrementalMark | None, waits_for: str = "") -> dict[str, Any] | None:
    """As receipts and the status have it; `waits_for`: why the next rows can't be read yet."""
    if mark is None:
        return None
    waits = {"waitsFor": waits_for} if waits_for else {}
    return {"table": mark.waiting[0], "tablesWaiting": len(mark.waiting), "rows": mark.rows, **waits}


def added_since(known: Mapping[str, Listed] | None, now: Mapping[str, Listed]) -> list[str]:
    """Those that came since a start has named its tables; none where none has.

    One that has the entry of another that was there, such as a partition, is younger than the stream: all of its rows
    come by that.

    Args:
        known: as `Meta.tables`.
        now: likewise, of now.
    """
    if known is None:
        return []
    entries = {ALL, *(each.by for each in known.values())}
    return [name for name, each in now.items() if each.by not in entries]


def asked_since(
    known: Mapping[str, Listed] | None, now: Mapping[str, Listed], mark: IncrementalMark | None, *, reads_rows: bool
) -> tuple[IncrementalMark | None, list[str]]:
    """What a start goes on with, and which tables were added.

    Args:
        known: as `Meta.tables`.
        now: likewise, of now.
        mark: of the progress.
        reads_rows: whether the rows of tables that were added are asked for.
    """
    added = added_since(known, now) if reads_rows else []
    before = None if mark is None else mark.renamed(renamed_since(known, now))
    return asked(before, now=now, added=added), added


def renamed_since(known: Mapping[str, Listed] | None, now: Mapping[str, Listed]) -> dict[str, str]:
    """By the names that they had, the names of tables that have others since."""
    names = {each.id: name for name, each in now.items()}
    return {name: names[each.id] for name, each in (known or {}).items() if name not in now and each.id in names}


def added_again(known: Mapping[str, Listed] | None, now: Mapping[str, Listed]) -> list[str]:
    """Of these, those that were taken out in between, or are other tables of the same name."""
    return [each for each in added_since(known, now) if each in (known or {})]


def reads(mark: IncrementalMark) -> list[str]:
    """What a start will do, in words."""
    shown, more = mark.waiting[:_SHOWN], len(mark.waiting) - _SHOWN
    tables = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    goes_on = f"; goes on in {mark.waiting[0]}, after {mark.rows} rows of all" if mark.after else ""
    return [f"reads the rows of {tables} while the stream goes on{goes_on}"]


def no_key(table: str, where: str, statement: str) -> SinkPipelineError:
    """Without a key there is no telling how far the rows of a table were read; `statement`: how to give it one."""
    return SinkPipelineError(
        Reason.SOURCE_UNSUITABLE,
        f"table {table} of {where} has no primary key, so its rows can't be read while the stream goes on",
        f"run {statement}; or write startingPosition: Now, so that tables that come later are read without the rows "
        "that they have already",
    )


def hidden_key(table: str, where: str) -> SinkPipelineError:
    """By a part of a key, rows alike in that would be passed over."""
    return SinkPipelineError(
        Reason.SOURCE_UNSUITABLE,
        f"the publication has not all columns of the primary key of table {table} of {where}, so its rows can't be "
        "read while the stream goes on",
        "publish all columns of its key (a generated one: from PostgreSQL 18 on, publish_generated_columns = stored); "
        "or write startingPosition: Now, so that tables that come later are read without the rows that they have "
        "already",
    )
