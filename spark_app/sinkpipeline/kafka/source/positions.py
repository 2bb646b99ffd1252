"""Reading the positions that somebody else has committed; changes nothing, neither there nor here."""

from __future__ import annotations

from pathlib import Path

from sinkpipeline.core import positions
from sinkpipeline.core.manifest import StartFrom
from sinkpipeline.core.moments import moment_ms
from sinkpipeline.core.positions import CheckpointFiles, Positions
from sinkpipeline.core.starting import SourceView
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.kafka.source.groups import Groups

_LARGEST = 16 * 1024 * 1024
"""Bytes of one log file: the offsets of some hundred thousand partitions."""


def read_positions(start: StartFrom, source: SourceSettings, admin: Admin, view: SourceView) -> Positions:
    """Where a first start begins, of the source's partitions; `admin` is of its cluster.

    Raises:
        SinkPipelineError: PositionsRefused, and as `Admin`.
    """
    if start.checkpoint is not None:
        return positions.within(read_checkpoint(start.checkpoint), view)
    if start.group is not None:
        return positions.within(read_group(start.group, source.connection), view)
    if start.timestamp is None:
        raise ValueError("startFrom names exactly one")
    at = moment_ms(start.timestamp)
    found = admin.offsets_at(dict.fromkeys(view.beginnings, at), view.ends, read_committed=source.read_committed)
    return Positions(origin=f"the first record at or after {start.timestamp}", next=found)


def read_group(group: str, connection: Connection) -> Positions:
    """Where a consumer group stands.

    Raises:
        SinkPipelineError: PositionsRefused, and as `Admin`.
    """
    groups = Groups(connection)
    return positions.of_group(group, groups.state(group), groups.offsets(group))


def read_checkpoint(path: str) -> Positions:
    """Where a query stands whose checkpoint is a directory of this machine.

    Raises:
        SinkPipelineError: PositionsRefused.
    """
    directory = Path(path.removeprefix("file://"))
    if "://" in str(path) and not path.startswith("file://"):
        raise positions.refused(
            f"checkpoint {path} is not a directory of this machine",
            "copy its folders offsets, commits and sources to one, as with `hadoop fs -get` or `aws s3 cp --recursive`",
        )
    if not (directory / "offsets").is_dir():
        raise positions.refused(
            f"{directory} is no checkpoint: it has no folder offsets",
            "give the directory of the query's option checkpointLocation",
        )
    initial = directory / "sources" / "0" / "0"
    return positions.of_checkpoint(
        CheckpointFiles(
            directory=str(directory),
            offsets=_log(directory / "offsets"),
            commits=_log(directory / "commits"),
            initial=_text(initial) if initial.is_file() else None,
            has_state=(directory / "state").is_dir(),
        )
    )


def _log(directory: Path) -> dict[int, str]:
    """The entries of a log of Spark's, by batch; what it left half done has other names."""
    try:
        batches = sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(directory, error) from error
    return {batch: _text(directory / str(batch)) for batch in batches}


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise positions.refused(f"{path} is too large for a log of Spark's", "give the checkpoint of a query")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> Exception:
    return positions.refused(f"{path} can't be read: {error}", "give a directory that this user can read")
