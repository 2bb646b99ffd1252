"""Cells as they are read: which message is one, what it holds, and what is left of it where its commit was torn.

a cell     what it holds; in its headers how many messages of its commit follow, and what it held before
no cell    no message of its subject, or an empty one: a removal that was not tidied up yet
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sinkpipeline.cells.store import NO_CELL, Cell, Puts, Version
from sinkpipeline.core.naming import is_meta_key
from sinkpipeline.nats.client import Client, Stored
from sinkpipeline.nats.stream import counted, info, reading
from sinkpipeline.nats.subjects import cell_of, cells_of, key_of, metas_of
from sinkpipeline.nats.torn import Torn, look_at_rows

_LOG = logging.getLogger("sinkpipeline.nats")

_STARTS_S = 0.05
"""A server is not killed and started anew in less."""

MOST_MESSAGES = 1_000
"""Of one atomic batch."""
BEHIND = "Sinkpipeline-Behind"
"""On a cell: how many messages of its batch follow."""
BEFORE = "Sinkpipeline-Before"
"""On a cell: what it held before."""
BATCH = "Nats-Batch-Id"


@dataclass(frozen=True)
class Known:
    """A cell as it was read or written last on this connection."""

    seq: int
    value: bytes | None
    leftover: tuple[int, ...] = ()
    """Rows of a torn commit that count for nothing, and go before anybody goes on from this cell."""


class CellReader:
    """The cells of sinks in one stream, and what the client's connection knows of them."""

    def __init__(self, client: Client, stream: str, progress: str) -> None:
        self._client = client
        self._stream = stream
        self._progress = progress

    def read(self, keys: Collection[str]) -> Mapping[str, Cell]:
        with reading(self._client):
            return self._read(list(keys))

    def went_back(self) -> bool:
        """Whether the stream ends before what this connection has put there: then nothing that was read on it counts.

        The server that has the stream need not be the one that we are connected to. It may have been started anew, and
        have lost its end, while our connection stayed.
        """
        reached, at = self._client.reached.get(self._stream, (0, 0.0))
        if not reached or time.monotonic() - at < _STARTS_S:
            return False
        there = info(self._client, self._stream)
        if there is None or there.last_seq >= reached:
            self.reached(reached)
            return False
        _LOG.warning(
            "%s: stream %s ends at message %d, and had %d", self._client.where, self._stream, there.last_seq, reached
        )
        self._client.known.clear()
        self._client.reached.clear()
        return True

    def reached(self, seq: int) -> None:
        """The stream has this message now."""
        self._client.reached[self._stream] = (seq, time.monotonic())

    def _read(self, keys: Sequence[str]) -> Mapping[str, Cell]:
        client = self._client
        self.went_back()
        subjects = [cell_of(self._progress, key) for key in keys]
        found = client.messages(self._stream, [{"last_by_subj": each} for each in subjects])
        torn: dict[str, Torn] = {}
        unknown = [each for each in found if each is not None and not self._is_known(each)]
        lasts = [(each, int(each.headers.get(BEHIND, "0"))) for each in unknown]
        checked = [(each, behind) for each, behind in lasts if behind]
        ends = client.messages(self._stream, [{"seq": each.seq + behind} for each, behind in checked])
        for (each, behind), end in zip(checked, ends, strict=True):
            if end is None or end.headers.get(BATCH) != each.headers.get(BATCH):
                self._look(each, behind, end, torn)
        return {
            key: self._noted(subject, each, torn.get(subject))
            for key, subject, each in zip(keys, subjects, found, strict=True)
        }

    def _is_known(self, found: Stored) -> bool:
        known: Known | None = self._client.known.get(found.subject)
        return known is not None and known.seq == found.seq

    def _look(self, cell: Stored, behind: int, end: Stored | None, torn: dict[str, Torn]) -> None:
        """Nothing stands where the end of its commit was, or something else."""
        if end is None:
            there = info(self._client, self._stream)
            if there is None or there.last_seq >= cell.seq + behind:
                # It was stored, and is gone since: rows expire, or somebody has removed them.
                return
        found = look_at_rows(self._client, self._stream, cell, behind, cell.headers.get(BEFORE))
        _LOG.warning(
            "%s: stream %s has lost a part of a commit: of its %d messages %d are left, and the progress of %s is that "
            "of these",
            self._client.where,
            self._stream,
            behind,
            found.left.rows,
            key_of(self._progress, cell.subject),
            extra={"reason": "CommitTorn"},
        )
        torn[cell.subject] = found

    def _noted(self, subject: str, found: Stored | None, torn: Torn | None) -> Cell:
        known: dict[str, Known] = self._client.known
        if found is None:
            known.pop(subject, None)
            return NO_CELL
        before = known.get(subject)
        if before is None or before.seq != found.seq:
            if torn is not None:
                before = Known(found.seq, torn.value, torn.leftover)
            else:
                before = Known(found.seq, found.payload or None)
            known[subject] = before
        return Cell(before.value, found.seq)

    def metas(self) -> Mapping[str, Cell]:
        with reading(self._client):
            subjects = counted(self._client, self._stream, metas_of(self._progress))
            keys = [key_of(self._progress, each) for each in subjects]
            return self._read([each for each in keys if is_meta_key(each)])

    def find(self, prefix: str, most: int) -> Mapping[str, Version]:
        with reading(self._client):
            subjects = counted(self._client, self._stream, f"{cells_of(self._progress, prefix)}.>")
            keys = [key_of(self._progress, each) for each in sorted(subjects)]
            found: dict[str, Version] = {}
            for begin in range(0, len(keys), MOST_MESSAGES):
                part = self._read(keys[begin : begin + MOST_MESSAGES])
                found.update((key, cell.version) for key, cell in part.items() if cell.value is not None)
                if len(found) >= most:
                    break
            return dict(list(found.items())[:most])

    def known(self, key: str) -> Known | None:
        """As it was read or written last on this connection."""
        found: Known | None = self._client.known.get(cell_of(self._progress, key))
        return found

    def is_tidy(self, key: str) -> None:
        """What was left over of its torn commit is gone."""
        known = self.known(key)
        if known is not None and known.leftover:
            self._client.known[cell_of(self._progress, key)] = replace(known, leftover=())

    def wrote(self, cells: Puts, first: int) -> dict[str, Version]:
        """They stand one behind the other, from this sequence on."""
        found: dict[str, Version] = {}
        for seq, (key, (value, _)) in enumerate(cells.items(), start=first):
            self._client.known[cell_of(self._progress, key)] = Known(seq, value)
            found[key] = seq
        return found
