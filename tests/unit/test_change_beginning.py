"""What a start of a stage decides: everything that must not be gone over in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.changes.beginning import (
    Asked,
    Identity,
    Seen,
    SlotState,
    at_risk,
    check_going_on,
    check_slot,
    decide_first,
    identity_of,
)
from sinkpipeline.core.changes.positions import LogPosition
from sinkpipeline.core.changes.suitable import Facts, Table, check_suitable, check_tables
from sinkpipeline.core.errors import Reason, SinkPipelineError

KNOWN = Identity(system="7", timeline=1, database="16384", slot="s", publication="16390")
AT = LogPosition(1_000, 4)
SLOT = SlotState(plugin="pgoutput", database="16384", confirmed=900, restart=800, wal_status="reserved")
SEEN = Seen(identity=KNOWN, slot=SLOT, flushed=2_000, forks={})
WHERE = "PostgreSQL at pg:5432, database shop"


def refusal(seen: Seen, at: LogPosition = AT) -> Reason | None:
    try:
        check_going_on(KNOWN, at, seen, WHERE)
    except SinkPipelineError as error:
        return error.reason
    return None


def changed(**changes: object) -> Seen:
    """Of the identity."""
    return replace(SEEN, identity=replace(KNOWN, **changes))  # type: ignore[arg-type]


def slot(**changes: object) -> Seen:
    return replace(SEEN, slot=replace(SLOT, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (SEEN, None),
        (slot(confirmed=1_000), None),
        (slot(confirmed=1), None),
        (slot(confirmed=1_001), Reason.SOURCE_DATA_LOST),
        (slot(confirmed=None), Reason.SOURCE_DATA_LOST),
        (slot(wal_status="lost"), Reason.SLOT_LOST),
        (slot(wal_status="unreserved"), None),
        (replace(SEEN, slot=None), Reason.SLOT_LOST),
        (slot(plugin="test_decoding"), Reason.SOURCE_RECREATED),
        (slot(plugin=None, database=None), Reason.SOURCE_RECREATED),
        (slot(database="1"), Reason.SOURCE_RECREATED),
        (changed(system="8"), Reason.SOURCE_RECREATED),
        (changed(database="1"), Reason.SOURCE_RECREATED),
        (changed(publication="1"), Reason.SOURCE_RECREATED),
        (changed(publication=""), Reason.PUBLICATION_MISSING),
        (changed(slot="t"), Reason.SOURCE_RECREATED),
        (changed(options="streaming=on"), Reason.SOURCE_RECREATED),
        (replace(SEEN, flushed=1_001), None),
        # The commit record of the transaction that was read in part begins there.
        (replace(SEEN, flushed=1_000), Reason.SOURCE_ROLLED_BACK),
        (replace(changed(timeline=2), forks={1: 1_001}), None),
        (replace(changed(timeline=2), forks={1: 1_000}), Reason.SOURCE_ROLLED_BACK),
        (replace(changed(timeline=3), forks={1: 1_500, 2: 1_600}), None),
        (replace(changed(timeline=2), forks={1: 999}), Reason.SOURCE_ROLLED_BACK),
        (replace(changed(timeline=3), forks={2: 1_600}), Reason.SOURCE_ROLLED_BACK),
        (changed(timeline=0), Reason.SOURCE_ROLLED_BACK),
        # What was rolled back is told before a slot that the standby did not have.
        (replace(changed(timeline=2), forks={1: 999}, slot=None), Reason.SOURCE_ROLLED_BACK),
    ],
)
def test_a_start_that_goes_on(seen: Seen, reason: Reason | None) -> None:
    assert refusal(seen) is reason


def test_behind_a_transaction_nothing_of_the_next_one_was_read() -> None:
    behind = LogPosition(1_000)
    assert refusal(replace(SEEN, flushed=1_000), behind) is None
    assert refusal(replace(changed(timeline=2), forks={1: 1_000}), behind) is None
    assert refusal(replace(SEEN, flushed=999), behind) is Reason.SOURCE_ROLLED_BACK
    assert refusal(replace(changed(timeline=2), forks={1: 999}), behind) is Reason.SOURCE_ROLLED_BACK


@given(st.integers(0, 50), st.integers(0, 3), st.integers(0, 50), st.integers(0, 50))
def test_it_goes_on_only_where_nothing_can_be_missing(lsn: int, index: int, confirmed: int, flushed: int) -> None:
    seen = replace(SEEN, flushed=flushed, slot=replace(SLOT, confirmed=confirmed))
    goes_on = refusal(seen, LogPosition(lsn, index)) is None
    assert goes_on == (confirmed <= lsn and lsn + (index > 0) <= flushed)


def test_an_identity_goes_through_the_meta_record() -> None:
    assert identity_of(KNOWN.to_meta()) == KNOWN
    for broken in ({}, {**KNOWN.to_meta(), "more": ""}, {**KNOWN.to_meta(), "timeline": "x"}):
        with pytest.raises(ValueError, match=r"timeline|invalid literal"):
            identity_of(broken)


@pytest.mark.parametrize(
    ("seen", "asked", "begins"),
    [
        (replace(SEEN, slot=None), Asked(create=True, announced=False), None),
        (replace(SEEN, slot=None), Asked(create=True, announced=True), None),
        (replace(SEEN, slot=None), Asked(create=False, announced=False), Reason.SOURCE_UNSUITABLE),
        (SEEN, Asked(create=True, announced=True), LogPosition(900)),
        (SEEN, Asked(create=True, announced=False), Reason.SOURCE_UNSUITABLE),
        (SEEN, Asked(create=False, announced=False), LogPosition(900)),
        (slot(confirmed=None), Asked(create=False, announced=False), Reason.SOURCE_UNSUITABLE),
        (slot(wal_status="lost"), Asked(create=False, announced=False), Reason.SLOT_LOST),
    ],
)
def test_a_first_start(seen: Seen, asked: Asked, begins: LogPosition | Reason | None) -> None:
    if not isinstance(begins, Reason):
        assert decide_first(seen, asked, WHERE) == begins
        return
    with pytest.raises(SinkPipelineError) as refused:
        decide_first(seen, asked, WHERE)
    assert refused.value.reason is begins


def test_a_slot_at_risk_is_told() -> None:
    assert at_risk(SLOT, 2_000, None) is None
    assert at_risk(replace(SLOT, safe_bytes=300), 2_000, None) is None
    assert "after 299 more bytes" in (at_risk(replace(SLOT, safe_bytes=299), 2_000, None) or "")
    assert "after 0 more bytes" in (at_risk(replace(SLOT, safe_bytes=-5), 2_000, None) or "")
    assert "holds 1200 bytes" in (at_risk(SLOT, 2_000, 1_199) or "")
    assert at_risk(SLOT, 2_000, 1_200) is None


FACTS = Facts(version=150018, wal_level="logical", encoding="UTF8", role="cdc", may_replicate=True, in_recovery=False)


@pytest.mark.parametrize(
    ("facts", "reason", "remedy"),
    [
        (FACTS, None, ""),
        (replace(FACTS, wal_level="replica"), Reason.SOURCE_UNSUITABLE, "ALTER SYSTEM SET wal_level = logical"),
        (replace(FACTS, may_replicate=False), Reason.SOURCE_UNSUITABLE, 'ALTER ROLE "cdc" REPLICATION'),
        (replace(FACTS, encoding="SQL_ASCII"), Reason.SOURCE_UNSUITABLE, "UTF8"),
        (replace(FACTS, version=120004), Reason.SOURCE_UNSUITABLE, "13 or newer"),
        (replace(FACTS, in_recovery=True), Reason.SOURCE_UNREACHABLE, "primary"),
    ],
)
def test_a_server_is_suitable_or_what_to_run_is_told(facts: Facts, reason: Reason | None, remedy: str) -> None:
    if reason is None:
        check_suitable(facts, WHERE)
        return
    with pytest.raises(SinkPipelineError) as refused:
        check_suitable(facts, WHERE)
    assert refused.value.reason is reason
    assert remedy in refused.value.remedy


def test_a_slot_for_standbys_needs_a_server_that_has_such() -> None:
    check_suitable(replace(FACTS, version=170000), WHERE, failover=True)
    with pytest.raises(SinkPipelineError, match="17 or newer"):
        check_suitable(FACTS, WHERE, failover=True)


@pytest.mark.parametrize(
    ("identity", "has_key", "full", "suits"),
    [
        ("d", True, False, True),
        ("d", False, False, False),
        ("n", True, False, False),
        ("i", False, False, True),
        ("f", False, False, True),
        ("f", False, True, True),
        ("d", True, True, False),
    ],
)
def test_a_table_must_tell_its_rows(identity: str, has_key: bool, full: bool, suits: bool) -> None:
    tables = [Table(name="public.orders", identity=identity, has_key=has_key)]
    if suits:
        check_tables(tables, WHERE, "shop", require_full=full)
        return
    with pytest.raises(SinkPipelineError, match=r"ALTER TABLE public\.orders REPLICA IDENTITY FULL"):
        check_tables(tables, WHERE, "shop", require_full=full)


@pytest.mark.parametrize(
    ("identity", "of_key", "runs"),
    [
        # By its key alone, without such a column.
        ("d", (), None),
        ("d", ("s",), "run PUBLISHING"),
        ("i", ("s",), "run PUBLISHING"),
        ("f", (), "run ALTER TABLE public.orders REPLICA IDENTITY DEFAULT; or, if it is a stored one, run PUBLISHING"),
    ],
)
def test_a_generated_column_that_is_not_published(identity: str, of_key: tuple[str, ...], runs: str | None) -> None:
    """PostgreSQL 18 refuses to change a row by an identity of which not all is published."""
    table = Table(name="public.orders", identity=identity, has_key=True, unsent=("s", "v"), unsent_of_key=of_key)
    if runs is None:
        check_tables([table], WHERE, "PUBLISHING")
        return
    with pytest.raises(SinkPipelineError) as refused:
        check_tables([table], WHERE, "PUBLISHING")
    assert refused.value.remedy.endswith(runs)


def test_full_is_not_offered_where_the_server_would_refuse_it() -> None:
    table = Table(name="public.orders", identity="d", has_key=False, unsent=("v",))
    with pytest.raises(SinkPipelineError) as refused:
        check_tables([table], WHERE, "PUBLISHING")
    assert "FULL" not in refused.value.remedy
    keyed = replace(table, has_key=True)
    with pytest.raises(SinkPipelineError, match="RequireFull") as refused:
        check_tables([keyed], WHERE, "PUBLISHING", require_full=True)
    assert "run" not in refused.value.remedy


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (None, "max_slot_wal_keep_size"),
        ("wal_removed", "max_slot_wal_keep_size"),
        ("idle_timeout", "idle_replication_slot_timeout"),
        ("rows_removed", "hot_standby_feedback"),
        ("wal_level_insufficient", "wal_level"),
    ],
)
def test_a_slot_that_was_given_up_says_why(why: str | None, words: str) -> None:
    given_up = replace(SLOT, wal_status="lost", invalidated=why)
    with pytest.raises(SinkPipelineError) as refused:
        check_slot(given_up, KNOWN, WHERE)
    assert (refused.value.reason, words in refused.value.remedy) == (Reason.SLOT_LOST, True)
