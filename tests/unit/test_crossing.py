"""One cluster under two names, and one topic under two."""

from __future__ import annotations

import re

import pytest

from sinkpipeline.core.crossing import Place, Role, SourcePlaces, Use, check_sinks, check_source
from sinkpipeline.core.errors import Reason, SinkPipelineError

DATA, PROGRESS, DEAD = Role.DATA, Role.PROGRESS, Role.DEAD


def use(role: Role, name: str, *, sink: str = "a", cluster: str | None = "c", id: str | None = None) -> Use:  # noqa: A002
    return Use(sink=sink, role=role, place=Place(name=name, cluster=cluster, id=id, servers=f"{sink}:9092"))


def source(cluster: str | None = "c", **ids: str) -> SourcePlaces:
    return SourcePlaces(reads=lambda name: bool(re.fullmatch("loop-.*", name)), cluster=cluster, servers="s", ids=ids)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(
    ("places", "name", "cluster", "topic_id"),
    [
        (source(), "loop-out", "c", None),
        (source(), "loop-out", "c", "1"),
        (source(None, raw="1"), "loop-out", None, "1"),
        (source("other", raw="1"), "out", "c", "1"),
    ],
    ids=["by name, not there yet", "by name", "by id, cluster unknown", "by id, of another name"],
)
def test_a_sink_that_writes_where_the_source_reads_is_refused(
    places: SourcePlaces, name: str, cluster: str | None, topic_id: str | None, role: Role
) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        check_source(places, [use(role, name, cluster=cluster, id=topic_id)])
    assert caught.value.reason is Reason.MANIFEST_INVALID
    assert f"sink a: {role.value} {name} " in caught.value.message


@pytest.mark.parametrize(
    "places",
    [source("other"), source(None), source(None, raw="2"), source("c")],
    ids=["other", "unknown", "id", "name"],
)
def test_what_is_not_known_to_be_one_topic_may_be(places: SourcePlaces) -> None:
    check_source(places, [use(DATA, "out" if places.cluster == "c" else "loop-out", id="1")])
    check_source(places, [use(DATA, "loop-out", cluster=None)])


@pytest.mark.parametrize(
    ("role", "other", "told"),
    [(DATA, DATA, DATA), (DATA, PROGRESS, DATA), (PROGRESS, DATA, DATA), (DEAD, DATA, DEAD), (PROGRESS, DEAD, DEAD)],
)
def test_two_sinks_that_need_a_topic_each(role: Role, other: Role, told: Role) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        check_sinks([use(role, "t", sink="b")], [use(other, "t")])
    assert caught.value.reason is Reason.MANIFEST_INVALID
    assert told.value in caught.value.message.split(" is ")[0]
    assert "b:9092" in caught.value.message
    assert "a:9092" in caught.value.message


def test_what_two_sinks_may_share() -> None:
    for role in (PROGRESS, DEAD):
        check_sinks([use(role, "t", sink="b", id="1")], [use(role, "t", id="1")])
    check_sinks([use(DATA, "t", sink="b", cluster="d", id="1")], [use(DATA, "t", id="2")])
    # What one sink has twice, the manifest refuses.
    check_sinks([use(DATA, "t")], [use(PROGRESS, "t")])


def test_two_sinks_that_reach_one_topic_by_two_names() -> None:
    with pytest.raises(SinkPipelineError):
        check_sinks([use(DATA, "t", sink="b", cluster="d", id="1")], [use(DATA, "tenant-t", id="1")])
