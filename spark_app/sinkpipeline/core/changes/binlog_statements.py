"""Statements in a binary log: what matters of a text that somebody has run."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sinkpipeline.core.changes.binlog_events import Query

Name = tuple[str, str]
"""The database and the table."""

_PARTS: Final = re.compile(
    # What is quoted; a comment whose content the server runs; its end; other comments.
    r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\""
    r"|/\*M?!\d*|\*/|/\*.*?(?:\*/|\Z)|--(?=[\s\x00-\x1f\x7f]|\Z)[^\n]*|#[^\n]*",
    re.DOTALL,
)
_WORD = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$\x80-\U0010ffff]+)"
_NAME = rf"({_WORD})\s*(?:\.\s*({_WORD}))?"
_FLAGS = re.IGNORECASE | re.DOTALL
_TRUNCATE = re.compile(
    rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}\s*(?:WAIT\s+\d+|NOWAIT)?\s*(?:(?:DROP|REUSE)\s+STORAGE)?\s*;?\s*\Z", _FLAGS
)
_CASCADE = re.compile(r"\bON\s+(?:DELETE|UPDATE)\s+(?:CASCADE|SET\s+NULL|SET\s+DEFAULT)\b", re.IGNORECASE)
_CHANGES_ROWS = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH)\b", re.IGNORECASE)
_TABLE = r"TABLE\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_CREATE = re.compile(rf"CREATE\s+(?:OR\s+REPLACE\s+)?{_TABLE}{_NAME}(.*)", _FLAGS)
_CREATE_TEMPORARY = re.compile(rf"CREATE\s+(?:OR\s+REPLACE\s+)?TEMPORARY\s+{_TABLE}{_NAME}", _FLAGS)
_DROP = re.compile(rf"DROP\s+(?:TEMPORARY\s+)?{_TABLE}(.*)", _FLAGS)
_ALTER = re.compile(rf"ALTER\s+(?:ONLINE\s+|OFFLINE\s+|IGNORE\s+)*{_TABLE}{_NAME}", _FLAGS)
_RENAME = re.compile(r"RENAME\s+TABLES?\b(.*)", _FLAGS)
_DROP_DATABASE = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?({_WORD})", _FLAGS)
_OTHER_TABLE = re.compile(
    rf"\b(?:RENAME\s+(?:(?:TO|AS)\s+)?|RENAME\s*=\s*|(?:WITH|CONVERT|TO)\s+TABLE\s+){_NAME}", _FLAGS
)
_ABOUT_TABLES = re.compile(r"(?:ALTER|CREATE|DROP|RENAME)\s+(?:\w+\s+){0,4}TABLES?\b", _FLAGS)
_ABOUT_TEMPORARY = re.compile(r"(?:CREATE\s+(?:OR\s+REPLACE\s+)?|DROP\s+)TEMPORARY\b", _FLAGS)
_IF_NOT_EXISTS = re.compile(r"CREATE\s+TABLE\s+IF\s+NOT\s+EXISTS\b", _FLAGS)
_EACH_NAME = re.compile(_NAME)
# A word that no name has without quotes. VALUES stands in partitions, too.
_BY_A_QUERY = re.compile(r"\b(?:SELECT|TABLE|VALUES(?!\s*(?:LESS\b|IN\b)))\b", re.IGNORECASE)
_OF_A_TABLE = re.compile(r"(?:ALTER|CREATE|RENAME|DROP)\b", re.IGNORECASE)
_WITH_SETTINGS = re.compile(r"SET\s+STATEMENT\b", re.IGNORECASE)
_FOR = re.compile(r"\bFOR\b", re.IGNORECASE)
_ANALYZE = re.compile(
    r"ANALYZE\s+(?:FORMAT\s*=\s*\w+\s+)?(?=(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH)\b)", re.IGNORECASE
)


def bare(query: Query) -> str:
    """A statement without comments and without what stands before it; of a comment that the server runs, its content.

    MariaDB has `SET STATEMENT variable = value, ... FOR` and `ANALYZE` before statements.
    """
    return _bare(query.text)


@lru_cache(maxsize=1)
def _bare(text: str) -> str:
    # Each statement is asked about for many things, and every transaction has some.
    text = _PARTS.sub(_without_comments, text).strip()
    if _WITH_SETTINGS.match(text) is not None:
        found = _FOR.search(_PARTS.sub(_blank, text))
        text = text if found is None else text[found.end() :].strip()
    found = _ANALYZE.match(text)
    return text if found is None else text[found.end() :]


def emptied(query: Query) -> Name | None:
    """The table that a statement empties, which may be a temporary one; None where it is another statement."""
    return _name(_TRUNCATE.match(bare(query)), query)


def made_temporary(query: Query) -> Name | None:
    """The temporary table that it makes."""
    return _name(_CREATE_TEMPORARY.match(bare(query)), query)


def dropped(query: Query) -> list[Name]:
    """The tables that it drops, which may be temporary ones."""
    found = _DROP.match(bare(query))
    return [] if found is None else [_named(each, query) for each in _EACH_NAME.finditer(found[1])]


def filled(query: Query) -> Name | None:
    """The table that it makes, with the rows of a query, which the log then has not."""
    found = _CREATE.match(bare(query))
    if found is None or _BY_A_QUERY.search(_PARTS.sub(_blank, found[3])) is None:
        return None
    return _name(found, query)


def altered(query: Query) -> Name | None:
    """The table that it makes or alters."""
    text = bare(query)
    return _name(_ALTER.match(text) or _CREATE.match(text), query)


def changes_rows(query: Query) -> bool:
    """Whether it is a statement that changes rows of tables that are there, which the log then has not."""
    return _CHANGES_ROWS.match(bare(query)) is not None


def is_of_a_table(query: Query) -> bool:
    """Whether it may make a table another one than it was, or have another one take its name."""
    return _OF_A_TABLE.match(bare(query)) is not None


def others(query: Query) -> list[Name] | None:
    """Tables that may be others behind it: made, altered, renamed, exchanged, dropped; perhaps names of none, too.

    None: it is about tables, and can't be taken apart. Of a database that is dropped each table is: `(database, "")`.
    """
    text = bare(query)
    if _ABOUT_TEMPORARY.match(text) is not None:
        return []
    if (found := _DROP_DATABASE.match(text)) is not None:
        return [(_plain(found[1]), "")]
    if (found := _RENAME.match(text) or _DROP.match(text)) is not None:
        return [_named(each, query) for each in _EACH_NAME.finditer(found[1])]
    if (found := _ALTER.match(text)) is not None:
        more = _OTHER_TABLE.finditer(text[found.end() :])
        return [_named(found, query), *(_named(each, query) for each in more)]
    if (found := _CREATE.match(text)) is not None:
        # It has done nothing, or the table was gone before, which was told.
        return [] if _IF_NOT_EXISTS.match(text) else [_named(found, query)]
    return None if _ABOUT_TABLES.match(text) is not None else []


def cascade(text: str) -> str | None:
    """What a foreign key in a CREATE TABLE or ALTER TABLE does to rows by itself, if it does something."""
    found = _CASCADE.search(_PARTS.sub(_blank, text))
    return None if found is None else " ".join(found[0].upper().split())


def opens(query: Query) -> str | None:
    """How it begins a transaction: BEGIN; or XA, whose first half may end it. None where it begins none."""
    match bare(query).rstrip("; \t\n").upper().split():
        case ["BEGIN"]:
            return "BEGIN"
        case ["XA", "START" | "BEGIN", *_]:
            return "XA"
        case _:
            return None


def ends(query: Query) -> str | None:
    """Whether it ends a transaction: COMMIT or ROLLBACK; or SAVEPOINT where a part of one is taken back."""
    words = bare(query).rstrip("; \t\n").upper().split()
    match words:
        case ["COMMIT", *_]:
            return "COMMIT"
        case ["ROLLBACK", "TO", *_] | ["ROLLBACK", "WORK", "TO", *_]:
            return "SAVEPOINT"
        case ["ROLLBACK", *_]:
            return "ROLLBACK"
        case _:
            return None


def _without_comments(found: re.Match[str]) -> str:
    return found[0] if found[0][0] in "`'\"" else " "


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _name(found: re.Match[str] | None, query: Query) -> Name | None:
    return None if found is None else _named(found, query)


def _named(found: re.Match[str], query: Query) -> Name:
    first, second = (None if each is None else _plain(each) for each in found.groups()[:2])
    return (query.database, str(first)) if second is None else (str(first), second)


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(2 * quote, quote) if quote in '`"' else name
