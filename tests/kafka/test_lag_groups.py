"""The frontier as offsets of a consumer group: only what has moved, and never a failure."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka.source.groups import Groups
from sinkpipeline.kafka.source.lag_groups import LagGroups
from support.sink.one_sink import OneSink

pytestmark = pytest.mark.kafka

ON = {"commit_group_offsets": True}


def test_what_has_moved_is_committed_and_what_lies_is_kept_alive(
    kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    settings = sink.settings(source={**ON, "group_id_prefix": sink.name})
    looked = Groups(sink.connection)
    committed: list[Mapping[SourcePartition, int]] = []
    commit = Groups.commit

    def told(self: Groups, group: str, offsets: Mapping[SourcePartition, int]) -> None:
        committed.append(offsets)
        commit(self, group, offsets)

    monkeypatch.setattr(Groups, "commit", told)
    now = 0.0
    groups = LagGroups([settings], lambda: now)

    for frontier in ({}, {0: 0, 1: 0}, {0: 0, 1: 0}, {0: 3, 1: 0}, {0: 3, 1: 0}, {0: 1, 1: 0}):
        now += 5
        groups.write({"out": {sink.at(each): offset for each, offset in frontier.items()}, "other": {sink.at(): 1}})
    assert [list(each.values()) for each in committed] == [[0, 0], [3, 0], [1, 0]], "a reset may go back"
    assert looked.offsets(f"{sink.name}.out") == {sink.at(0): 1, sink.at(1): 0}
    assert looked.state(f"{sink.name}.out") == "EMPTY"

    now += 3600
    groups.write({"out": {sink.at(0): 1, sink.at(1): 0}})
    assert len(committed) == 4, "or brokers would forget the group of a pipeline that is idle"
    assert not caplog.records


def test_off_by_default(kafka: LocalKafka) -> None:
    sink = OneSink(kafka.bootstrap_servers)
    LagGroups([sink.settings(source={"group_id_prefix": sink.name})]).write({"out": {sink.at(): 3}})
    assert Groups(sink.connection).offsets(f"{sink.name}.out") == {}
