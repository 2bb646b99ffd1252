"""Dead letters of a sink that is no Kafka topic: on a real broker before the SQL commit, and counted with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from sinkpipeline.cli.dlq.contents import read_contents, read_letter
from sinkpipeline.cli.dlq.purging import delete_records
from sinkpipeline.cli.dlq.selection import find_topic
from sinkpipeline.core import troubles
from sinkpipeline.core.errors import Reason
from sinkpipeline.kafka import letters
from support.kafka import topics
from support.sink.cell_sink import COUNT
from support.sink.dead_letters import records
from support.sink.sql_child import Child
from support.sink.sql_letters import LetteredSql
from support.sink.starts import refusal


@pytest.fixture
def lettered(kafka: LocalKafka, postgresql: LocalPostgresql) -> Iterator[LetteredSql]:
    found = LetteredSql(postgresql.address, servers=kafka.bootstrap_servers, stem=topics.unique("sql"))
    found.create_schema()
    found.produce()
    yield found
    found.close()


def others(sink: LetteredSql) -> list[int]:
    return [each for each in range(COUNT) if each not in sink.bad]


def test_a_refused_row_is_a_letter_with_the_sources_record(lettered: LetteredSql) -> None:
    bad: dict[int, str | None] = {2: "no number", 7: "-1", 8: "9" * 30, 11: None}
    lettered.driver()
    lettered.sql(f"ALTER TABLE {lettered.table} ADD CHECK (off >= 0), ALTER COLUMN off SET NOT NULL")
    lettered.bad = bad
    lettered.lettered().batch()
    source = records(COUNT)
    found = lettered.letters()
    assert [each.record.offset for each in found] == sorted(bad), "each once, where nothing went wrong"
    for each in found:
        value, key, headers, timestamp = source[each.record.offset]
        assert (each.record.value, each.record.key, list(each.record.headers or ())) == (value, key, headers)
        assert (each.record.partition, each.record.timestamp) == (lettered.at, timestamp)
        assert each.verdict.code in ("22P02", "22003", "23514", "23502")
    assert lettered.rows_there() == others(lettered)
    assert lettered.counted() == {"next": COUNT, "rows": COUNT - len(bad), "dead": len(bad)}
    assert told_by_the_commands(lettered) == sorted(bad)


def told_by_the_commands(lettered: LetteredSql) -> list[int]:
    """The source offsets that `dlq list` has, and none once they are purged."""
    settings = lettered.settings
    assert isinstance(settings.dead_letter, letters.KafkaLetters)
    sink = settings.dead_letter.as_kafka(settings.owner)
    topic = find_topic(sink)
    assert topic is not None
    listed = read_contents(sink, topic).letters
    shown = [read_letter(sink, topic, each.id) for each in listed]
    assert [state for _, state in shown] == ["Pending"] * len(listed)
    delete_records(sink, topic.name, {0: listed[-1].id.offset + 1})
    assert read_contents(sink, topic).letters == []
    return sorted(each.letter.record.offset for each in listed)


def test_a_kill_between_letter_and_commit_repeats_the_letter_and_nothing_else(
    lettered: LetteredSql, tmp_path: Path
) -> None:
    lettered.bad = {2: "no number"}
    killed = Child(lettered, tmp_path, "sql-before-commit", step=COUNT, lettered=(lettered.servers, lettered.stem))
    killed.wait_at("sql-before-commit")
    assert [each.record.offset for each in lettered.letters()] == [2]
    killed.kill()
    lettered.lettered().drain()
    assert [each.record.offset for each in lettered.letters()] == [2, 2]
    assert lettered.rows_there() == others(lettered)
    assert lettered.counted() == {"next": COUNT, "rows": COUNT - 1, "dead": 1}


def test_while_the_dead_letter_topic_does_not_answer_nothing_is_committed(
    lettered: LetteredSql, kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there a moment ago: the letter is on its way when its broker freezes."""
    lettered.bad = {2: "no number"}
    driver = lettered.lettered()

    class Unanswered(letters.KafkaOutbox):
        @override
        def flush(self) -> None:
            [node] = kafka.pids
            kafka.pause_broker(node)
            try:
                self._producer.flush(0.5)
            except letters.Unacknowledged as trouble:
                raise letters._not_sent(trouble) from trouble
            finally:
                kafka.resume_broker(node)

    with monkeypatch.context() as patch:
        patch.setattr(letters, "KafkaOutbox", Unanswered)
        patch.setattr(troubles, "_OUTAGE_S", 0.1)
        refusal(driver.batch, Reason.BROKER_UNREACHABLE)
    assert (lettered.rows_there(), lettered.counted()) == ([], {"next": 0, "rows": 0, "dead": 0})
    lettered.lettered().drain()
    assert lettered.rows_there() == others(lettered)
    assert lettered.counted()["dead"] == 1


def test_a_dead_letter_topic_that_is_missing_and_not_to_be_made_stops_the_sink_at_the_row(
    lettered: LetteredSql,
) -> None:
    lettered.bad, lettered.auto_create = {2: "no number"}, False
    error = refusal(lettered.lettered().batch, Reason.DEAD_LETTER_FAILED)
    assert "does not exist" in error.message
    assert lettered.counted() == {"next": 2, "rows": 2, "dead": 0}
