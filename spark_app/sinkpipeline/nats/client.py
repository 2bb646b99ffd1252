"""The client of NATS: the one place for it. Requests and batches, and what their errors mean to us.

A connection is never made again behind our back: a version of a cell is good on the one on which it was read.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import ssl
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import nats.errors
from nats.aio.client import Client as NatsConnection
from nats.aio.msg import Msg

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.nats.codes import Meaning, meaning
from sinkpipeline.nats.log_in import CONNECT_TIMEOUT_S, Unencrypted, options_of
from sinkpipeline.nats.loop import run
from sinkpipeline.nats.settings import Connection

_LOG = logging.getLogger("sinkpipeline.nats")
T = TypeVar("T")

ANSWER_S = 10.0
"""How long one answer is waited for."""
_CLOSE_S = 1.0
_OPEN_REQUESTS = 100
_NOBODY = "503"  # the status of an answer that tells that nobody listens

_LOG_IN = "check auth of the sink, its Secrets, and the accounts and users of the server"
_CERTIFICATE = "name the authority of the server's certificate: auth.tls.caSecretRef of the sink"
_REACH = "check that the server runs and that servers names it as this machine reaches it"


class ApiError(Exception):
    """JetStream has answered, and says no."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.meaning = meaning(code)


@dataclass(frozen=True)
class Message:
    """What is published."""

    subject: str
    payload: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Stored:
    """A message as the stream has it."""

    subject: str
    seq: int
    payload: bytes
    headers: Mapping[str, str]


class Client:
    """One connection, made when it is needed and again after it broke; of one thread at a time.

    Raises (all methods that ask):
        ApiError: JetStream says no.
        InDoubt: nobody has answered; `aborted` where nothing can have been stored.
        SinkPipelineError: AuthenticationFailed, SinkRefused.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: NatsConnection | None = None
        self._closed = asyncio.Event()
        self._violation: str | None = None
        self._next = 0
        self._only: int | None = None
        self.made = 0
        """How many connections: what was read on one means nothing on another."""
        self.known: dict[str, Any] = {}
        self.reached: dict[str, tuple[int, float]] = {}
        """What was read on this one, and of streams, where they ended, and when; whoever reads keeps it."""

    @property
    def where(self) -> str:
        return f"NATS at {self._connection.servers}"

    @property
    def max_payload(self) -> int:
        """What the server takes as one message, with its headers."""
        self._run(self._connected(), CONNECT_TIMEOUT_S)
        return 0 if self._session is None else int(self._session.max_payload)

    def connect(self) -> None:
        """If there is no connection."""
        self._run(self._connected(), CONNECT_TIMEOUT_S * len(self._connection.addresses))

    def api(self, call: str, **arguments: Any) -> dict[str, Any]:
        """One call of JetStream's API, such as STREAM.INFO.ORDERS."""
        [answer] = self.apis([(call, arguments)])
        return answered(answer)

    def apis(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Several, as they are answered: an error stands in an answer."""

        async def all_of_them() -> list[dict[str, Any]]:
            session = await self._connected()
            found: list[dict[str, Any]] = []
            for begin in range(0, len(calls), _OPEN_REQUESTS):
                part = calls[begin : begin + _OPEN_REQUESTS]
                found += await asyncio.gather(*(self._call(session, *each) for each in part))
            return found

        return self._run(all_of_them(), ANSWER_S * (1 + len(calls) // _OPEN_REQUESTS))

    def message(self, stream: str, **which: Any) -> Stored | None:
        """One message of a stream; None where there is none."""
        [found] = self.messages(stream, [which])
        return found

    def messages(self, stream: str, which: Sequence[Mapping[str, Any]]) -> list[Stored | None]:
        """Likewise, several."""
        answers = self.apis([(f"STREAM.MSG.GET.{stream}", each) for each in which])
        return [self._stored(each) for each in answers]

    def publish(self, messages: Sequence[Message]) -> dict[str, Any]:
        """All of them, with one answer, to the last one. Whether that makes them one batch, their headers say."""

        async def all_of_them() -> dict[str, Any]:
            session = await self._connected()
            return await self._answered(session, messages)

        return answered(self._run(all_of_them(), ANSWER_S, stores=True))

    def publish_each(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """In their order, many under way at once, each with an answer of its own: an error stands in an answer."""

        async def all_of_them() -> list[dict[str, Any]]:
            session = await self._connected()
            return await self._each_answered(session, messages)

        return self._run(all_of_them(), ANSWER_S, stores=True)

    def connect_again(self) -> None:
        """Where the connection has ended, which nobody has noticed yet."""
        if self._session is None or not self._session.is_connected:
            self.connect()

    def stay(self, made: int | None) -> None:
        """From here on only this connection is good, or any."""
        self._only = made

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(Exception):
                run(_end(session), CONNECT_TIMEOUT_S)

    # In the loop

    async def _connected(self) -> NatsConnection:
        is_good = self._session is not None and self._session.is_connected
        if self._session is not None and is_good and self._only in (None, self.made):
            return self._session
        await self._drop()
        if self._only is not None:
            raise nats.errors.ConnectionClosedError
        addresses = self._connection.addresses
        for tried in range(len(addresses)):
            address = addresses[(self._next + tried) % len(addresses)]
            try:
                self._session = await self._made(address)
            except (OSError, nats.errors.Error, asyncio.TimeoutError, Unencrypted) as error:
                if tried + 1 == len(addresses) or _is_refusal(error):
                    self._next += 1
                    raise
                _LOG.info("NATS at %s: %s", address, error)
            else:
                self._next += tried
                break
        self.made += 1
        self.known.clear()
        self.reached.clear()
        if self._session is None:
            raise ValueError("no server is named")
        return self._session

    async def _made(self, address: str) -> NatsConnection:
        options, context = options_of(self._connection)
        session, closed = NatsConnection(), asyncio.Event()
        self._closed, self._violation = closed, None

        async def end() -> None:
            closed.set()

        connecting = True

        async def error(found: Exception) -> None:
            if connecting:
                # Else the client tries the same server again, until its own time is over.
                raise found
            if "permissions violation" in str(found).lower():
                self._violation = str(found)
                closed.set()
            _LOG.debug("NATS at %s: %s", address, found)

        try:
            await asyncio.wait_for(
                session.connect(f"nats://{address}", error_cb=error, closed_cb=end, disconnected_cb=end, **options),
                CONNECT_TIMEOUT_S,
            )
            connecting = False
            if context is not None:
                context.check()
        except BaseException:
            await _end(session)
            raise
        return session

    async def _call(self, session: NatsConnection, call: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        payload = json.dumps(arguments).encode() if arguments else b""
        return await self._answered(session, [Message(f"$JS.API.{call}", payload, {})])

    async def _answered(self, session: NatsConnection, messages: Sequence[Message]) -> dict[str, Any]:
        """All but the last one are sent, and the answer to that one is waited for."""
        *before, last = messages
        for each in before:
            await session.publish(each.subject, each.payload, headers=dict(each.headers) or None)
        answer = asyncio.ensure_future(
            session.request(last.subject, last.payload, timeout=ANSWER_S, headers=dict(last.headers) or None)
        )
        found = await self._unless_closed(answer)
        document: dict[str, Any] = json.loads(found.data)
        return document

    async def _each_answered(self, session: NatsConnection, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """By one subscription: a request for each would cost several times as much."""
        inbox, answers, is_done = session.new_inbox(), dict[int, Msg](), asyncio.Event()

        async def take(found: Msg) -> None:
            answers[int(found.subject.rpartition(".")[2])] = found
            if len(answers) == len(messages):
                is_done.set()

        subscription = await session.subscribe(f"{inbox}.*", cb=take)
        try:
            for number, each in enumerate(messages):
                reply, headers = f"{inbox}.{number}", dict(each.headers) or None
                await session.publish(each.subject, each.payload, reply=reply, headers=headers)
            await self._unless_closed(asyncio.ensure_future(is_done.wait()))
        finally:
            with contextlib.suppress(Exception):
                await subscription.unsubscribe()
        return [_document(answers[number]) for number in range(len(messages))]

    async def _unless_closed(self, answer: asyncio.Future[T]) -> T:
        """A connection that ends has no answers any more, and the client would wait for them."""
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((answer, closed), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise nats.errors.ConnectionClosedError
        finally:
            closed.cancel()
            answer.cancel()
            with contextlib.suppress(BaseException):
                await answer

    async def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await _end(session)

    # In the caller's thread

    def _run(self, work: Awaitable[T], seconds: float, *, stores: bool = False) -> T:
        """`stores`: whether it may have been done although nobody has answered."""

        async def awaited() -> T:
            return await asyncio.wait_for(work, seconds + 1)

        was = self.made
        try:
            return run(awaited(), seconds)
        except (OSError, asyncio.TimeoutError, nats.errors.Error, Unencrypted) as error:
            # Whatever it says later is no answer to what is asked next.
            had = self._session is not None
            violation = self._violation
            self.close()
            raise self._told(error, violation, stores=stores and (had or self.made > was)) from error

    def _told(self, error: Exception, violation: str | None, *, stores: bool) -> Exception:
        if violation is not None:
            return SinkPipelineError(
                Reason.SINK_REFUSED,
                f"{self.where}: {_one_line(violation)}",
                "grant it to the user of the sink: docs/nats.md lists the subjects",
            )
        if isinstance(error, nats.errors.NoRespondersError):
            text = f"{self.where}: nobody answers: the stream is gone or has no leader, or JetStream is off"
            told = SinkPipelineError(Reason.SINK_UNREACHABLE, text, "look at `nats stream info` and the server's log")
            return InDoubt(text, aborted=True, told=told)
        text = f"{self.where}: {_one_line(str(error) or type(error).__name__)}"
        if _is_refusal(error):
            remedy = _CERTIFICATE if isinstance(error, ssl.SSLCertVerificationError) else _LOG_IN
            return SinkPipelineError(Reason.AUTHENTICATION_FAILED, text, remedy)
        told = SinkPipelineError(Reason.SINK_UNREACHABLE, text, _REACH)
        late = isinstance(error, asyncio.TimeoutError | TimeoutError)
        return InDoubt(text, aborted=not stores, told=told, silent=late)

    def _stored(self, answer: dict[str, Any]) -> Stored | None:
        try:
            found = answered(answer)["message"]
        except ApiError as error:
            if error.meaning is Meaning.NO_MESSAGE:
                return None
            raise
        return Stored(
            subject=str(found["subject"]),
            seq=int(found["seq"]),
            payload=base64.b64decode(found.get("data") or ""),
            headers=_headers(base64.b64decode(found.get("hdrs") or "")),
        )

    def as_error(self, error: ApiError, *, missing: str = "the stream does not exist") -> Exception:
        """What an answer that says no means to who asked, where it is nothing that was expected."""
        text = f"{self.where}: {error}"
        match error.meaning:
            case Meaning.FULL:
                told = SinkPipelineError(Reason.SINK_FULL, text, "make room: the sink goes on by itself")
                return InDoubt(text, aborted=True, told=told)
            case Meaning.OUTAGE:
                told = SinkPipelineError(Reason.SINK_UNREACHABLE, text, _REACH)
                # With a batch it may come through all the same.
                return InDoubt(text, told=told)
            case Meaning.NO_STREAM:
                return SinkPipelineError(
                    Reason.TOPICS_CHANGED, f"{self.where}: {missing}", "the sink starts again by itself"
                )
            case Meaning.REFUSED:
                return SinkPipelineError(
                    Reason.SINK_REFUSED, text, "correct the stream or the manifest: docs/nats.md says what it needs"
                )
            case _:
                return InDoubt(text, aborted=error.meaning is not Meaning.UNKNOWN)


def answered(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that says yes. Raises ApiError."""
    error = answer.get("error")
    if error is not None:
        raise ApiError(int(error.get("err_code", 0)), str(error.get("description", error)))
    return answer


def _document(found: Msg) -> dict[str, Any]:
    if (found.headers or {}).get("Status") == _NOBODY:
        raise nats.errors.NoRespondersError
    document: dict[str, Any] = json.loads(found.data)
    return document


async def _end(session: NatsConnection) -> None:
    with contextlib.suppress(Exception):
        # One that is not in order may never be closed.
        await asyncio.wait_for(session.close(), _CLOSE_S)


def _is_refusal(error: BaseException) -> bool:
    text = str(error).lower()
    kinds = nats.errors.AuthorizationError | ssl.SSLError | Unencrypted
    return isinstance(error, kinds) or any(each in text for each in _SAID_OF_A_LOG_IN)


_SAID_OF_A_LOG_IN = ("authorization violation", "authentication", "nkey", "secure connection", "tls required")


def _headers(block: bytes) -> dict[str, str]:
    """The last one of a name, as no header of ours repeats."""
    found = {}
    for line in block.split(b"\r\n")[1:]:
        name, separator, value = line.partition(b":")
        if separator:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace").strip()
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())
