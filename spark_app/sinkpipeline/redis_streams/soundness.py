"""Whether a server keeps what it has taken, as far as it tells; and whether it takes all that a commit does."""

from __future__ import annotations

from collections.abc import Mapping

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.settings import SinkSettings

_LEAST = (7, 0)
"""Before it, a stream does not count what was ever added to it."""
_LEAST_WITH_FSYNC = (7, 2)


def check_server(client: Client, settings: SinkSettings) -> None:
    """Raises SinkPipelineError: SinkRefused, SinkUnreachable."""
    info = client.info()
    if info.get("loading", "0") != "0":
        # Until then it says that it has no append-only file.
        raise SinkPipelineError(
            Reason.SINK_UNREACHABLE,
            f"{settings.connection.called} has started, and reads what it has kept",
            "nothing: it is waited for",
        )
    for fact, remedy in _faults(client, info, settings):
        raise SinkPipelineError(Reason.SINK_REFUSED, f"{settings.connection.called} {fact}", remedy)
    _check_adding(client, settings)


def _faults(client: Client, info: Mapping[str, str], settings: SinkSettings) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    version = info.get("valkey_version") or info.get("redis_version", "0.0")
    number = tuple(int(each) for each in version.split(".")[:2])
    if number < _LEAST:
        found.append((f"has version {version}", "use Redis 7.0 or newer, or Valkey"))
    if info.get("cluster_enabled") == "1" and settings.connection.slot is None:
        found.append(("is a node of a cluster", "write mode: Cluster, beside servers"))
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys"):
        fact = f"has maxmemory-policy {policy}: where its memory is full, it evicts the progress"
        found.append((fact, "set maxmemory-policy to noeviction, or to one of volatile-*"))
    wanted = settings.connection.acknowledge
    if wanted.fsync and number < _LEAST_WITH_FSYNC:
        found.append((f"has version {version}, without WAITAOF", "remove acknowledge.fsync, or use 7.2 or newer"))
    elif wanted.fsync and info.get("aof_enabled") != "1":
        found.append(("has no append-only file, so nothing can be on its disk", "set appendonly yes"))
    if not keeps(client, info):
        fact = "keeps nothing: it has no append-only file, no snapshots and no replica"
        found.append((fact, "set appendonly yes: then a restart keeps rows and progress"))
    return found


def keeps(client: Client, info: Mapping[str, str]) -> bool:
    """Whether a restart leaves anything. Many servers don't let their snapshots be asked for."""
    if info.get("aof_enabled") == "1" or int(info.get("connected_slaves", "0")):
        return True
    try:
        found = client.read("CONFIG", "GET", "save")
    except SinkPipelineError as error:
        if error.reason is not Reason.SINK_REFUSED:
            raise
        return False
    return bool(found and found[1])


def _check_adding(client: Client, settings: SinkSettings) -> None:
    """That entries may be added: one with an id that no entry can have is refused for that, and adds nothing."""
    try:
        client.read("XADD", settings.stream.key, "NOMKSTREAM", "0-0", "sinkpipeline", "")
    except SinkPipelineError as error:
        if error.reason is Reason.SINK_REFUSED:
            raise
