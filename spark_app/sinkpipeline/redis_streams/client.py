"""The client of Redis and Valkey: commands and scripts, sent to whoever takes the writes of a sink.

before a script was sent   nothing of it counts, for certain
from then on               it counts or not, where no answer came
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.redis_streams import lines
from sinkpipeline.redis_streams.entries import Words
from sinkpipeline.redis_streams.lines import Line
from sinkpipeline.redis_streams.replies import LEAVES, Meaning
from sinkpipeline.redis_streams.scripts import Script
from sinkpipeline.redis_streams.settings import Connection
from sinkpipeline.redis_streams.where import access_to, outage, where_of

CONNECT_TIMEOUT_S = 10.0
ANSWER_S = 15.0
"""How long one answer is waited for."""
ACKNOWLEDGED_MS = 5_000
"""How long replicas and disks are waited for after a commit."""
_SCANNED = 1_000
_LEAST_BULK = 1024 * 1024
"""Every server takes as much."""

_REACH = "check that the server runs and that servers names it as this machine reaches it"
_WAITED_FOR = "nothing: the new master is waited for"
_LOG_IN = "check auth of the sink, its Secrets, and the server's ACL"


class Client:
    """One connection, made when it is needed and again after it broke; of one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._places = where_of(connection)
        self._line: Line | None = None
        self._address = ""
        """Of the server that was connected to last."""
        self.server = ""
        """Which history of writes the server has that answered last; another one begins as it starts or is promoted."""
        self.met = 0
        """How often another one was met, or another connection was made: it may be one that went back."""

    def read(self, *words: str | bytes | int, at: str = "") -> Any:
        """The answer to a command that writes nothing; `at`: the `server` that is asked, and no other one.

        Raises:
            SinkPipelineError: SinkUnreachable, ...
        """
        with self._nothing_in_doubt():
            self._meet(at)
            return self._asked(words)

    def look(self, script: Script, keys: Sequence[str], *words: str) -> Any:
        """That of a script which can be run again: nothing is in doubt. Raises as `read`."""
        with self._nothing_in_doubt():
            self._meet()
            return self._run(script, keys, words)

    @contextlib.contextmanager
    def _nothing_in_doubt(self) -> Iterator[None]:
        try:
            yield
        except InDoubt as doubt:
            raise doubt.told or SinkPipelineError(
                Reason.TRANSACTION_FAILED, f"{self._where}: {doubt}", "look at the server's log"
            ) from doubt

    def write(self, script: Script, keys: Sequence[str], words: Words, *, at: str = "") -> Any:
        """That of a script, once what it wrote is acknowledged as the sink asks for it.

        `at`: the `server` that is written to, and no other one.

        Raises:
            InDoubt: it may count or not; `aborted` where it does not.
            RecordRefused: the server takes no word of such a length.
            SinkPipelineError: SinkRefused, AuthenticationFailed.
        """
        self._meet(at)
        try:
            answer = self._run(script, keys, words)
        except InDoubt as doubt:
            if doubt.aborted and not doubt.silent:
                self._check_lengths(words)
            raise
        if answer == [b"OK"]:
            self._wait()
        return answer

    def pipelined(self, commands: Sequence[Words], *, at: str = "") -> list[Any]:
        """Their answers. All are sent at once; others may come in between.

        `at`: the `server` that is written to, and no other one.

        Raises:
            InDoubt: each may count or not.
            RecordRefused: the server takes no word of such a length.
            SinkPipelineError: SinkRefused, AuthenticationFailed.
        """
        self._meet(at)
        try:
            return self._all_asked(commands)
        except InDoubt as doubt:
            if not doubt.silent:
                self._check_lengths([word for each in commands for word in each])
            raise

    def scan(self, key: str, pattern: str) -> Iterator[tuple[str, bytes]]:
        """Of a hash, the fields that match, with their values. Raises as `read`."""
        cursor: Any = b"0"
        seen: set[bytes] = set()
        while True:
            cursor, found = self.read("HSCAN", key, cursor, "MATCH", pattern, "COUNT", _SCANNED)
            for field, value in zip(found[::2], found[1::2], strict=True):
                if field not in seen:
                    seen.add(field)
                    yield field.decode(), value
            if cursor == b"0":
                return

    def info(self) -> dict[str, str]:
        """What the server tells of itself. Raises as `read`."""
        return _told_by(self.read("INFO"))

    def close(self) -> None:
        self._leave()
        self._places.close()

    def _leave(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            lines.ended(line)

    @property
    def _where(self) -> str:
        found = self._connection
        at = f"Redis at {self._address}" if found.fails_over and self._address else found.called
        return f"{at}, database {found.database}"

    def _run(self, script: Script, keys: Sequence[str], words: Sequence[str | bytes]) -> Any:
        try:
            return self._asked(("EVALSHA", script.digest, len(keys), *keys, *words), writes=True)
        except _NoScriptError:
            return self._asked(("EVAL", script.text, len(keys), *keys, *words), writes=True)

    def _check_lengths(self, words: Words) -> None:
        """Of what was cut off: to what is too long for it, a server says little or nothing, and ends the connection."""
        longest = max(map(len, words))
        if longest <= _LEAST_BULK:
            return
        try:
            found = self.read("CONFIG", "GET", "proto-max-bulk-len")
        except SinkPipelineError:
            # Many may not ask: then it looks like an outage.
            return
        if found and longest > int(found[1]):
            text = f"a field of it has {longest} bytes, and proto-max-bulk-len of the server is {int(found[1])}"
            raise RecordRefused(Verdict(ErrorClass.RECORD_TOO_LARGE, text))

    def _wait(self) -> None:
        """What is not acknowledged so counts here, and whoever goes on writes, and waits, himself."""
        wanted = self._connection.acknowledge
        if not wanted.replicas and not wanted.fsync:
            return
        if wanted.fsync:
            on_disk, copies = self._asked(("WAITAOF", 1, wanted.replicas, ACKNOWLEDGED_MS), writes=True)
        else:
            on_disk, copies = 1, self._asked(("WAIT", wanted.replicas, ACKNOWLEDGED_MS), writes=True)
        if on_disk < 1 or copies < wanted.replicas:
            fact = f"{copies} of {wanted.replicas} replicas have acknowledged it within {ACKNOWLEDGED_MS // 1000} s"
            if on_disk < 1:
                fact = f"the server has not written it to its disk within {ACKNOWLEDGED_MS // 1000} s"
            told = self._under_replicated(f"{self._where}: {fact}")
            raise InDoubt(str(told), told=told)

    def _asked(self, words: Sequence[str | bytes | int], *, writes: bool = False) -> Any:
        sent = False
        try:
            line = self._ready()
            line.send_packed_command(line.pack_command(*words))
            sent = True
            answer = line.read_response()
        except lines.ERRORS as error:
            if getattr(error, "status_code", None) == "NOSCRIPT":
                raise _NoScriptError from error
            raise self._told(error, unknown=writes and sent) from error
        except BaseException:
            # Whatever the server still says is no answer to what is asked next.
            self._leave()
            raise
        return answer

    def _all_asked(self, commands: Sequence[Words]) -> list[Any]:
        answers: list[Any] = []
        try:
            line = self._ready()
            line.send_packed_command(line.pack_commands(commands))
            for _ in commands:
                try:
                    answers.append(line.read_response())
                except lines.REFUSED as error:
                    answers.append(error)
        except lines.ERRORS as error:
            raise self._told(error, unknown=True) from error
        except BaseException:
            self._leave()
            raise
        for answer in answers:
            if isinstance(answer, lines.REFUSED):
                raise self._told(answer, unknown=True) from answer
        return answers

    def _meet(self, at: str = "") -> None:
        """Who answers: a connection that was kept may have ended, and nothing was asked of it yet."""
        kept = self._line is not None
        if kept and not self._places.is_there_still(self._address):
            self._leave()
            kept = False
        try:
            answer = self._asked(("INFO", "replication"))
        except InDoubt as doubt:
            if not kept or doubt.silent or self._line is not None:
                raise
            answer = self._asked(("INFO", "replication"))
        info = _told_by(answer)
        if info.get("role") != "master":
            self._leave()
            raise self._no_master(info)
        if info.get("master_replid", "") != self.server:
            self.server = info.get("master_replid", "")
            self.met += 1
        if at not in ("", self.server):
            # The address may lead to the driver's by now.
            self._leave()
            raise SinkPipelineError(
                Reason.SINK_UNREACHABLE,
                f"{self._where}: a task has met another server than its driver, or the same one after a start",
                "if several servers take writes, end all but one; otherwise nothing: the sink starts again",
            )

    def _no_master(self, info: Mapping[str, str]) -> Exception:
        if "role" not in info:
            return SinkPipelineError(
                Reason.SINK_REFUSED,
                f"{self._where} has no data: it is a sentinel",
                "write mode: Sentinel, and the name of its master into sentinel.masterName",
            )
        fact = f"{self._where} is a replica now, which takes no writes"
        if self._connection.fails_over:
            return outage(fact, _WAITED_FOR)
        return outage(fact, "name its master in servers")

    def _ready(self) -> Line:
        if self._line is None:
            self._line = self._made()
            self.met += 1
        return self._line

    def _made(self) -> Line:
        self._address = self._places.find()
        return lines.connected(self._address, access_to(self._connection, CONNECT_TIMEOUT_S, ANSWER_S))

    def _told(self, error: Exception, *, unknown: bool) -> Exception:
        said = lines.told(error)
        if not said.is_reply or said.code in LEAVES or "Protocol error" in said.text:
            self._leave()
        if said.code == "MOVED":
            self._places.moved(self._address, said.owner)
        # A reply is of a script that was not run, or ended before it wrote anything.
        fact = f"{self._where}: {said.text}"
        told = self._as_error(said.means, fact)
        if said.means in (Meaning.CREDENTIALS, Meaning.REFUSED) and told is not None:
            return told
        return InDoubt(fact, aborted=said.is_reply or not unknown, told=told, silent=said.silent)

    @property
    def _reach(self) -> str:
        return f"{_WAITED_FOR}, unless none takes its place" if self._connection.fails_over else _REACH

    def _as_error(self, what: Meaning, fact: str) -> SinkPipelineError | None:
        match what:
            case Meaning.OUTAGE:
                beside = lines.may_ask_for_certificate(fact) if self._connection.tls is not None else ""
                return SinkPipelineError(Reason.SINK_UNREACHABLE, fact, self._reach + beside)
            case Meaning.FULL:
                return SinkPipelineError(Reason.SINK_FULL, fact, "make room: the sink goes on by itself")
            case Meaning.UNREPLICATED:
                return self._under_replicated(fact)
            case Meaning.CREDENTIALS:
                return SinkPipelineError(Reason.AUTHENTICATION_FAILED, fact, lines.certificate_remedy(fact) or _LOG_IN)
            case Meaning.REFUSED:
                return SinkPipelineError(
                    Reason.SINK_REFUSED,
                    fact,
                    f"correct the server or the manifest, or grant it to {self._connection.user or 'the user default'}",
                )
            case _:
                return None

    def _under_replicated(self, fact: str) -> SinkPipelineError:
        return SinkPipelineError(
            Reason.SINK_UNDER_REPLICATED, fact, "bring replicas back, or ask for fewer with acknowledge.replicas"
        )


def _told_by(info: bytes) -> dict[str, str]:
    lines = info.decode(errors="replace").splitlines()
    return {name: value for name, mark, value in (line.partition(":") for line in lines) if mark}


class _NoScriptError(Exception):
    """The server does not know it yet, or any more."""
