"""What a preview shows of sinks of any kind: where they go on, and what a row of a table is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.targets import Targets
from sinkpipeline.kafka import preview as kafka
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.preview import Outlook
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kinds import lettered, opened
from sinkpipeline.kinds.resolve import SinkSettings
from sinkpipeline.nats.settings import SinkSettings as NatsSettings
from sinkpipeline.postgresql.lines import values
from sinkpipeline.postgresql.settings import SinkSettings as PostgresqlSettings

_ANY = TopicLimits(partitions=1, message_bytes=1_000_000_000)
"""Of what no topic limits."""


@dataclass(frozen=True)
class TableChange:
    """What a row does to a table."""

    table: str
    operation: str
    """insert, upsert or delete."""
    columns: Mapping[str, str | None]
    """As the text that PostgreSQL reads into each; None is null. Of a deletion the key."""
    order: str | None
    """What `orderBy` gave; None too where there is none."""


def look(settings: SinkSettings, targets: Targets | None) -> Outlook:
    """As `kafka.preview.look`. Nothing is written, and of a table only its progress is read.

    Raises:
        SinkPipelineError: also SinkUnreachable, SinkRefused, ...
    """
    if isinstance(settings, KafkaSettings):
        return kafka.look(settings, targets)
    with opened(settings, Admin(settings.source.connection)) as ports:
        place = ports.ledger.place()
        progress = Progress() if place is None else ports.ledger.decide(place)
    return kafka.outlook(settings, targets, progress, data_limits=_ANY, data_partitions=None)


def change_of(settings: SinkSettings, line: bytes | None) -> TableChange | None:
    """Of a row that can be delivered, by its value; None of a topic's."""
    if not isinstance(settings, PostgresqlSettings):
        return None
    table = settings.table
    found = dict(zip((each.name for each in table.columns), (fields := values(line or b"")), strict=False))
    upsert, more = table.upsert, fields[len(table.columns) :]
    if upsert is None:
        return TableChange(table.label, "insert", found, None)
    deletes = upsert.deletes and more.pop(0) == "t"
    order = more.pop(0) if upsert.order_type is not None else None
    if deletes:
        return TableChange(table.label, "delete", {name: found[name] for name in upsert.key}, order)
    return TableChange(table.label, "upsert", found, order)


def subject_of(settings: SinkSettings, key: bytes | None) -> str | None:
    """Of a message that can be delivered; None of a row that is none."""
    if not isinstance(settings, NatsSettings):
        return None
    return (settings.subject or "") if key is None else key.decode(errors="replace")


def letters_topic(settings: SinkSettings) -> str | None:
    """Where a record goes that can't be delivered; None where it stops the sink."""
    letters = lettered(settings)
    return None if letters is None or letters.dead_letter is None else letters.dead_letter.topic.name
