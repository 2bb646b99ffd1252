"""Statements in a binary log: what matters of a text that somebody has run."""

from __future__ import annotations

import re
from typing import Final

from sinkpipeline.core.changes.binlog_events import Query

_PARTS: Final = re.compile(
    # What is quoted; a comment whose content the server runs; its end; other comments.
    r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\""
    r"|/\*M?!\d*|\*/|/\*.*?(?:\*/|\Z)|--(?=\s|\Z)[^\n]*|#[^\n]*",
    re.DOTALL,
)
_NAME = r"(`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$\x80-\U0010ffff]+)"
_TRUNCATE = re.compile(
    rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}\s*(?:\.\s*{_NAME})?\s*(?:WAIT\s+\d+|NOWAIT)?\s*(?:(?:DROP|REUSE)\s+STORAGE)?\s*;?\s*\Z",
    re.IGNORECASE,
)
_CASCADE = re.compile(r"\bON\s+(?:DELETE|UPDATE)\s+(?:CASCADE|SET\s+NULL|SET\s+DEFAULT)\b", re.IGNORECASE)
_ROWS_AS_TEXT = re.compile(
    r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH)\b|CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b.*\bSELECT\b",
    re.IGNORECASE | re.DOTALL,
)
_OF_A_TABLE = re.compile(r"(?:ALTER|CREATE|RENAME)\b", re.IGNORECASE)


def bare(query: Query) -> str:
    """A statement without comments; of one that the server runs, its content."""
    return _PARTS.sub(_without_comments, query.text).strip()


def emptied(query: Query) -> tuple[str, str] | None:
    """The database and the table that a statement empties; None where it is another one.

    A temporary table, which is of a session and whose rows nobody is told, is none.
    """
    found = _TRUNCATE.match(bare(query))
    if found is None or query.is_of_session:
        return None
    first, second = (None if each is None else _plain(each) for each in found.groups())
    return (query.database, str(first)) if second is None else (str(first), second)


def changes_rows(query: Query) -> bool:
    """Whether it is a statement that changes rows, which the log then has not."""
    return _ROWS_AS_TEXT.match(bare(query)) is not None


def alters(query: Query) -> bool:
    """Whether it makes or alters a table, so that another one may have its name from now on."""
    return _OF_A_TABLE.match(bare(query)) is not None


def cascade(text: str) -> str | None:
    """What a foreign key in a CREATE TABLE or ALTER TABLE does to rows by itself, if it does something."""
    found = _CASCADE.search(_PARTS.sub(_without_quotes, text))
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


def _without_quotes(_: re.Match[str]) -> str:
    return " "


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(2 * quote, quote) if quote in '`"' else name
