"""Which sinks, topics and letters a command is about: what its options say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.core.deadletter import ErrorClass, Stage
from sinkpipeline.core.manifest.durations import parse_duration
from sinkpipeline.core.redrive import LetterId, Wanted
from sinkpipeline.core.targets import usage_invalid
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.diagnosis import connect
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kinds import lettered
from sinkpipeline.kinds.resolve import SinkSettings as AnySettings
from sinkpipeline.kinds.resolve import resolve_sinks

CONNECT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The options that choose letters, as they were given."""

    stages: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None

    def wanted(self, sinks: Sequence[SinkSettings], ids: Sequence[str] = ()) -> Wanted:
        """Raises SinkPipelineError: UsageInvalid."""
        return Wanted(
            sinks=frozenset(each.id for each in sinks),
            ids=frozenset(letter_id(each) for each in ids),
            stages=frozenset(Stage(each) for each in self.stages),
            classes=frozenset(ErrorClass(each) for each in self.classes),
            since=None if self.since is None else moment("--since", self.since),
            until=None if self.until is None else moment("--until", self.until),
        )


def letter_id(text: str) -> LetterId:
    try:
        return LetterId.parse(text)
    except ValueError as error:
        raise usage_invalid(str(error), "`sinkpipeline dlq list` shows the ids") from error


def moment(option: str, text: str) -> int:
    """Unix milliseconds of a time, or of so long ago. A time without a zone is of UTC."""
    try:
        return int(time.time() * 1000) - parse_duration(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise usage_invalid(
            f"{option} can't be {text!r}", "write a time such as 2026-11-22T08:00:00Z, or how long ago: 90m, 24h"
        ) from None
    return int((found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)).timestamp() * 1000)


def sinks_of(manifest: Path, secrets_dir: Path | None, sink: str | None) -> list[SinkSettings]:
    """Raises SinkPipelineError as `with_letters`, and as reading the manifest."""
    return with_letters(resolve_sinks(read_manifest(manifest), secrets_dir), sink)


def with_letters(sinks: Sequence[AnySettings], sink: str | None) -> list[SinkSettings]:
    """The sinks that have dead letters; the one that is named.

    Raises:
        SinkPipelineError: UsageInvalid.
    """
    all_lettered = [each for each in map(lettered, sinks) if each is not None]
    names = ", ".join(each.id.sink for each in all_lettered)
    if not all_lettered:
        raise usage_invalid("no sink of the manifest has a deadLetter", "give a sink one, or name another manifest")
    if sink is None:
        return all_lettered
    found = [each for each in all_lettered if each.id.sink == sink]
    if not found:
        has = any(each.id.sink == sink for each in sinks)
        fact = f"sink {sink} has no deadLetter" if has else f"the manifest has no sink {sink}"
        raise usage_invalid(fact, f"name one of {names}")
    return found


def the_one(sinks: Sequence[SinkSettings], what: str) -> SinkSettings:
    """Raises SinkPipelineError: UsageInvalid where there are several."""
    if len(sinks) > 1:
        names = ", ".join(each.id.sink for each in sinks)
        raise usage_invalid(f"several sinks have dead letters, and {what}", f"give --sink with one of {names}")
    return sinks[0]


def by_topic(sinks: Sequence[SinkSettings]) -> list[list[SinkSettings]]:
    """Sinks that share a dead-letter topic, together."""
    found: dict[tuple[object, str], list[SinkSettings]] = {}
    for each in sinks:
        found.setdefault((each.connection, topic_name(each)), []).append(each)
    return list(found.values())


def one_topic(sinks: Sequence[SinkSettings]) -> SinkSettings:
    """Any of the sinks, as all have one topic.

    Raises:
        SinkPipelineError: UsageInvalid where there are several topics.
    """
    groups = by_topic(sinks)
    return groups[0][0] if len(groups) == 1 else the_one(sinks, "in several topics")


def topic_name(sink: SinkSettings) -> str:
    if sink.dead_letter is None:
        raise ValueError(f"{sink.id} has no dead letters")
    return sink.dead_letter.topic.name


def find_topic(sink: SinkSettings) -> Topic | None:
    """The sink's dead-letter topic, None where it is missing; within seconds, or BrokerUnreachable."""
    admin = Admin(sink.connection)
    connect(admin, CONNECT_S)
    name = topic_name(sink)
    return admin.topics([name])[name]


def missing(sink: SinkSettings) -> str:
    return (
        f"dead-letter topic {topic_name(sink)} does not exist: nothing was dead-lettered since it was deleted, or ever"
    )
