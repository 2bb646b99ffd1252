"""The pure parts of `make chaos`: its plan, what follows from what was seen, and its report."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest

from chaos.plan import LASTS_S, Step, steps
from chaos.report import Case, by_fault, picture, table
from chaos.seen import QUIET_S, Finding, Span, Told, find


def first(seed: int, number: int) -> list[Step]:
    return list(itertools.islice(steps(seed), number))


def test_a_seed_repeats_its_plan_and_each_round_has_every_fault() -> None:
    number = len(LASTS_S)
    assert first(7, 3 * number) == first(7, 3 * number)
    assert first(7, number) != first(8, number)
    plan = first(7, 2 * number)
    for half in (plan[:number], plan[number:]):
        assert {each.fault for each in half} == set(LASTS_S)
    assert [each.fault for each in plan[:number]] != [each.fault for each in plan[number:]]
    for each in plan:
        least, most = LASTS_S[each.fault]
        assert least <= each.lasts_s <= most


def test_only_what_was_asked_for() -> None:
    assert {"network cut", "node drained"} == {
        each.fault for each in itertools.islice(steps(7, ["node drained", "network cut"]), 4)
    }


SPAN = Span("driver killed", began=100, over=101, fresh=130, ready=135, ended=150)
ROWS_COME = [*range(90, 101), 130, *range(131, 150)]


def test_what_was_seen() -> None:
    told = [Told(0, "True Running"), Told(108, "False DriverLost"), Told(135, "True Running")]
    found = find(SPAN, ROWS_COME, told)
    assert found == Finding(first_row_s=30, gap_s=30, told_s=8, told="DriverLost", ready_s=5, untold_s=8, problems=())


def test_a_status_that_was_not_ready_when_it_began_has_told_it() -> None:
    found = find(SPAN, ROWS_COME, [Told(0, "True Running"), Told(99, "False DriverLost")])
    assert (found.told_s, found.told) == (0, "DriverLost")


CUT = Span("network cut", began=100, over=300, fresh=300, ready=300, ended=330)
CUT_ROWS = list(range(300, 330))
"""No row for 200 s, and many after it."""


READY_IN_THE_GAP: dict[str, tuple[list[Told], float]] = {
    "always Ready": ([Told(0, "True Running")], 200),
    "told when it was over": ([Told(0, "True Running"), Told(301, "False DriverLost")], 200),
    "told before it began": ([Told(0, "False DriverLost"), Told(330, "True Running")], 0),
    "told at once": ([Told(0, "True Running"), Told(100 + QUIET_S, "False DriverLost")], QUIET_S),
    "told late": ([Told(0, "True Running"), Told(101 + QUIET_S, "Unknown BrokerUnreachable")], QUIET_S + 1),
    # Twice for less than it may be, and never for longer.
    "told between": (
        [Told(0, "True Running"), Told(150, "False A"), Told(260, "True Running"), Told(290, "False B")],
        50,
    ),
    "taken back too early": ([Told(0, "False DriverLost"), Told(210, "True Running")], 90),
    # Ready for another reason is Ready all the time; and nobody was told otherwise while the API server was away.
    "by another name": ([Told(0, "True Running"), Told(150, "True Idle")], 200),
    "not to be read": ([Told(0, "True Running"), Told(120, "the API server is away")], 200),
    "nothing": ([], 0),
}


@pytest.mark.parametrize(("told", "untold_s"), READY_IN_THE_GAP.values(), ids=READY_IN_THE_GAP.keys())
def test_how_long_it_was_ready_while_nothing_came(told: list[Told], untold_s: float) -> None:
    found = find(CUT, CUT_ROWS, told)
    assert (found.gap_s, found.untold_s) == (200, untold_s)
    lies = [f"it was Ready for {untold_s:.0f} s while nothing came"] if untold_s > QUIET_S else []
    assert list(found.problems) == lies


def test_two_gaps_are_not_one() -> None:
    """A row came between them: it was right to be Ready then, and right again."""
    rows = list(range(100, 330, 50))
    found = find(CUT, rows, [Told(0, "True Running")])
    assert (found.gap_s, found.untold_s, found.problems) == (50, 50, ())


def test_rows_that_never_come_again_are_a_problem() -> None:
    span = Span("network cut", began=100, over=170, fresh=None, ready=None, ended=400)
    found = find(span, [], [Told(0, "False DriverLost")])
    assert found.problems == ("no row came any more", "it was not Ready again")
    assert (found.first_row_s, found.gap_s, found.ready_s) == (None, 300, None)


def cases() -> Iterator[Case]:
    told = [Told(0, "True Running"), Told(108, "False DriverLost")]
    yield Case(SPAN, find(SPAN, ROWS_COME, told), 12_345, "exact")
    lost = Span("<kubelet> down", began=200, over=260, fresh=None, ready=None, ended=300)
    yield Case(lost, find(lost, [], told), 20_000, "3 missing")


def test_the_table_has_a_line_for_each() -> None:
    lines = table(list(cases())).splitlines()
    assert len(lines) == 4
    assert lines[2] == "| 1 | driver killed | 1 s | 30 s | 30 s | 8 s | DriverLost | 5 s | 8 s | 12,345 | exact |"
    assert lines[3].endswith("| 3 missing; no row came any more; it was not Ready again |")
    assert len({line.count("|") for line in lines}) == 1


def test_the_table_of_faults_has_the_least_and_the_most_of_each() -> None:
    again = Span("driver killed", began=400, over=403, fresh=480, ready=None, ended=490)
    told = [Told(0, "True Running"), Told(402, "False DriverPodLost")]
    third = Case(again, find(again, [480], told), 20_000, "exact")
    lines = by_fault([*cases(), third]).splitlines()
    killed = "| driver killed | 2 | 1 to 3 s | 30 to 80 s | 2 to 8 s | `DriverLost`, `DriverPodLost` | 5 s | 2 to 8 s |"
    assert lines[2:] == [killed, "| <kubelet> down | 1 | 60 s | - | 0 s | `DriverLost` | - | 0 s |"]
    assert len({line.count("|") for line in lines}) == 1


def test_the_picture_is_one() -> None:
    told = [Told(0, "True Running"), Told(108, "False <b>"), Told(110, "the API server is away")]
    root = ET.fromstring(picture(list(cases()), [(each, 40) for each in ROWS_COME], told, 300))
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [
        *("1: driver killed", "2: <kubelet> down"),
        *("True Running, 0 s", "False <b>, 108 s", "the API server is away, 110 s"),
    ]
    width = float(root.attrib["width"])
    for each in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(each.get("x", 0)) + float(each.attrib["width"]) <= width


def test_the_picture_of_nothing_is_one() -> None:
    ET.fromstring(picture([], [], [], 0))
