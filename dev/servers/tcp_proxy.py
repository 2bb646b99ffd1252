"""A TCP proxy before a broker, which breaks connections as networks do, and also at one request of Kafka's protocol.

    client ──requests──► proxy ──► broker        everything, until `heal`: cut, refuse, delay, swallow
           ◄──answers───                         the next request of one API, or its answer: a `Trap`

It reads no more of a frame than its head: length, API key, version, correlation id. Toxiproxy breaks connections too,
but sees no requests, so that it can't lose the answer to a commit and nothing else; a mock broker sees them, but fences
nobody. TLS is not understood.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import struct
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from servers.local_process import HOST, free_ports
from servers.waiting import Patience

T = TypeVar("T")

CALL_DEADLINE: Final = 10.0
POLL_INTERVAL: Final = 0.005
BUFFER: Final = 64 * 1024 * 1024
_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")


class Api(enum.IntEnum):
    """The API keys that tests name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    DESCRIBE_CONFIGS = 32


class Way(enum.Enum):
    REQUESTS = "requests"
    ANSWERS = "answers"


class Fate(enum.Enum):
    """What becomes of a frame that was caught."""

    FORWARDED = "forwarded"
    LOST = "lost"
    """And all that follows it on its connection, that way: a stream has no holes. The other end has to notice."""
    CUT = "cut"
    """Lost, and the connection is reset at once."""


@dataclass(eq=False)
class Trap:
    """Catches requests of one API, or their answers. Made by `TcpProxy.trap`; may be used by any thread."""

    api: Api
    way: Way
    fate: Fate
    held: bool
    containing: bytes
    left: int
    caught: int = 0
    """How many frames have been caught so far."""

    def wait(self, deadline: float = 30.0) -> None:
        """Until a frame is caught."""
        patience = Patience(deadline)
        while not self.caught:
            if patience.is_over():
                raise AssertionError(f"no {self.way.value[:-1]} of {self.api.name} came within {deadline:.0f} s")
            time.sleep(POLL_INTERVAL)

    def release(self, fate: Fate = Fate.FORWARDED) -> None:
        """Lets the held frames, and those that are still to be caught, meet their fate."""
        self.fate = fate
        self.held = False

    def _takes(self, api: int, frame: bytes) -> bool:
        return self.left > 0 and api == self.api and self.containing in frame


@dataclass(eq=False)
class _Link:
    """One connection of a client, with ours to the broker."""

    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    broker: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    mute: set[Way] = field(default_factory=set)
    """What is lost from now on."""
    awaited: dict[int, Trap] = field(default_factory=dict)
    """Correlation ids of requests whose answers will be caught."""

    def cut(self) -> None:
        for _, writer in (self.client, self.broker):
            writer.transport.abort()


class TcpProxy:
    """Listens from the start until `close`; has a thread of its own. `target` is the broker's port."""

    def __init__(self, target: int) -> None:
        self.target = target
        [self.port] = free_ports(1)
        self.seen: Counter[int] = Counter()
        """Requests by API key."""
        self._delays = dict.fromkeys(Way, 0.0)
        self._swallowed: set[Way] = set()
        self._traps: list[Trap] = []
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self._call(self._listen())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing the second time."""
        if self._loop.is_closed():
            return
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        with warnings.catch_warnings():
            # Of a connection that asyncio accepted in its last moment nobody else knows: it ends by being collected.
            warnings.simplefilter("ignore", ResourceWarning)
            self._loop.close()
            gc.collect()

    def cut(self) -> None:
        """Resets every connection; new ones are welcome."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Resets every connection, and refuses new ones."""
        self._call(self._refuse())

    def delay(self, way: Way, seconds: float) -> None:
        """Every frame waits for so long before it goes on, or until `heal`."""
        self._delays[way] = seconds

    def swallow(self, way: Way) -> None:
        """Frames are lost, and with them whatever follows on their connections; connecting works."""
        self._swallowed.add(way)

    def heal(self) -> None:
        """Everything works again: delayed and held frames go on, connections that have lost some are reset."""
        for trap in self._traps:
            trap.release()
        self._traps = []
        self._delays = dict.fromkeys(Way, 0.0)
        self._swallowed = set()
        self._call(self._repair())

    @contextlib.contextmanager
    def trap(
        self,
        api: Api,
        way: Way,
        fate: Fate = Fate.CUT,
        *,
        held: bool = False,
        containing: bytes = b"",
        times: int = 1,
    ) -> Iterator[Trap]:
        """Catches the next requests of an API that contain these bytes, or their answers, while the `with` lasts."""
        trap = Trap(api, way, fate, held, containing, times)
        self._traps.append(trap)
        try:
            yield trap
        finally:
            trap.left = 0
            trap.held = False

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_DEADLINE)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port, limit=BUFFER, reuse_address=True)

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _cut(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _repair(self) -> None:
        for link in list(self._links):
            if link.mute:
                link.cut()
        if self._server is None:
            await self._listen()

    async def _stop(self) -> None:
        await self._refuse()
        # A connection that is being accepted becomes another task: until none is left.
        while others := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
            # Whoever was accepted begins: only then it can close what it was given.
            await asyncio.sleep(0)
            await self._cut()
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        # What is aborted is closed in the loop's next round.
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker = await asyncio.open_connection(HOST, self.target, limit=BUFFER)
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, OSError):
                return
            raise
        link = _Link((reader, writer), broker)
        self._links.add(link)
        try:
            # Not ended by the first: a request that was held may still arrive after its client has gone.
            await asyncio.gather(self._requests(link), self._answers(link))
        finally:
            self._links.discard(link)
            link.cut()

    async def _requests(self, link: _Link) -> None:
        (reader, _), (_, writer) = link.client, link.broker
        while frame := await _frame(reader):
            api, _, correlation = _REQUEST.unpack_from(frame, _LENGTH.size)
            self.seen[api] += 1
            trap = self._spring(api, frame)
            if trap is not None and trap.way is Way.ANSWERS:
                link.awaited[correlation] = trap
                trap = None
            if not await self._pass(link, Way.REQUESTS, frame, trap, writer):
                return
        if not writer.is_closing():
            writer.write_eof()

    async def _answers(self, link: _Link) -> None:
        (_, writer), (reader, _) = link.client, link.broker
        while frame := await _frame(reader):
            [correlation] = _LENGTH.unpack_from(frame, _LENGTH.size)
            if not await self._pass(link, Way.ANSWERS, frame, link.awaited.pop(correlation, None), writer):
                return
        writer.close()

    def _spring(self, api: int, frame: bytes) -> Trap | None:
        for trap in self._traps:
            if trap._takes(api, frame):  # noqa: SLF001 - of this module
                trap.left -= 1
                return trap
        return None

    async def _pass(self, link: _Link, way: Way, frame: bytes, trap: Trap | None, writer: asyncio.StreamWriter) -> bool:
        """Deals with one frame; false where that was the connection's end."""
        fate = Fate.FORWARDED
        if trap is not None:
            trap.caught += 1
            await _until(lambda: not trap.held)
            fate = trap.fate
        began = self._loop.time()
        await _until(lambda: self._loop.time() - began >= self._delays[way])
        if fate is Fate.CUT:
            link.cut()
            return False
        if fate is Fate.LOST or way in self._swallowed:
            link.mute.add(way)
        if way not in link.mute and not writer.is_closing():
            writer.write(frame)
            with contextlib.suppress(OSError):
                await writer.drain()
        return True


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - other threads change what is waited for
        await asyncio.sleep(POLL_INTERVAL)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """A frame with its length; b"" where the connection has ended."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return head + await reader.readexactly(_LENGTH.unpack(head)[0])
    except (asyncio.IncompleteReadError, OSError):
        return b""
