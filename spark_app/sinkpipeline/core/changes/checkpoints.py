"""Where another reader of a slot has stopped, as `startFrom` of a first start has it.

    an LSN                       everything that was committed before it was read
    what Debezium has written    everything up to `lsn_commit`, and perhaps a part of the transaction behind it

Debezium's `lsn` names no change: all rows of a COPY may have the same one, and a row may have that of the end of the
transaction before. So nothing is passed over by it: what Debezium has read of a transaction that it was in comes
again. The other way round a row could be lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.changes.positions import LogPosition, Position, lsn_text, parse_binlog, parse_lsn
from sinkpipeline.core.foreign_json import parse_json

PLACE = r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}( \([0-9]{1,18}\))?"
"""An LSN; or a position as messages print it, with the index of a change in its transaction."""
BINLOG_PLACE = r"[^\x00-\x1f:/]{1,180}\.[0-9]{6,10}:[0-9]{1,10}"
"""A file of a binary log, and a place in it."""
_NO_SNAPSHOT = (False, None, "false")
_MAX_LSN = 1 << 64


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where to begin, and what may come again from there."""

    at: Position
    overlap: str = ""
    """What the other reader may have delivered already, as a sentence without a full stop; empty: nothing."""


class CheckpointError(ValueError):
    """A text that says of no place where to go on. Its text goes on after "has" or "is", and says why."""


def from_place(text: str) -> Checkpoint:
    """Of a text that `PLACE` matches."""
    lsn, _, index = text.partition(" ")
    return Checkpoint(at=LogPosition(parse_lsn(lsn), int(index.strip("()") or 0)))


def from_binlog(text: str) -> Checkpoint:
    """Of a text that `BINLOG_PLACE` matches; ValueError where the numbers are beyond what a server has."""
    return Checkpoint(at=parse_binlog(text))


def binlog_from_debezium(text: str) -> Checkpoint:
    """Of what Debezium's connector for MariaDB or MySQL keeps as its offset.

    Its `file` and `pos` are where the transaction begins that it was in, or where the last one ended; `event` and `row`
    count what it has read of that. Its events are not counted as ours are, so that part comes again.

    Args:
        text: as for `from_debezium`.

    Raises:
        CheckpointError: it is something else, or of a snapshot that was not complete.
    """
    offset = _offset(text, "file", "MariaDB or MySQL")
    is_complete = True in (offset.get("snapshot_completed"), offset.get("last_snapshot_record"))
    if offset.get("snapshot") not in _NO_SNAPSHOT and not is_complete:
        raise CheckpointError("of a snapshot that Debezium has not completed: let it complete the snapshot first")
    file, place = offset.get("file"), offset.get("pos")
    if not isinstance(file, str) or not isinstance(place, int) or isinstance(place, bool):
        raise CheckpointError("an offset whose file and pos are no place in a binary log")
    try:
        at = parse_binlog(f"{file}:{place}")
    except ValueError:
        raise CheckpointError("an offset whose file and pos are no place in a binary log") from None
    if not offset.get("event") and not offset.get("row"):
        return Checkpoint(at=at)
    return Checkpoint(
        at=at,
        overlap=f"Debezium had read all transactions up to {at.place}, and perhaps a part of the next one: that part "
        "comes again",
    )


def from_debezium(text: str) -> Checkpoint:
    """Of what Debezium's connector for PostgreSQL keeps as its offset.

    Args:
        text: that JSON alone; or what Kafka Connect answers to `GET /connectors/NAME/offsets`, which has it inside.

    Raises:
        CheckpointError: it is something else, or of a snapshot that was not complete.
    """
    offset = _offset(text, "lsn", "PostgreSQL")
    is_complete = True in (offset.get("snapshot_completed"), offset.get("last_snapshot_record"))
    if offset.get("snapshot") not in _NO_SNAPSHOT and not is_complete:
        raise CheckpointError("of a snapshot that Debezium has not completed: let it complete the snapshot first")
    committed = _lsn(offset, "lsn_commit")
    seen = _lsn(offset, "lsn")
    if committed is None:
        raise CheckpointError(
            "without lsn_commit: Debezium has not seen the end of a transaction. To begin where the slot stands, write "
            "startingPosition: Now instead of startFrom"
        )
    if seen == committed and offset.get("messageType") == "COMMIT":
        return Checkpoint(at=LogPosition(committed))
    return Checkpoint(
        at=LogPosition(committed),
        overlap=f"Debezium had read all transactions up to {lsn_text(committed)}, and perhaps a part of the next one: "
        "that part comes again",
    )


def _offset(text: str, wanted: str, database: str) -> Mapping[str, Any]:
    try:
        found = parse_json(text)
    except ValueError:
        raise CheckpointError("no JSON") from None
    if isinstance(found, dict) and isinstance(answered := found.get("offsets"), list):
        if len(answered) != 1 or not isinstance(answered[0], dict):
            raise CheckpointError(f"an answer with {len(answered)} offsets, and one is wanted")
        found = answered[0].get("offset")
    if not isinstance(found, dict):
        raise CheckpointError("no offset of a connector")
    if wanted not in found and f"{wanted}_commit" not in found:
        names = ", ".join(sorted(map(str, found))[:5])
        raise CheckpointError(
            f"no offset of Debezium's connector for {database}: it has {names or 'nothing'}, and no {wanted}"
        )
    return found


def _lsn(offset: Mapping[str, Any], name: str) -> int | None:
    value = offset.get(name)
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < _MAX_LSN:
        raise CheckpointError(f"an offset whose {name} is no LSN")
    return value
