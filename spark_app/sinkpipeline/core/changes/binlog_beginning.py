"""What a start of a stage decides by what it has read of a MariaDB or MySQL server: where to go on, or why not.

    another server, or another name of its log        SourceRecreated
    the file of the position was removed              SourceDataLost       a server removes its files by their age
    the position is beyond the end of the log         SourceRolledBack
    another transaction is at the position            SourceRecreated      RESET MASTER, another server of the same name
    otherwise                                         go on at the position

A server hands out whatever is at a place of a file, also where the file is another one of the same name. So the GTID is
compared that was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.changes.binlog_places import PLACES
from sinkpipeline.core.changes.positions import BinlogPosition, Position, binlog_commit, noted, parse_binlog
from sinkpipeline.core.errors import Reason, SinkPipelineError

EVENT = 1_000_000
"""The index of a row: this, times the number of its event in the transaction, and its number in the event."""
_AT_RISK = 0.5

ANEW = (
    "look what the topic lacks, and then go on under another spec.identity; what this one has delivered stays as it is"
)


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What positions of a source are about; `meta.source` holds it as text."""

    server: str
    """Its server_id, or its server_uuid, as the kind has it."""
    log: str
    """The name of its files, without their numbers."""
    options: str
    """As the kind has it."""

    def to_meta(self) -> dict[str, str]:
        """As `meta.source` has it."""
        return {each.name: str(getattr(self, each.name)) for each in fields(self)}


def identity_of(source: Mapping[str, str]) -> Identity:
    """What `to_meta` was made of; ValueError if it wasn't."""
    names = {each.name for each in fields(Identity)}
    if source.keys() != names:
        raise ValueError(f"{sorted(source)} are not {sorted(names)}")
    return Identity(**{name: source[name] for name in names})


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """One file of the log."""

    number: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A server, as one look found it."""

    kind: BinlogKind
    identity: Identity
    files: tuple[LogFile, ...]
    """In their order; the last one is written."""
    gtids: str | None = None
    """Which of the GTIDs, or marks, that were noted the server has at the place that was asked about; None where no
    event begins there."""
    born: int | None = None
    """When the file of that place was begun, in Unix seconds; None where nobody has asked, or it is not there."""

    @property
    def end(self) -> BinlogPosition:
        """Where the log ends."""
        last = self.files[-1]
        note = noted(self.gtids or "", last.number, self.born)
        # What is behind that has no place, until the next file begins.
        offset = min(last.size, PLACES - 1)
        return BinlogPosition(binlog_commit(last.number, offset), 0, self.identity.log, note)

    def size_of(self, number: int) -> int | None:
        """None where there is no such file."""
        return next((each.size for each in self.files if each.number == number), None)

    def behind(self, at: Position) -> int:
        """Bytes of the log behind a position."""
        place = at if isinstance(at, BinlogPosition) else BinlogPosition(at.commit)
        sizes = [each.size - (place.offset if each.number == place.number else 0) for each in self.files]
        return sum(max(0, size) for each, size in zip(self.files, sizes, strict=True) if each.number >= place.number)


def files_of(rows: Iterable[tuple[str, int]], where: str) -> tuple[str, tuple[LogFile, ...]]:
    """The name of a log, and its files, as the server lists them.

    Raises:
        SinkPipelineError: SourceUnsuitable.
    """
    try:
        found = [(parse_binlog(f"{name}:0"), int(size)) for name, size in rows]
    except ValueError as error:
        raise SinkPipelineError(
            Reason.SOURCE_UNSUITABLE, f"{where} has a log of another kind: {error}", "start the server with log_bin"
        ) from error
    if not found:
        raise SinkPipelineError(
            Reason.SOURCE_UNSUITABLE, f"{where} has no binary log", "start the server with log_bin and server_id"
        )
    return found[-1][0].log, tuple(LogFile(number=place.number, size=size) for place, size in found)


def check_same(known: Identity, seen: Seen, where: str) -> None:
    """That a server is the one that was read. Raises SinkPipelineError: SourceRecreated."""
    found = seen.identity
    same = {
        seen.kind.identified_by: (known.server, found.server),
        "log": (known.log, found.log),
        "way to read it": (known.options, found.options),
    }
    for what, (before, now) in same.items():
        if before != now:
            raise SinkPipelineError(
                Reason.SOURCE_RECREATED,
                f"{where} is another source than the progress is of: its {what} was {before}, is {now}",
                f"name the server that was read before: another one has other positions; or {ANEW}",
            )


def check_going_on(known: Identity, at: BinlogPosition, seen: Seen, where: str) -> None:
    """Refuses to go on at a position that does not mean there what it meant, or behind which something is missing.

    Args:
        known: of the `meta` that belongs to the position.
        at: of the progress.
        seen: the server as it is now, asked about the position.
        where: names the source, for people.

    Raises:
        SinkPipelineError: SourceRecreated, SourceDataLost, SourceRolledBack.
    """
    check_same(known, seen, where)
    check_there(at, seen, where)
    if seen.born is not None and not at.is_born(at.number, seen.born):
        raise SinkPipelineError(
            Reason.SOURCE_RECREATED,
            f"{where}: {at.file} was begun at another time than the one that was read up to {at}",
            f"find out whether somebody ran {seen.kind.anew}, or restored a backup; {ANEW}",
        )
    # Of a transaction that goes on, the stream tells the GTID itself.
    if at.index == 0 and not is_known(at.gtids, seen.gtids):
        raise SinkPipelineError(
            Reason.SOURCE_RECREATED,
            f"{where} has GTIDs {seen.gtids or 'unknown'} at {at.place}, and {at.gtids or 'none'} was read there: its "
            "log is another one of the same name",
            f"find out whether somebody ran {seen.kind.anew}, or restored a backup; {ANEW}",
        )


def check_there(at: BinlogPosition, seen: Seen, where: str) -> None:
    """That the log has a position. Raises SinkPipelineError: SourceDataLost, SourceRolledBack."""
    size = seen.size_of(at.number)
    first, end = seen.files[0].number, seen.end
    if size is None and at.number < first:
        raise data_lost(at, where)
    # Inside a transaction the position is where that one begins: at least its first event was read.
    if size is None or at.offset + (at.index > 0) > size:
        raise SinkPipelineError(
            Reason.SOURCE_ROLLED_BACK,
            f"the log of {where} ends at {end.place}, and was read up to {at}: changes that are in the topic are not "
            "in the database any more",
            f"find out which server this is (a replica that was behind, a backup?); {ANEW}",
        )


def data_lost(at: BinlogPosition, where: str) -> SinkPipelineError:
    """The file of a position was removed."""
    return SinkPipelineError(
        Reason.SOURCE_DATA_LOST,
        f"{where} has removed {at.file}, and the topic has all up to {at}: what was changed behind it is gone",
        f"raise binlog_expire_logs_seconds of the server, so that it keeps what a slow reader needs; {ANEW}",
    )


def is_known(noted: str, found: str | None) -> bool:
    """Whether a server has, at a place, each GTID that was noted there."""
    if found is None:
        return False
    return set(filter(None, noted.split(","))) <= set(filter(None, found.split(",")))


def at_risk(behind: int, read_at: int | None, now: int, expires_s: int) -> str | None:
    """Why the log may be lost soon; None where that is not so.

    Args:
        behind: bytes of the log that were not read yet.
        read_at: when the newest event that was read was logged, in Unix seconds; None: none was.
        now: by the server's clock.
        expires_s: how long it keeps its files; 0: for ever.
    """
    if not behind or read_at is None or not expires_s or now - read_at < _AT_RISK * expires_s:
        return None
    ago = now - read_at
    return f"the server removes files of its log after {expires_s} s, and what is read now was logged {ago} s ago"
