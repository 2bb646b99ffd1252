"""What it means that a log can't be read on."""

from __future__ import annotations

from typing import Final

from sinkpipeline.changes.binlog.stream import AnotherLog, LogIncomplete
from sinkpipeline.changes.binlog.wire import SqlFault
from sinkpipeline.core.changes.binlog_beginning import data_lost
from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.changes.binlog_values import NotServed
from sinkpipeline.core.changes.pgoutput import NotUnderstood
from sinkpipeline.core.changes.positions import BinlogPosition
from sinkpipeline.core.errors import Reason, SinkPipelineError

Refusal = SqlFault | AnotherLog | LogIncomplete | NotServed | NotUnderstood
"""By the server, or by who reads it."""

_ELSEWHERE: Final = ("impossible position", "position > file size")
"""What a server says where its log does not reach so far."""


def log_refused(refusal: Refusal, start: BinlogPosition, heard: int, where: str, kind: BinlogKind) -> SinkPipelineError:
    """The error for a refusal.

    Args:
        refusal: of the server only one that is of the log, whose files have what is behind `start`.
        start: from where on it was read.
        heard: all that commits before this was read.
        where: names the server, for people.
        kind: of it.
    """
    match refusal:
        case SqlFault():
            return _by_the_server(refusal.text, start, where, kind)
        case AnotherLog():
            return _recreated(str(refusal), start, where, kind)
        case LogIncomplete():
            return SinkPipelineError(
                Reason.SOURCE_DATA_LOST,
                f"{where}: the server says that its log lacks changes, behind {start.moved(heard).place}",
                "look into the server's log what it could not write; then look what the topic lacks, and go on under "
                "another spec.identity",
            )
        case NotServed():
            return SinkPipelineError(Reason.SOURCE_UNSUITABLE, f"{where}: {refusal.fact}", refusal.remedy)
        case NotUnderstood():
            return SinkPipelineError(
                Reason.INTERNAL_ERROR, f"{where}: {refusal}", "report it with the version of the server"
            )


def _by_the_server(said: str, start: BinlogPosition, where: str, kind: BinlogKind) -> SinkPipelineError:
    text = said.lower()
    if "gtid_mode" in text:
        mode = "OFF_PERMISSIVE" if "gtid_mode = off" in text else "ON_PERMISSIVE"
        return SinkPipelineError(
            Reason.SOURCE_UNSUITABLE,
            f"{where} was given another gtid_mode, and does not hand out what it has logged before: {said}",
            f"run SET GLOBAL gtid_mode = '{mode}', until the stage has read that",
        )
    if any(each in text for each in _ELSEWHERE):
        return _recreated(said, start, where, kind)
    if "could not find" in text:
        return data_lost(start, where)
    return SinkPipelineError(Reason.SOURCE_UNREACHABLE, f"{where}: {said}", "look at the server's log")


def _recreated(text: str, start: BinlogPosition, where: str, kind: BinlogKind) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.SOURCE_RECREATED,
        f"{where} has another log than the one that was read up to {start}: {text}",
        f"find out whether somebody ran {kind.anew}, or restored a backup; look what the topic lacks, and then go on "
        "under another spec.identity",
    )
