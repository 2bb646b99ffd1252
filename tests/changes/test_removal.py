"""A pipeline goes, and with it what its stage has created: on real servers, and killed at each point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sinkpipeline.changes.settings import Publication, Slot, StageSettings
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kinds.leaving import stage_removal
from sinkpipeline.kinds.looking import place_of_stage
from sinkpipeline.sinks import failpoints
from support.changes.lab import Killed, Lab
from support.kafka.topics import delete_topic, progress_truth, topic_id
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

ROWS = "INSERT INTO orders SELECT g, 'x' FROM generate_series(1, 5) AS g"


@pytest.fixture
def read(lab: Lab) -> Lab:
    """A table whose changes were read; its publication and its slot are the stage's."""
    lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    lab.live()
    lab.sql(ROWS)
    lab.live()
    return lab


def removed(lab: Lab, **changes: Any) -> dict[str, str]:
    """By its kind, why something of the database stays."""
    settings = lab.settings(**changes)
    removal = stage_removal(settings, Admin(settings.kafka), None)
    removal.carry_out()
    return {each.what: each.why for each in removal.kept}


def left(lab: Lab) -> set[str]:
    """Of the slot, the publication, the topic and the progress."""
    [(slots, publications)] = lab.sql(
        "SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = current_database()),"
        " (SELECT count(*) FROM pg_publication)"
    )
    progress = progress_truth(lab.servers, f"{lab.name}-progress")
    found = {
        "slot": slots,
        "publication": publications,
        "topic": topic_id(lab.servers, lab.topic) is not None,
        "progress": any(
            value is not None and ("/p/" in key or key.endswith("/meta")) for key, value in progress.items()
        ),
    }
    return {name for name, is_there in found.items() if is_there}


def test_all_that_it_created_goes(read: Lab) -> None:
    settings = read.settings()
    place = place_of_stage(settings)
    assert (place["changes"], place["position"]) == (5, read.sql(f"SELECT '{place['position']}'::pg_lsn::text")[0][0])
    removal = stage_removal(settings, Admin(settings.kafka), None)
    assert removal.doomed() == (read.topic, f"publication {read.name}", f"slot {read.name}")
    assert left(read) == {"slot", "publication", "topic", "progress"}, "it was only looked"
    assert removed(read) == {}
    assert left(read) == set()
    assert removed(read) == {}, "there is nothing left to do"
    assert place_of_stage(settings) == {}


def test_what_was_there_before_stays(lab: Lab) -> None:
    lab.sql(
        "CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
        f"CREATE PUBLICATION {lab.name} FOR TABLE orders",
        f"SELECT pg_create_logical_replication_slot('{lab.name}', 'pgoutput')",
        ROWS,
    )
    given = {"slot": Slot(name=lab.name, create=False), "publication": Publication(name=lab.name, create=False)}
    lab.live(database=given)
    kept = removed(lab)
    assert kept == dict.fromkeys(("slot", "publication"), "nothing says that this pipeline created it")
    assert left(lab) == {"slot", "publication"}


def moved(lab: Lab) -> None:
    lab.sql(ROWS.replace("1, 5", "6, 9"))
    lab.sql(f"SELECT pg_replication_slot_advance('{lab.released()}', pg_current_wal_flush_lsn())")


def made_anew(lab: Lab) -> None:
    lab.sql(f"DROP PUBLICATION {lab.name}", f"CREATE PUBLICATION {lab.name} FOR ALL TABLES")


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (moved, {"slot": "it was confirmed beyond what this pipeline has read, so somebody else reads it"}),
        (made_anew, {"publication": "somebody has created it again since"}),
        (Lab.drop_slot, {}),
    ],
)
@pytest.mark.thorough("real servers; tests/unit/test_change_dropping has each reason")
def test_what_somebody_else_has_touched_stays(read: Lab, change: Callable[[Lab], None], kept: dict[str, str]) -> None:
    change(read)
    assert removed(read) == kept
    assert left(read) == set(kept)


def test_a_database_that_is_away_is_waited_for_and_nothing_is_fenced(read: Lab) -> None:
    settings = read.settings()
    away = replace(settings.database.connection, servers="127.0.0.1:9")
    settings = replace(settings, database=replace(settings.database, connection=away))
    before = progress_truth(read.servers, f"{read.name}-progress")
    with pytest.raises(SinkPipelineError) as caught:
        stage_removal(settings, Admin(settings.kafka), None).carry_out()
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert progress_truth(read.servers, f"{read.name}-progress") == before
    assert left(read) == {"slot", "publication", "topic", "progress"}


@pytest.mark.thorough("one that has ended is in make test")
def test_a_stage_that_runs_is_ended(read: Lab) -> None:
    """One that was forgotten somewhere: it can neither write nor read any more, and makes nothing anew."""
    stage = read.start()
    stage.wait_for("claimed")
    assert removed(read) == {}
    wait_until(lambda: stage.exit_code is not None, "it has ended")
    assert left(read) == set()


@pytest.mark.parametrize("point", ["starting-after-meta", "removal-after-slot", "removal-before-tombstones"])
@pytest.mark.thorough("each point at which it is killed", after=1)
@pytest.mark.thorough("one that is not killed is in make test")
def test_it_is_killed_and_repeated(read: Lab, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        for module in ("sinkpipeline.changes.removal.failpoint", "sinkpipeline.sinks.failpoints.failpoint"):
            patch.setattr(module, kill)
        with pytest.raises(Killed):
            removed(read)
    assert failpoints.failpoint is not kill
    assert removed(read) == {}
    assert left(read) == set()


@pytest.mark.thorough("another pipeline's stage; tests/kafka has the owner of a sink")
def test_another_pipelines_stage_is_left_alone(read: Lab) -> None:
    settings: StageSettings = read.settings()
    stranger = replace(settings, owner=replace(settings.owner, name="another"))
    for act in ("doomed", "carry_out"):
        with pytest.raises(SinkPipelineError) as caught:
            getattr(stage_removal(stranger, Admin(settings.kafka), None), act)()
        assert caught.value.reason is Reason.IDENTITY_IN_USE
    assert left(read) == {"slot", "publication", "topic", "progress"}
    # Without its topic nothing of it is announced either.
    delete_topic(read.servers, read.topic)
    with pytest.raises(SinkPipelineError):
        stage_removal(stranger, Admin(settings.kafka), None).doomed()
