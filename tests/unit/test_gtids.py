"""Sets of GTIDs, compared with sets of numbers; tests/binlog has what servers answer."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.changes.gtids import NONE, MariadbGtids, MysqlGtids

ONE, OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "00000000-0000-0000-0000-000000000002:tag"
NAMED = st.tuples(st.sampled_from([ONE, OTHER]), st.integers(1, 30))
SETS = st.frozensets(NAMED, max_size=20)


def mysql(named: frozenset[tuple[str, int]]) -> MysqlGtids:
    found = MysqlGtids()
    for key, number in named:
        found.add(f"{key}:{number}")
    return found


def numbers(gtids: MysqlGtids) -> set[tuple[str, int]]:
    return {(key, n) for key, spans in gtids.items() for first, last in spans for n in range(first, last + 1)}


@given(SETS, SETS)
def test_sets_of_mysql(one: frozenset[tuple[str, int]], other: frozenset[tuple[str, int]]) -> None:
    assert numbers(mysql(one)) == one
    assert numbers(mysql(one).lacks(mysql(other))) == other - one
    joined = mysql(one)
    joined.join(mysql(other))
    assert numbers(joined) == one | other
    assert numbers(MysqlGtids.parse(str(joined))) == one | other
    assert all(a + 1 < b for _, spans in joined.items() for (_, a), (b, _) in pairwise(spans))


@given(SETS, st.lists(NAMED, max_size=20))
def test_each_of_mysql_is_passed_over_once(ahead: frozenset[tuple[str, int]], come: list[tuple[str, int]]) -> None:
    gtids, left = mysql(ahead), set(ahead)
    for each in come:
        assert gtids.meet(f"{each[0]}:{each[1]}") == (each in left)
        left.discard(each)
    assert numbers(gtids) == left


def test_as_mysql_spells_them() -> None:
    told = f"{ONE.upper()}:1-5:7,\n00000000-0000-0000-0000-000000000002:3:tag:1:4-5"
    found = MysqlGtids.parse(told)
    assert found.has(f"{ONE}:5")
    assert not found.has(f"{ONE}:6")
    assert found.has(f"{OTHER}:4")
    assert not found.has("00000000-0000-0000-0000-000000000002:4")
    assert MysqlGtids.parse("").is_empty
    assert str(MysqlGtids()) == NONE
    assert MysqlGtids.parse(NONE).is_empty


@pytest.mark.parametrize("text", ["0-1-7", f"{ONE}", f"{ONE}:0", f"{ONE}:5-1", f"{ONE}:A"])
def test_what_are_no_gtids_of_mysql(text: str) -> None:
    with pytest.raises(ValueError, match="no "):
        MysqlGtids.parse(text)


def test_of_mariadb_a_number_is_of_a_writer() -> None:
    found = MariadbGtids.parse("[0-1-345,0-2-300,7-1-2]")
    assert str(found.lacks(MariadbGtids.parse("0-1-345,0-2-301,0-3-1,8-1-1"))) == "0-2-301,0-3-1,8-1-1"
    found.add("0-1-7")
    assert str(found) == "0-1-345,0-2-300,7-1-2", "nothing goes back"
    assert (found.newest_of(0), found.newest_of(9), found.domains) == (345, None, {0, 7})


def test_of_mariadb_what_was_there_before_a_copy_is_of_whoever() -> None:
    found = MariadbGtids.parse("0-0-102")
    assert str(found.lacks(MariadbGtids.parse("0-1-102,0-9-103,7-1-1"))) == "0-9-103,7-1-1"
    assert found.meet("0-5-101")
    assert not found.meet("0-5-103")
    assert found.is_empty, "behind a higher number nothing of it comes"


def test_of_mariadb_each_writer_is_passed_over_up_to_its_number() -> None:
    ahead = MariadbGtids.parse("0-1-5,0-2-9")
    assert [ahead.meet(each) for each in ("0-1-4", "0-3-4", "0-1-5", "0-1-6", "0-2-9", "0-2-10")] == [
        *(True, False, True, False, True, False)
    ]
    assert ahead.is_empty
    with pytest.raises(ValueError, match="no GTID"):
        MariadbGtids.parse("a-b-c")
