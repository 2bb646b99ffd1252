"""What a server itself says of its changes, by its own program that prints its log. No code of the product."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from readers.changes import Told, lsn_of, short
from servers.binlog_server import SUPERUSER, BinlogServer
from servers.local_process import HOST

_ARGUMENTS: Final = ("--verbose", "--base64-output=decode-rows", "--read-from-remote-server")
_FIRST: Final = 4
"""Where the first event of a file stands."""

_GTID = re.compile(r"#.*\bGTID (\d+-\d+-\d+)\b|SET @@SESSION.GTID_NEXT= '(?:ANONYMOUS|([0-9a-f-]+:.*?))'")
_TRUNCATE = re.compile(r"(?:/\*.*?\*/ *)*TRUNCATE (?:TABLE )?`?(\w+)`?(?:\.`?(\w+)`?)?", re.IGNORECASE)
_USE = re.compile(r"use `(\w+)`")
_ROW = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `(\w+)`\.`(\w+)`")
_VALUE = re.compile(r"###   @(\d+)=(.*)", re.DOTALL)
_OPS: Final = {"INSERT INTO": "c", "UPDATE": "u", "DELETE FROM": "d"}
# MariaDB prints all else as it is, quotation marks and backslashes too; MySQL has a backslash before these.
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_ESCAPED_BY_MYSQL = re.compile(r"\\(?:x([0-9a-f]{2})|(.))")
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


class _Print:
    """Reads a print, line by line."""

    def __init__(
        self, columns: Mapping[str, Sequence[str]], keys: Mapping[str, Sequence[str]], escaped: re.Pattern[str]
    ) -> None:
        self._escaped = escaped
        self.found: list[Told] = []
        self._columns = columns
        self._keys = keys
        self._database = self._op = self._table = ""
        self._gtid: str | None = None
        self._sides: list[dict[str, Any]] = []

    def line(self, line: str) -> None:
        if line.startswith("### "):
            self._of_row(line)
            return
        self.complete()
        if (begun := _GTID.match(line)) is not None:
            self._gtid = begun[1] or begun[2]
        elif (used := _USE.match(line)) is not None:
            self._database = used[1]
        elif (emptied := _TRUNCATE.match(line)) is not None:
            name = f"{emptied[1]}.{emptied[2]}" if emptied[2] else f"{self._database}.{emptied[1]}"
            if name in self._columns:
                self.found.append(Told("t", name, self._gtid, ()))

    def _of_row(self, line: str) -> None:
        row, value = _ROW.match(line), _VALUE.match(line)
        if row is not None:
            self.complete()
            self._op, self._table = _OPS[row[1]], f"{row[2]}.{row[3]}"
        elif line in ("### SET", "### WHERE"):
            self._sides.append({})
        elif value is not None and self._table in self._columns:
            self._sides[-1][self._columns[self._table][int(value[1]) - 1]] = _plain(value[2], self._escaped)

    def complete(self) -> None:
        """A row has ended, if there was one."""
        if self._op and self._table in self._columns:
            self.found += _changes(self._op, self._table, self._gtid, self._sides, self._keys.get(self._table, ()))
        self._op, self._sides = "", []


def printed(server: BinlogServer, begin: int, end: int | None = None) -> str:
    """What `mariadb-binlog` or `mysqlbinlog` prints of a server's log, from a place (`lsn_of`) up to another one."""
    with server.connected() as session, session.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        files = [row[0] for row in cursor.fetchall()]
    numbers = {name: lsn_of(f"{name}:0") >> 32 for name in files}
    last = max(numbers.values()) if end is None else end >> 32
    wanted = [name for name in files if begin >> 32 <= numbers[name] <= last]
    where = [f"--host={HOST}", f"--port={server.port}", f"--user={SUPERUSER}"]
    bounds = [f"--start-position={max(_FIRST, begin & 0xFFFFFFFF)}"]
    if end is not None:
        bounds.append(f"--stop-position={end & 0xFFFFFFFF}")
    return server.run(server.printer, *_ARGUMENTS, *where, *bounds, *wanted)


def told(
    text: str, columns: Mapping[str, Sequence[str]], keys: Mapping[str, Sequence[str]], *, is_mysql: bool
) -> list[Told]:
    """The changes in a print, in its order.

    Args:
        text: all of it.
        columns: by table, as `database.table`, its columns; other tables are passed over.
        keys: likewise, those of its primary key.
        is_mysql: whose program has printed it.
    """
    found = _Print(columns, keys, _ESCAPED_BY_MYSQL if is_mysql else _ESCAPED)
    for line in text.split("\n"):
        found.line(line)
    found.complete()
    return found.found


def _changes(
    op: str, table: str, gtid: str | None, sides: Sequence[Mapping[str, Any]], key: Sequence[str]
) -> list[Told]:
    first, last = sides[0], sides[-1]
    if op == "u" and any(first[name] != last[name] for name in key):
        return [Told("d", table, gtid, _row(first)), Told("c", table, gtid, _row(last))]
    return [Told(op, table, gtid, _row(last))]


def _row(side: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, short(value)) for name, value in side.items()))


def _plain(text: str, escaped: re.Pattern[str]) -> Any:
    if text == "NULL":
        return None
    if text.startswith("'"):
        inner = text[1 : text.rindex("'")]
        raw = escaped.sub(_unescaped, inner)
        return raw.encode(errors="surrogateescape").decode()
    # What is unsigned stands behind what is printed as signed.
    number = text.split(" ", 1)[0]
    return int(number) if number.lstrip("-").isdigit() else number


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is None:
        return _LETTERS.get(found[2], found[2])
    return bytes([int(found[1], 16)]).decode(errors="surrogateescape")
