"""Servers of Redis or Valkey that stand in for each other: a master, its replica and sentinels; and a cluster."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from redis.connection import Connection
from redis.exceptions import ResponseError
from typing_extensions import override

from servers.local_process import HOST
from servers.local_server import Opened
from servers.redis import LocalRedis
from servers.waiting import wait_for

UP_S: Final = 40.0
SLOTS: Final = 16_384


def run(address: str, *words: Any) -> Any:
    """A command of somebody else: the answer as it came."""
    host, _, port = address.rpartition(":")
    line = Connection(host=host, port=int(port), socket_timeout=10, protocol=2)
    try:
        line.connect()
        line.send_command(*words)
        return line.read_response()
    finally:
        line.disconnect()


def info(address: str) -> dict[str, str]:
    lines = run(address, "INFO", "replication").decode().splitlines()
    return {name: value for name, mark, value in (each.partition(":") for each in lines) if mark}


def follows(address: str) -> bool:
    """Whether it is a replica that has what its master has."""
    found = info(address)
    return found["role"] == "slave" and found["master_link_status"] == "up" and found["master_sync_in_progress"] == "0"


class _Group(Opened):
    """Its servers; use it in a `with`."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @override
    def close(self) -> None:
        self._stack.close()


class LocalSentinel(LocalRedis):
    """One sentinel of the master at that port. `more`: lines of its configuration."""

    def __init__(self, kind: str, name: str, master: int, quorum: int, more: tuple[str, ...] = ()) -> None:
        super().__init__(kind)
        self._lines = [
            f"port {self.port}",
            f"bind {HOST}",
            f"sentinel monitor {name} {HOST} {master} {quorum}",
            f"sentinel down-after-milliseconds {name} 1000",
            f"sentinel failover-timeout {name} 4000",
            *more,
        ]

    @override
    def prepare(self) -> None:
        (self.directory / "sentinel.conf").write_text("\n".join(self._lines) + "\n")

    @override
    def _arguments(self) -> list[str]:
        return [str(self.directory / "sentinel.conf"), "--sentinel"]


class LocalSentinels(_Group):
    """A master with a replica, and three sentinels that know it as `name`. `settings` are of both servers."""

    def __init__(self, kind: str = "valkey", *, name: str = "shop", settings: dict[str, str] | None = None) -> None:
        super().__init__()
        self._kind = kind
        self.name = name
        self.servers: list[LocalRedis] = []
        self.sentinels: list[LocalSentinel] = []
        self._settings = settings or {}

    @property
    def address(self) -> str:
        """Of all sentinels."""
        return ",".join(each.address for each in self.sentinels)

    @override
    def open(self) -> None:
        # What stays would be the replica of nobody else: a failover is not to wait for a time-out.
        settings = {**self._settings, "repl-timeout": "5"}
        first = self._stack.enter_context(LocalRedis(self._kind, settings=settings))
        following = {**settings, "replicaof": f"{HOST} {first.port}"}
        second = self._stack.enter_context(LocalRedis(self._kind, settings=following))
        self.servers = [first, second]
        wait_for(lambda: follows(second.address), "the replica follows", UP_S)
        for _ in range(3):
            found = LocalSentinel(self._kind, self.name, first.port, 2)
            self.sentinels.append(self._stack.enter_context(found))
        wait_for(self._is_known, "the sentinels know each other and the replica", UP_S)

    def _is_known(self) -> bool:
        others, replicas = ("SENTINEL", "SENTINELS", self.name), ("SENTINEL", "REPLICAS", self.name)
        return all(
            (len(run(each.address, *others)), len(run(each.address, *replicas))) == (2, 1) for each in self.sentinels
        )

    @property
    def master(self) -> LocalRedis:
        """As the sentinels name it that agree."""
        found = {self._named(each) for each in self.sentinels}
        if len(found) != 1:
            raise LookupError(f"the sentinels do not agree: {found}")
        [port] = found
        return next(each for each in self.servers if each.port == port)

    def _named(self, sentinel: LocalSentinel) -> int:
        _, port = run(sentinel.address, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        return int(port)

    def is_led_by(self, server: LocalRedis) -> bool:
        """Whether all sentinels name it, and it takes writes."""
        named = all(self._named(each) == server.port for each in self.sentinels)
        return named and info(server.address)["role"] == "master"

    def fail_over(self) -> LocalRedis:
        """By a sentinel, to the replica, which is the answer once all of them name it."""
        old = self.master
        [new] = [each for each in self.servers if each is not old]
        wait_for(self._asked, "a sentinel begins a failover", UP_S)
        wait_for(lambda: self.is_led_by(new), "the replica leads", UP_S)
        return new

    def mend(self) -> None:
        """Whoever is not the master is its replica: sentinels see to it ten seconds later."""
        for each in self.servers:
            each.resume()
            if each.pid is None:
                each.start()
        master = wait_for(self._agreed, "the sentinels agree", UP_S)
        for each in self.servers:
            if each is not master and not follows(each.address):
                run(each.address, "REPLICAOF", HOST, master.port)
                wait_for(partial(follows, each.address), "the replica follows", UP_S)
        wait_for(self._is_known, "the sentinels know it", UP_S)

    def _agreed(self) -> LocalRedis | None:
        try:
            found = self.master
        except LookupError:
            return None
        return found if self.is_led_by(found) else None

    def _asked(self) -> bool:
        try:
            run(self.sentinels[0].address, "SENTINEL", "FAILOVER", self.name)
        except ResponseError:
            return False
        return True


class LocalCluster(_Group):
    """Three masters with the slots in even parts, and a replica of the first one, which has the slots from 0."""

    def __init__(self, kind: str = "valkey") -> None:
        super().__init__()
        self._kind = kind
        self.servers: list[LocalRedis] = []

    @property
    def address(self) -> str:
        """Of all nodes."""
        return ",".join(each.address for each in self.servers)

    @override
    def open(self) -> None:
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": "1500",
            "cluster-replica-validity-factor": "0",
        }
        for _ in range(4):
            self.servers.append(self._stack.enter_context(LocalRedis(self._kind, settings=settings)))
        *masters, replica = self.servers
        part = -(-SLOTS // len(masters))
        for number, each in enumerate(masters):
            end = min((number + 1) * part, SLOTS) - 1
            run(each.address, "CLUSTER", "ADDSLOTSRANGE", number * part, end)
            run(each.address, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for each in self.servers[1:]:
            run(self.servers[0].address, "CLUSTER", "MEET", HOST, each.port, each.bus)
        wait_for(self.is_up, "the nodes know each other", UP_S)
        run(replica.address, "CLUSTER", "REPLICATE", self.id_of(masters[0]))
        wait_for(lambda: follows(replica.address), "the replica follows", UP_S)
        wait_for(lambda: self._all_have(b"slave"), "all nodes know the replica", UP_S)

    def is_up(self) -> bool:
        """Whether all nodes see each other, and each slot is served."""
        told = [run(each.address, "CLUSTER", "INFO") for each in self.servers]
        return all(b"cluster_state:ok" in each and b"cluster_known_nodes:4" in each for each in told)

    def _all_have(self, word: bytes) -> bool:
        return all(word in run(each.address, "CLUSTER", "NODES") for each in self.servers)

    def id_of(self, server: LocalRedis) -> str:
        found: bytes = run(server.address, "CLUSTER", "MYID")
        return found.decode()

    def owner(self, slot: int) -> LocalRedis:
        """As the node says itself."""
        for each in self.masters:
            if self.says_it_has(each, slot):
                return each
        raise LookupError(f"no node has slot {slot}")

    @property
    def masters(self) -> list[LocalRedis]:
        """As they say themselves that run."""
        return [each for each in self.servers if each.pid is not None and info(each.address)["role"] == "master"]

    def has_owner(self, slot: int) -> bool:
        try:
            self.owner(slot)
        except LookupError:
            return False
        return True

    def says_it_has(self, server: LocalRedis, slot: int) -> bool:
        mine = self.id_of(server).encode()
        for first, last, (_, _, node, *_), *_ in run(server.address, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return bool(node == mine)
        return False

    def begin_move(self, slot: int, to: LocalRedis) -> None:
        """The first half of a resharding: keys that are there stay, until they are moved."""
        source = self.owner(slot)
        run(to.address, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        run(source.address, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))

    def move_keys(self, slot: int, source: LocalRedis, to: LocalRedis, most: int) -> int:
        """At most so many of its keys; how many it were."""
        keys = run(source.address, "CLUSTER", "GETKEYSINSLOT", slot, most)
        if keys:
            run(source.address, "MIGRATE", HOST, to.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, to: LocalRedis) -> None:
        name = self.id_of(to)
        for each in (to, *(each for each in self.masters if each is not to)):
            run(each.address, "CLUSTER", "SETSLOT", slot, "NODE", name)
