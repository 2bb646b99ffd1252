"""Cells as messages of the stream, and the commit: one atomic batch with the cell first, then the rows.

A cell's version is the sequence of the last message of its subject. The server compares it as it stores the batch, so a
batch that is late finds another one. What was read on another connection means nothing: a server that lost its tail
may give a sequence twice.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sinkpipeline.cells.store import NOTHING, Cell, Moved, Puts, Version
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import is_meta_key
from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.nats.client import ApiError, Client, Message, answered
from sinkpipeline.nats.codes import Meaning
from sinkpipeline.nats.publishing import NatsPublisher
from sinkpipeline.nats.reader import BATCH, BEFORE, BEHIND, MOST_MESSAGES, CellReader
from sinkpipeline.nats.rows import RowPlace
from sinkpipeline.nats.stream import NEVER, TTL, info
from sinkpipeline.nats.subjects import cell_of
from sinkpipeline.sinks.failpoints import failpoint

_LOG = logging.getLogger("sinkpipeline.nats")

_EXPECTED = "Nats-Expected-Last-Subject-Sequence"


class _Repeated(Exception):
    """The stream has a row of the batch already; nothing of the batch was stored."""


class NatsCells:
    """The cells of sinks in one stream, and the rows of one. `rows` is None for who writes none.

    `atomic`: whether cells that are put together are written at once; else one by one, as a server before 2.12 can.
    """

    def __init__(
        self, client: Client, stream: str, progress: str, rows: RowPlace | None = None, *, atomic: bool = True
    ) -> None:
        self._atomic = atomic
        self._client = client
        self._stream = stream
        self._progress = progress
        self._reader = CellReader(client, stream, progress)
        self._rows = rows
        self._ttl: bool | None = None
        self._made: dict[int, tuple[Row, Message]] = {}
        """Messages of rows that are open, by what the row is: it is kept, so that no other one has its place."""

    def rows_go(self, rows: RowPlace) -> None:
        """Where rows go from here on."""
        self._rows, self._ttl, self._made = rows, rows.stream.keeps_cells, {}

    def why_not(self, row: Row) -> Verdict | None:
        """Why it can't be written; None if it can."""
        found = None if self._rows is None else self._rows.message(row)
        if isinstance(found, Verdict):
            return found
        if found is not None:
            self._made[id(row)] = row, found
        return None

    @property
    def connections(self) -> int:
        return self._client.made

    @property
    def store(self) -> str:
        """Nothing tells one from another here; a commit stays in the stream that its claim was read from."""
        return ""

    def read(self, keys: Collection[str]) -> Mapping[str, Cell]:
        return self._reader.read(keys)

    def metas(self) -> Mapping[str, Cell]:
        return self._reader.metas()

    def find(self, prefix: str, most: int) -> Mapping[str, Version]:
        return self._reader.find(prefix, most)

    def put(self, cells: Puts) -> Mapping[str, Version]:
        """In batches, in their order."""
        found: dict[str, Version] = {}
        for part in _parts(cells, apart=not self._atomic):
            if not self._atomic:
                found.update(self._put_each(part))
                continue
            with self._on_one_connection():
                last = self._store(part, self._messages(part))
            found.update(self._reader.wrote(part, last - len(part) + 1))
        self._tidy({key: version for key, version in found.items() if cells[key][0] is None})
        return {key: None if cells[key][0] is None else version for key, version in found.items()}

    def _put_each(self, cells: Puts) -> dict[str, Version]:
        """What is written of them counts, whatever becomes of the others."""
        with self._on_one_connection():
            answers = self._client.publish_each(self._messages(cells))
        found: dict[str, Version] = {}
        refused: dict[str, ApiError] = {}
        for key, answer in zip(cells, answers, strict=True):
            try:
                found |= self._reader.wrote({key: cells[key]}, int(answered(answer)["seq"]))
            except ApiError as error:
                refused[key] = error
        for key, why in refused.items():
            raise self._why(why, {key: cells[key]}, None, 1) from why
        return found

    def commit(
        self,
        key: str,
        value: bytes,
        version: Version,
        rows: Sequence[Row],
        beside: Puts = NOTHING,
        ids: Sequence[str | None] = (),
    ) -> Version:
        if self._rows is None:
            raise ValueError("these cells have no rows")
        puts = {key: (value, version), **beside}
        if len(puts) + len(rows) > MOST_MESSAGES:
            text = f"its {len(rows)} rows don't fit into one batch, which takes {MOST_MESSAGES - len(puts)}"
            raise RecordRefused(Verdict(ErrorClass.TOO_MANY_ROWS, text))
        made, self._made = self._made, {}
        publisher = NatsPublisher(self._client, self._rows)
        of_rows = [
            made[id(row)][1] if id(row) in made else _taken(publisher.made(row, row_id), index)
            for index, (row, row_id) in enumerate(zip(rows, ids or itertools.repeat(None), strict=False))
        ]
        with self._on_one_connection():
            first, *others = self._messages(puts)
            behind = len(of_rows) + len(others)
            if behind:
                first = replace(first, headers={**first.headers, **self._of_commit(key, behind)})
            try:
                last = self._store(puts, [first, *of_rows, *others], self._rows)
            except _Repeated:
                # Of the rows by themselves it stores those that it has not, and only then do the cells say so.
                publisher.publish(of_rows)
                failpoint("nats-rows-published")
                behind = len(others)
                last = self._store(puts, [first, *others])
        new = self._reader.wrote({key: puts[key]}, last - behind)
        new |= self._reader.wrote(beside, last - len(others) + 1)
        self._tidy({each: new[each] for each, (put, _) in beside.items() if put is None})
        return new[key]

    def _of_commit(self, key: str, behind: int) -> dict[str, str]:
        """By which what is left of it is understood, should the stream lose its end.

        The cell of a redrive is none of a partition: there the cells of letters say what counts, and they come last.
        """
        known = self._reader.known(key)
        if known is None or known.value is None or _is_of_redrive(key):
            return {}
        return {BEHIND: str(behind), BEFORE: known.value.decode()}

    def _messages(self, cells: Puts) -> list[Message]:
        """Raises Moved, InDoubt."""
        found = []
        for key, (value, version) in cells.items():
            self._check_version(key, version)
            headers = {_EXPECTED: str(version or 0), "Nats-Expected-Stream": self._stream}
            if self._keeps_cells:
                headers[TTL] = NEVER
            found.append(Message(cell_of(self._progress, key), value or b"", headers))
        return found

    @property
    def _keeps_cells(self) -> bool:
        if self._ttl is None:
            there = info(self._client, self._stream)
            self._ttl = there is not None and there.keeps_cells
        return self._ttl

    def _check_version(self, key: str, version: Version) -> None:
        if version is None:
            return
        known = self._reader.known(key)
        if known is None or known.seq < version:
            raise InDoubt(f"the cell {key} was read on another connection", aborted=True)
        if known.seq > version:
            raise Moved(key)
        for seq in known.leftover:
            self._remove(seq)
        self._reader.is_tidy(key)

    def _store(self, cells: Puts, messages: Sequence[Message], rows: RowPlace | None = None) -> int:
        """The sequence of the last message.

        Raises:
            Moved, InDoubt, RecordRefused, SinkPipelineError.
        """
        batch = uuid.uuid4().hex
        if len(messages) > 1:
            messages = [
                replace(each, headers={**each.headers, BATCH: batch, "Nats-Batch-Sequence": str(number)})
                for number, each in enumerate(messages, start=1)
            ]
            messages[-1] = replace(messages[-1], headers={**messages[-1].headers, "Nats-Batch-Commit": "1"})
        failpoint("nats-before-batch")
        try:
            answer = self._client.publish(messages)
        except ApiError as error:
            raise self._why(error, cells, rows, len(messages)) from error
        if len(messages) > 1 and (answer.get("batch") != batch or answer.get("count") != len(messages)):
            raise SinkPipelineError(
                Reason.SINK_REFUSED,
                f"{self._client.where}: the server has stored the messages of a batch one by one, without comparing: "
                "it is older than 2.12",
                "upgrade all servers to NATS 2.12 or newer; then compare the stream with its source",
            )
        self._reader.reached(int(answer["seq"]))
        return int(answer["seq"])

    @contextmanager
    def _on_one_connection(self) -> Iterator[None]:
        """What is compared with what is known of this connection is written on no other one."""
        self._client.connect_again()
        self._client.stay(self._client.made)
        try:
            if self._reader.went_back():
                raise InDoubt(f"{self._client.where}: stream {self._stream} has lost its end", aborted=True)
            yield
        finally:
            self._client.stay(None)

    def _why(self, error: ApiError, cells: Puts, rows: RowPlace | None, sent: int) -> Exception:
        match error.meaning:
            case Meaning.MOVED:
                return self._who_moved(error, cells)
            case Meaning.REPEATED if rows is not None:
                return _Repeated()
            case Meaning.INCOMPLETE if rows is not None:
                there = info(self._client, self._stream)
                if there is not None and (there.config, there.id) != (rows.stream.config, rows.stream.id):
                    # By the limits of now: whoever tries it again finds out which row it is.
                    self._rows = replace(rows, stream=there)
                return InDoubt(f"{self._client.where}: {error}, of {sent} messages", aborted=True)
            case _:
                found = self._client.as_error(error)
                if isinstance(found, InDoubt) and error.meaning is Meaning.OUTAGE:
                    self._client.close()
                return found

    def _who_moved(self, error: ApiError, cells: Puts) -> Exception:
        """No proof yet: a batch of ours that is still on its way is told alike."""
        versions = {key: version for key, (_, version) in cells.items()}
        now = self.read(list(versions))
        for key, version in versions.items():
            if now[key].version != version:
                return Moved(key)
        return InDoubt(f"{self._client.where}: {error}, and nobody has written", aborted=True)

    def _tidy(self, removed: Mapping[str, Version]) -> None:
        """Of cells that are removed no message stays, where we may do that. One that was written since stays."""
        calls = [
            (f"STREAM.PURGE.{self._stream}", {"filter": cell_of(self._progress, key), "seq": version + 1})
            for key, version in removed.items()
            if version is not None
        ]
        if calls:
            try:
                self._client.apis(calls)
            except (InDoubt, SinkPipelineError) as error:
                _LOG.info("messages of cells that were removed stay: %s", error)

    def _remove(self, seq: int) -> None:
        try:
            self._client.api(f"STREAM.MSG.DELETE.{self._stream}", seq=seq)
        except ApiError as error:
            if error.meaning is not Meaning.NO_MESSAGE:
                raise self._client.as_error(error) from error


def _parts(cells: Puts, *, apart: bool) -> Iterator[Puts]:
    """What is sent together, in turn. `apart`: `meta` alone, as it is to stand before some and behind others."""
    part: dict[str, tuple[bytes | None, Version]] = {}
    for key, put in cells.items():
        if part and (len(part) == MOST_MESSAGES or (apart and (is_meta_key(key) or is_meta_key(next(iter(part)))))):
            yield part
            part = {}
        part[key] = put
    if part:
        yield part


def _is_of_redrive(key: str) -> bool:
    """No user's name of a sink holds a dot."""
    return "." in key.split("/")[3]


def _taken(found: Message | Verdict, index: int) -> Message:
    if isinstance(found, Verdict):
        raise RecordRefused(found, index=index)
    return found
