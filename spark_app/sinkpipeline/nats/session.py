"""How a task writes to a stream: each row says of which source record it is, so that a torn commit can be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from typing_extensions import override

from sinkpipeline.cells.session import CellClaim, CellSession
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.records import Columns, Row
from sinkpipeline.nats.cells import NatsCells
from sinkpipeline.nats.client import Client
from sinkpipeline.nats.rows import MORE, OFFSET, RowPlace
from sinkpipeline.nats.settings import SinkSettings
from sinkpipeline.nats.stream import info, reading
from sinkpipeline.sinks.letters import SentLetters


class NatsSession(CellSession):
    """A partition's cell, and rows that name their records."""

    @override
    def send(self, rows: Iterable[Row]) -> None:
        """What can be no message is told before anything is open: no commit has to be tried again without it."""
        if not isinstance(rows, Columns) or rows.sources is None or not isinstance(self._cells, NatsCells):
            raise TypeError("rows of a stream come with the offsets of their records")
        for index, row in enumerate(_named(rows, rows.sources())):
            wrong = self._cells.why_not(row)
            if wrong is not None:
                raise RecordRefused(wrong, index=index)
            self._rows.append(row)


def _named(rows: Columns, offsets: Sequence[int]) -> Iterable[Row]:
    last = len(offsets) - 1
    for at, (value, key, partition, timestamp, headers) in enumerate(rows):
        more = MORE if at < last and offsets[at] == offsets[at + 1] else ""
        named = [*(headers or ()), (OFFSET, f"{offsets[at]}{more}")]
        yield value, key, partition, timestamp, named


class NatsClaim(CellClaim):
    """A cell that is in the stream of the start, for rows of that stream."""

    _session: ClassVar[type[CellSession]] = NatsSession

    def __init__(
        self,
        settings: SinkSettings,
        stream: str,
        run: str,
        partition: SourcePartition,
        client: Client,
        letters: SentLetters | None,
    ) -> None:
        """`stream`: the id of the one of the start."""
        self._client = client
        self._settings = settings
        self._stream = stream
        self._own = cells_of_sink(client, settings)
        super().__init__(self._own, settings.id, run, partition, letters)

    @override
    def _check(self) -> None:
        """Leaves it to the driver to decide about a stream that is not the one of the start any more."""
        self._own.rows_go(read_row_place(self._client, self._settings, self._stream))
        super()._check()


def stream_changed(name: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.TOPICS_CHANGED, f"stream {name} was deleted or re-created", "the sink starts again")


def cells_of_sink(client: Client, settings: SinkSettings) -> NatsCells:
    return NatsCells(client, settings.stream.name, settings.progress_subject, atomic=settings.exactly_once)


def read_row_place(client: Client, settings: SinkSettings, stream: str) -> RowPlace:
    """Where rows go, as it is now, in the stream with this id.

    Raises:
        SinkPipelineError: TopicsChanged, SinkUnreachable, ...
    """
    with reading(client):
        found = info(client, settings.stream.name)
        size = client.max_payload
    if found is None or found.id != stream:
        raise stream_changed(settings.stream.name)
    return RowPlace(found, settings.subject, settings.progress_subject, size)
