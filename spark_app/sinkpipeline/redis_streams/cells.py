"""A hash of cells beside the stream, and the commit: one script compares the cells, adds the rows, writes the cells.

A version is a random number: a server that lost its tail, or a hash that was made again, has none of those that were
given since.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence

from sinkpipeline.cells.store import NO_CELL, NOTHING, Cell, Moved, Puts, Version
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import is_meta_key
from sinkpipeline.core.records import Row
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.entries import Words, arguments
from sinkpipeline.redis_streams.scripts import COMMIT
from sinkpipeline.redis_streams.settings import Stream
from sinkpipeline.sinks.failpoints import failpoint

_VERSION_BITS = 63
_AT_ONCE = 1_000


class RedisCells:
    """The cells of sinks, and the rows of one; `target`: the id of the stream, None for who writes no rows.

    `store`: of the driver, whose task this is.
    """

    def __init__(self, client: Client, stream: Stream, target: str | None = None, store: str = "") -> None:
        self._client = client
        self._stream = stream
        self._target = target
        self._store = store

    @property
    def connections(self) -> int:
        return self._client.met

    @property
    def store(self) -> str:
        return self._client.server

    def read(self, keys: Collection[str]) -> Mapping[str, Cell]:
        asked = list(keys)
        found: dict[str, Cell] = {}
        for begin in range(0, len(asked), _AT_ONCE):
            some = asked[begin : begin + _AT_ONCE]
            # An old master has the run before: read there, it would be a newer driver's.
            values = self._client.read("HMGET", self._stream.progress, *some, at=self._store)
            found.update(zip(some, map(_cell, values), strict=True))
        return found

    def metas(self) -> Mapping[str, Cell]:
        found = self._client.scan(self._stream.progress, "*/meta")
        return {key: _cell(value) for key, value in found if is_meta_key(key)}

    def put(self, cells: Puts) -> Mapping[str, Version]:
        return self._write(cells, [])

    def find(self, prefix: str, most: int) -> Mapping[str, Version]:
        pattern = "".join("\\" + each if each in "\\*?[]^" else each for each in prefix) + "*"
        found: dict[str, Version] = {}
        for key, value in self._client.scan(self._stream.progress, pattern):
            if len(found) == most:
                break
            found[key] = _cell(value).version
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
        if self._target is None and rows:
            raise ValueError("these cells have no rows")
        entries = arguments(rows, ids)
        failpoint("redis-before-commit")
        new = self._write({key: (value, version), **beside}, entries)[key]
        failpoint("redis-after-commit")
        return new

    def _write(self, cells: Puts, entries: Words) -> Mapping[str, Version]:
        """All at once, so their order doesn't count."""
        versions: dict[str, Version] = {}
        stream = self._stream
        words: Words = [self._target or "", "" if stream.maxlen is None else str(stream.maxlen), str(len(cells))]
        for key, (value, was) in cells.items():
            new = secrets.randbits(_VERSION_BITS)
            versions[key] = None if value is None else new
            words += (key, "" if was is None else str(was), b"" if value is None else b"%d %b" % (new, value))
        answer = self._client.write(
            COMMIT, (stream.progress, stream.key, stream.known), [*words, *entries], at=self._store
        )
        match answer:
            case [b"OK"]:
                return versions
            case [b"MOVED", moved]:
                raise Moved(moved.decode())
            case _:
                raise changed(stream)


def changed(stream: Stream) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.TOPICS_CHANGED, f"stream {stream.key} was deleted or re-created", "the sink starts again"
    )


def _cell(value: bytes | None) -> Cell:
    if value is None:
        return NO_CELL
    version, _, content = value.partition(b" ")
    return Cell(content, int(version))
