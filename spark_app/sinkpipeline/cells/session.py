"""How a task writes to a store of cells: rows and the partition's cell in one commit, if the cell is as it left it.

A claim writes the cell anew, with a random word, if it is as it was read. So whoever held the partition finds another
version, and a commit of theirs that is still on its way finds it too. In doubt needs no fence: a late commit and its
repetition can't both find the cell unchanged.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from typing import ClassVar

from sinkpipeline.cells.letters import counting, sent
from sinkpipeline.cells.records import PartitionCell, decode_cell, encode_cell, meta_in
from sinkpipeline.cells.store import Cells, Moved, Puts, Version
from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import Fenced, InDoubt, RecordRefused
from sinkpipeline.core.progress import PartitionProgress, corrupt
from sinkpipeline.core.records import Row
from sinkpipeline.core.rolled_back import regressed
from sinkpipeline.core.starting import check_run
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.letters import SentLetters

CLAIM_ATTEMPTS = 5


class CellSession:
    """A partition's cell as this session has written it last."""

    def __init__(
        self,
        cells: Cells,
        key: str,
        run: str,
        version: Version,
        progress: PartitionProgress | None,
        letters: SentLetters | None = None,
    ) -> None:
        self._cells = cells
        self._letters = letters
        self._key = key
        self._run = run
        self._version = version
        self._rows: list[Row] = []
        self._ids: list[str | None] = []
        """By what each row is known again, of a sink that says so; of no row otherwise."""
        self._dead: list[Row] = []
        self.progress = progress
        self.verified: int | None = None
        self.is_open = False
        self.in_doubt = False

    @property
    def key(self) -> str:
        return self._key

    def begin(self) -> None:
        self._rows, self._ids, self._dead, self.is_open = [], [], [], True

    def send(self, rows: Iterable[Row]) -> None:
        self._rows.extend(rows)

    def send_dead(self, rows: Iterable[Row]) -> None:
        self._dead += sent(self._letters, rows)

    def commit(self, new: PartitionProgress) -> None:
        """Letters first: what counts has a letter, and the store waits for nobody while it holds a cell."""
        self._flush()
        with passing_outages():
            beside = counting(self._cells, self._dead, new.epoch)
        value = encode_cell(PartitionCell(run=self._run, claim=str(uuid.uuid4()), progress=new))
        failpoint("after-progress-before-commit")
        self._commit(value, beside)

    def _flush(self) -> None:
        self.is_open = False
        if self._letters is not None:
            self._letters.flush()

    def _commit(self, value: bytes, beside: Puts) -> None:
        self.in_doubt = True
        try:
            self._version = self._cells.commit(self._key, value, self._version, self._rows, beside, self._ids)
        except Moved as moved:
            self.in_doubt = False
            raise Fenced(moved.key) from moved
        except InDoubt as doubt:
            self.in_doubt = not doubt.aborted
            raise
        except RecordRefused as refusal:
            self.in_doubt = False
            raise RecordRefused(refusal.verdict, refusal.topic, open_index=refusal.index) from refusal
        except Exception:
            self.in_doubt = False
            raise
        self.in_doubt = False
        if self._letters is not None:
            self._letters.counted()

    def would_refuse(self, timestamp: int) -> Verdict | None:  # noqa: ARG002 - no store judges clocks
        return None

    def abort(self) -> bool:
        self.close()
        return True

    def close(self) -> None:
        self.is_open = False
        if self._letters is not None:
            self._letters.drop()


@contextlib.contextmanager
def passing_outages() -> Iterator[None]:
    """Of a read: an outage is waited for, as one would for the answer to a commit."""
    try:
        yield
    except SinkPipelineError as error:
        if error.reason.counted:
            raise
        doubt = error.__cause__
        silent = isinstance(doubt, InDoubt) and doubt.silent
        raise InDoubt(str(error), aborted=True, told=error, silent=silent) from error


class CellClaim:
    """Takes a source partition by its cell."""

    _session: ClassVar[type[CellSession]] = CellSession

    def __init__(
        self,
        cells: Cells,
        sink: SinkId,
        run: str,
        partition: SourcePartition,
        letters: SentLetters | None = None,
    ) -> None:
        self._cells = cells
        self._letters = letters
        self._sink = sink
        self._run = run
        self._partition = partition

    @property
    def key(self) -> str:
        return self._sink.partition_key(self._partition)

    def check(self) -> None:
        with passing_outages():
            self._check()

    def _check(self) -> None:
        key = self._sink.meta_key
        check_run(self._sink, meta_in(self._cells.read([key])[key], self._sink), self._run)

    def take(self) -> CellSession:
        for _ in range(CLAIM_ATTEMPTS):
            # Before the cell: a run that was announced after this read has still to fence the cell, and finds ours.
            self.check()
            found = self._cells.read([self.key])[self.key]
            if found.value is None:
                raise corrupt(f"the progress of {self._partition} was removed")
            cell = decode_cell(found.value, self.key)
            if cell.run != self._run:
                # Nobody but a start writes another run into it, and ours has written its own.
                raise Fenced(self.key)
            if cell.progress is None:
                # A start has fenced it, and not come further: tasks run once it has, so the store went back to before.
                raise regressed(f"{self._sink}: the cell of {self._partition} has no progress any more")
            claimed = encode_cell(PartitionCell(run=self._run, claim=str(uuid.uuid4()), progress=cell.progress))
            try:
                version = self._cells.put({self.key: (claimed, found.version)})[self.key]
            except Moved:
                # A commit of somebody who had it before has come through: what it says now counts.
                continue
            return self._session(self._cells, self.key, self._run, version, cell.progress, self._letters)
        raise Fenced(self.key)
