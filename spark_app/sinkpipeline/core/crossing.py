"""Which topics of one pipeline can't be the same, checked by what the clusters say.

`core/manifest/routing.py` applies the same rules to what the manifest says. It compares addresses, and one cluster can
have several. Here clusters are compared by their ids and then topics by their names, which works for topics that don't
exist yet; and topics by their ids, which works where a proxy tells another cluster id or other names.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sinkpipeline.core.errors import Reason, SinkPipelineError


class Role(enum.Enum):
    """What a sink keeps in a topic; the value is where the manifest names it. The less it matters, the earlier."""

    DEAD = "deadLetter.topic.name"
    DATA = "kafka.topic.name"
    PROGRESS = "kafka.progressTopic.name"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A topic, as far as it is known."""

    name: str
    cluster: str | None = None
    """The cluster's id; None where it is unknown."""
    id: str | None = None
    """None where it is unknown, or where the topic does not exist."""
    servers: str = ""
    """As the manifest has them."""

    def is_same(self, other: Place) -> bool:
        """Whether both are one topic for certain."""
        if self.id is not None and self.id == other.id:
            return True
        return self.cluster is not None and self.cluster == other.cluster and self.name == other.name


@dataclass(frozen=True, kw_only=True)
class Use:
    """A topic of a sink."""

    sink: str
    role: Role
    place: Place


@dataclass(frozen=True, kw_only=True)
class SourcePlaces:
    """The topics of the source."""

    reads: Callable[[str], bool]
    """Whether a topic of that name is one, on the source's cluster."""
    cluster: str | None = None
    servers: str = ""
    ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Topic to topic id, of those that are known."""


_INSTEAD = {
    Role.DATA: "write to a topic that is not read: this would never end",
    Role.PROGRESS: "keep progress in a topic that is not read",
    Role.DEAD: "give dead letters a topic of their own",
}
_APART = {
    Role.DATA: "give each sink a topic of its own",
    Role.PROGRESS: "keep rows and progress in different topics",
    Role.DEAD: "give dead letters a topic of their own",
}


def who_moves(role: Role, other: Role) -> Role | None:
    """Which of two roles, of different sinks, needs another topic than the other; None where one topic can have both.

    Sinks may keep their progress in one topic, and their dead letters in one; nothing else.
    """
    if role is other:
        return role if role is Role.DATA else None
    return next(each for each in Role if each in (role, other))


def check_source(source: SourcePlaces, uses: Iterable[Use]) -> None:
    """Refuses a sink that writes where the source reads.

    Raises:
        SinkPipelineError: ManifestInvalid.
    """
    for use in uses:
        place = use.place
        name = next((name for name, topic_id in sorted(source.ids.items()) if topic_id == place.id), None)
        if name is not None:
            raise _invalid(use, f"is source topic {name} of {source.servers}", _INSTEAD[use.role])
        if source.cluster is not None and source.cluster == place.cluster and source.reads(place.name):
            one = _one_cluster(place.servers, source.servers)
            raise _invalid(use, f"is read by the source too{one}", _INSTEAD[use.role])


def check_sinks(uses: Iterable[Use], others: Iterable[Use]) -> None:
    """Refuses sinks that write to one topic what can't stand together.

    Args:
        uses: the topics of a sink.
        others: those of other sinks, which come before it.

    Raises:
        SinkPipelineError: ManifestInvalid.
    """
    known = list(others)
    for use in uses:
        for other in known:
            moves = who_moves(use.role, other.role)
            if use.sink == other.sink or not use.place.is_same(other.place) or moves is None:
                continue
            told, beside = (use, other) if use.role is moves else (other, use)
            one = _one_cluster(told.place.servers, beside.place.servers)
            fact = f"is {beside.role.value} {beside.place.name} of sink {beside.sink} too{one}"
            raise _invalid(told, fact, _APART[told.role])


def _one_cluster(servers: str, others: str) -> str:
    return "" if servers == others else f": {servers} and {others} are one cluster"


def _invalid(use: Use, fact: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.MANIFEST_INVALID, f"sink {use.sink}: {use.role.value} {use.place.name} {fact}", remedy
    )
