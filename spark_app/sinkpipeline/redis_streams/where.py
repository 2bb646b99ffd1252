"""Which server takes the writes of a sink: the one that is named, the one that sentinels name, the owner of a slot."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from typing_extensions import override

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.redis_streams import lines
from sinkpipeline.redis_streams.addresses import Named, address_in, beside, epoch_in, fields_of, newest, owner_in
from sinkpipeline.redis_streams.lines import Access, Line, Told
from sinkpipeline.redis_streams.replies import Meaning
from sinkpipeline.redis_streams.settings import Connection, Sentinels

ASKED_S = 2.0
"""How long a sentinel, or a node of a cluster, may take for each step of its answer."""
BELIEVED_S = 0.2
"""How long a connection to the master of sentinels is used before one of them is asked whether it is the master still:
what an old one takes meanwhile is lost, and it takes writes for about ten seconds after a failover."""
ALONE_S = 30.0
"""The same where no sentinel has answered: then what is there goes on."""

T = TypeVar("T")


class Where(Protocol):
    """Of one client."""

    def find(self) -> str:
        """host:port of the server that takes writes.

        Raises:
            InDoubt: nobody knows it now; `told` is an outage.
            SinkPipelineError: AuthenticationFailed, SinkRefused.
        """

    def is_there_still(self, address: str) -> bool:
        """Whether a connection to that address may be used: True where nobody says otherwise."""

    def moved(self, asked: str, to: str) -> None:
        """The server `asked` has named another one."""

    def close(self) -> None:
        """Ends connections of its own."""


def where_of(connection: Connection) -> Where:
    if connection.sentinels is not None:
        return _BySentinels(connection, connection.sentinels)
    return _Fixed(connection.server) if connection.slot is None else _InCluster(connection, connection.slot)


class _Fixed:
    def __init__(self, address: str) -> None:
        self._address = address

    def find(self) -> str:
        return self._address

    def is_there_still(self, address: str) -> bool:  # noqa: ARG002 - there is no other one
        return True

    def moved(self, asked: str, to: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Asking:
    """Several servers that know it. `who`: what they are; who has answered last is asked first."""

    who = ""

    def __init__(self, connection: Connection, access: Access) -> None:
        self._connection = connection
        self._access = access
        self._servers = connection.server.split(",")
        self._kept: tuple[str, Line] | None = None
        """To who has answered last."""

    def is_there_still(self, address: str) -> bool:  # noqa: ARG002 - a server says itself that it is none any more
        return True

    def moved(self, asked: str, to: str) -> None:
        pass

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            lines.ended(kept[1])

    def _ask(self, ask: Callable[[Line, str], T | None], *, all_of_them: bool) -> list[T]:
        """What those say that answer; of one alone unless `all_of_them`.

        Raises as `find`, where none does.
        """
        found: list[T] = []
        faults: list[tuple[str, Told]] = []
        unknown = False
        for server in list(self._servers):
            try:
                said = self._said(ask, server)
            except lines.ERRORS as error:
                self.close()
                faults.append((server, lines.told(error)))
                continue
            except BaseException:
                self.close()
                raise
            if said is None:
                unknown = True
                continue
            found.append(said)
            if not all_of_them:
                self._servers.remove(server)
                self._servers.insert(0, server)
                break
        if not found:
            raise self._nobody(faults, unknown=unknown)
        return found

    def _said(self, ask: Callable[[Line, str], T | None], server: str) -> T | None:
        """A connection that was kept may have ended since."""
        if self._kept is not None and self._kept[0] == server:
            try:
                return ask(self._kept[1], server)
            except lines.ERRORS:
                pass
        self.close()
        self._kept = server, lines.connected(server, self._access)
        return ask(self._kept[1], server)

    def _nobody(self, faults: Sequence[tuple[str, Told]], *, unknown: bool) -> Exception:
        for server, told in faults:
            if told.means is Meaning.CREDENTIALS:
                return SinkPipelineError(
                    Reason.AUTHENTICATION_FAILED,
                    f"{self.who} {server}: {told.text}",
                    lines.certificate_remedy(told.text) or self._log_in,
                )
            if told.means is Meaning.REFUSED:
                return SinkPipelineError(Reason.SINK_REFUSED, f"{self.who} {server}: {told.text}", self._remedy(told))
        if unknown:
            return self._unknown(is_certain=not faults)
        what = "; ".join(f"{server}: {told.text}" for server, told in faults)
        beside = "" if self._access.tls is None else lines.may_ask_for_certificate(what)
        return outage(
            f"no {self.who} answers: {what}",
            f"check that they run and that servers names them as this machine reaches them{beside}",
            silent=all(told.silent for _, told in faults),
        )

    @property
    def _log_in(self) -> str:
        return "check auth of the sink, its Secrets, and the servers' ACL"

    def _remedy(self, told: Told) -> str:
        raise NotImplementedError

    def _unknown(self, *, is_certain: bool) -> Exception:
        raise NotImplementedError


class _BySentinels(_Asking):
    """Of all that answer, who knows of the newest failover is believed."""

    who = "sentinel"

    def __init__(self, connection: Connection, sentinels: Sentinels) -> None:
        super().__init__(
            connection,
            Access(
                user=sentinels.user,
                password_file=sentinels.password_file,
                tls=connection.tls,
                connect_s=ASKED_S,
                answer_s=ASKED_S,
            ),
        )
        self._sentinels = sentinels
        self._others: frozenset[str] = frozenset()
        """The names of masters that a sentinel knows which does not know ours."""
        self._until = 0.0

    def find(self) -> str:
        found = newest(self._ask(self._named, all_of_them=True))
        assert found is not None
        self._until = time.monotonic() + BELIEVED_S
        return found

    @override
    def is_there_still(self, address: str) -> bool:
        """An old master that nobody can reach but us, or that has not been told yet, takes writes, and loses them."""
        if time.monotonic() < self._until:
            return True
        try:
            [said] = self._ask(self._address, all_of_them=False)
            self._until = time.monotonic() + BELIEVED_S
            return said == address or self.find() == address
        except (InDoubt, SinkPipelineError):
            self._until = time.monotonic() + ALONE_S
            return True

    def _address(self, line: Line, _server: str) -> str | None:
        answer = lines.answer(line, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._sentinels.master)
        return None if answer is None else address_in(answer)

    def _named(self, line: Line, server: str) -> Named | None:
        address = self._address(line, server)
        if address is None:
            self._others = self._names(line)
            return None
        return Named(address, epoch_in(lines.answer(line, "SENTINEL", "MASTER", self._sentinels.master)))

    def _names(self, line: Line) -> frozenset[str]:
        try:
            return frozenset(fields_of(each).get("name", "") for each in lines.answer(line, "SENTINEL", "MASTERS"))
        except lines.ERRORS:
            # It may not be asked.
            return frozenset()

    @property
    @override
    def _log_in(self) -> str:
        return "check sentinel.auth of the sink, its Secrets, and the sentinels' ACL: they do not use auth"

    @override
    def _remedy(self, told: Told) -> str:
        if "unknown command" in told.text:
            return "name sentinels in servers, or remove mode and sentinel"
        return f"ACL SETUSER {self._sentinels.user or 'default'} +sentinel|get-master-addr-by-name +sentinel|master"

    @override
    def _unknown(self, *, is_certain: bool) -> Exception:
        fact = f"no sentinel of {self._connection.server} knows a master {self._sentinels.master}"
        if not is_certain:
            return outage(fact, "check that all of them run")
        if not self._others:
            return SinkPipelineError(Reason.SINK_REFUSED, fact, "correct sentinel.masterName")
        known = " or ".join(f"masterName: {each}" for each in sorted(self._others))
        return SinkPipelineError(Reason.SINK_REFUSED, fact, f"write {known} below sentinel")


class _InCluster(_Asking):
    """Any node tells who has the slot; one that had it names its successor."""

    who = "node of the cluster"

    def __init__(self, connection: Connection, slot: int) -> None:
        super().__init__(connection, access_to(connection, ASKED_S, ASKED_S))
        self._slot = slot
        self._next: str | None = None

    def find(self) -> str:
        found, self._next = self._next, None
        if found is not None:
            return found
        try:
            [owner] = self._ask(self._owner, all_of_them=False)
        finally:
            # It is asked again only after the owner's connection has ended.
            self.close()
        return owner

    @override
    def moved(self, asked: str, to: str) -> None:
        self._next = beside(asked, to)

    def _owner(self, line: Line, server: str) -> str | None:
        return owner_in(lines.answer(line, "CLUSTER", "SLOTS"), self._slot, server)

    @override
    def _remedy(self, told: Told) -> str:
        if "cluster support disabled" in told.text:
            return "remove mode: Cluster, or name nodes of a cluster in servers"
        return f"ACL SETUSER {self._connection.user or 'default'} +cluster|slots"

    @override
    def _unknown(self, *, is_certain: bool) -> Exception:
        fact = f"no node of the cluster of {self._connection.server} has slot {self._slot}"
        return outage(fact, f"redis-cli --cluster fix {self._connection.server.split(',')[0]}")


def access_to(connection: Connection, connect_s: float, answer_s: float) -> Access:
    """As whom servers are connected to that take writes."""
    return Access(
        user=connection.user,
        password_file=connection.password_file,
        tls=connection.tls,
        database=connection.database,
        connect_s=connect_s,
        answer_s=answer_s,
    )


def outage(fact: str, remedy: str, *, silent: bool = False) -> InDoubt:
    """Nothing was written, and it passes by itself."""
    told = SinkPipelineError(Reason.SINK_UNREACHABLE, fact, remedy)
    return InDoubt(str(told), aborted=True, told=told, silent=silent)
