"""What stands in a cell: a record of the progress topic, and who has written it.

    meta        as in the progress topic
    partition   as there, and "run" and "claim"; without "next" where somebody has claimed a partition that has none yet

The run stands in each cell, so a late task learns of its successor where it is fenced. The claim is a random word: a
store that goes back may count up to the same version again, and would let a late writer in by that alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sinkpipeline.cells.store import Cell
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.naming import SinkId, is_meta_key
from sinkpipeline.core.progress import Meta, PartitionProgress, corrupt
from sinkpipeline.core.progress_records import decode_meta, decode_partition, encode_partition


@dataclass(frozen=True)
class PartitionCell:
    """Of one source partition."""

    run: str
    claim: str
    progress: PartitionProgress | None
    """None where it was only claimed."""


def encode_cell(cell: PartitionCell) -> bytes:
    document = {} if cell.progress is None else parse_json(encode_partition(cell.progress).decode())
    return json.dumps({**document, "run": cell.run, "claim": cell.claim}, separators=(",", ":")).encode()


def decode_cell(value: bytes, where: str) -> PartitionCell:
    """Raises SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown."""
    try:
        document = parse_json(value.decode())
        run, claim = document.pop("run"), document.pop("claim")
    except (ValueError, KeyError, AttributeError) as error:
        raise corrupt(f"{where} is no cell of ours: {error}") from error
    if not isinstance(run, str) or not isinstance(claim, str):
        raise corrupt(f"{where} is no cell of ours: its run or its claim is no text")
    progress = decode_partition(json.dumps(document).encode(), where) if document else None
    return PartitionCell(run=run, claim=claim, progress=progress)


NO_META = b"{}"
"""Of a sink that somebody has held, and nobody has announced."""


def metas_in(found: Mapping[str, Cell]) -> dict[str, Meta | None]:
    """By key, those of sinks that somebody has announced; None is unreadable."""
    metas: dict[str, Meta | None] = {}
    for key, cell in found.items():
        if is_meta_key(key) and cell.value not in (None, NO_META):
            try:
                metas[key] = decode_meta(cell.value, key)
            except SinkPipelineError:
                metas[key] = None
    return metas


def meta_in(found: Cell, sink: SinkId) -> Meta | None:
    """Raises SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown."""
    return None if found.value in (None, NO_META) else decode_meta(found.value, sink.meta_key)
