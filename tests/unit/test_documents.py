"""What is believed of a driver's answer and of its last words: what drivers write, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.documents import parse_answer, parse_words
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.held_back import HeldBack, OpenTransaction
from sinkpipeline.core.last_words import last_words
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Owner, Progress
from sinkpipeline.core.resume import from_status, parse
from sinkpipeline.core.resume import render as render_resume
from sinkpipeline.core.served import DriverInfo, status_body
from sinkpipeline.core.status import SinkReport, SinkState, render
from sinkpipeline.core.tally import checked
from sinkpipeline.core.work import Executors
from support.kube.fuzz import ANSWER, WORDS, mutated
from support.sink.progresses import partition_progresses

GOOD: dict[str, Any] = {
    "identity": "shop.orders",
    "configHash": "abc",
    "run": "r",
    "now": "2026-01-01T00:00:00Z",
    "supervising": True,
    "conditions": [
        {
            "type": "TopicsReady",
            "status": "True",
            "reason": "TopicsAsRequested",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "executors": {"registered": 1},
    "readerSchema": {"subject": "orders-value", "version": 3, "id": 7, "fingerprint": "0f"},
    "lookups": [{"name": "rate", "table": "key r of ConfigMap c", "rows": 2, "fingerprint": "0f"}],
    "source": {"state": "Running", "slot": "s", "position": "0/3279E770", "index": 4, "changes": 7, "lagBytes": 64},
    "sinks": [
        {
            "name": "a",
            "state": "Running",
            "guarantee": "ExactlyOnce",
            "rowsDelivered": 1,
            "deadLettered": 0,
            "dropped": 0,
            "lost": 0,
            "deadLetters": [{"class": "MalformedJson", "stage": "decode", "count": 1, "dropped": 0}],
            "frontier": [{"topic": "t", "topicId": "x", "next": [1]}],
            "lag": 0,
            "epoch": 0,
            "dataTopicId": "d",
            "progressTopicId": "p",
        }
    ],
}
SINK, CONDITION = ("sinks", 0), ("conditions", 0)
MALFORMED: list[tuple[tuple[str | int, ...], Any]] = [
    *(((*SINK, "lag"), value) for value in (-1, "5", 1.5, None, 2**70, True)),
    *(((*SINK, "rowsDelivered"), value) for value in (None, "1", -3, [1], float("nan"))),
    *(((*SINK, "state"), value) for value in ("Draining", ["Running"], None)),
    *(((*SINK, "guarantee"), value) for value in ("AtMostOnce", None)),
    *((("conditions",), value) for value in (None, "abc", [1], GOOD["conditions"] * 2)),
    *(((*CONDITION, "status"), value) for value in ("Maybe", None)),
    *(((*CONDITION, "reason"), value) for value in ("has blanks", "", "x" * 129)),
    *(((*CONDITION, "message"), value) for value in (5, None)),
    *(
        ((*CONDITION, "lastTransitionTime"), value)
        for value in ("yesterday", "2026-1-1T0:0:0Z", "2026-02-30T00:00:00Z")
    ),
    *(
        ((*SINK, "frontier"), value)
        for value in ("x", [{"topic": "t"}], *([{"topic": "t", "next": each}] for each in ([], [-1])))
    ),
    ((*SINK, "frontier"), [{"topic": "t", "next": [1]}, {"topic": "t", "next": [2]}]),
    *(((*SINK, "error"), value) for value in ("boom", ["boom"], {}, {"reason": None, "message": "m", "remedy": "r"})),
    ((*SINK, "error"), {"reason": "X", "message": "\ud800", "remedy": "r"}),
    ((*SINK, "error"), {"reason": "no such reason", "message": "m", "remedy": "r"}),
    *(((*SINK, "epoch"), value) for value in ("0", {})),
    ((*SINK, "lastProgressTime"), "yesterday"),
    *(((*SINK, "circuit"), value) for value in ("open", {})),
    *(((*SINK, "dataTopicId"), value) for value in (5, "")),
    ((*SINK, "progressTopicId"), ""),
    ((*SINK, "frontier"), [{"topic": "t", "topicId": "", "next": [1]}]),
    *(((*SINK, "deadLetters", 0, "class"), value) for value in ("A B", None)),
    ((*SINK, "deadLetters", 0, "stage"), "x" * 20),
    ((*SINK, "deadLetters"), GOOD["sinks"][0]["deadLetters"] * 2),
    ((*SINK, "deadLetters"), [{"class": f"A{i}", "stage": "x", "count": 1, "dropped": 0} for i in range(65)]),
    ((*SINK, "proved"), 1),
    ((*SINK, "stillSince"), "soon"),
    *((("sinks",), value) for value in (None, [None], GOOD["sinks"] * 2, [{**GOOD["sinks"][0], "name": ""}])),
    *((("executors",), value) for value in (None, {}, {"registered": -1}, {"registered": 2**40})),
    *((("readerSchema",), value) for value in (None, {}, "x", {"fingerprint": "x" * 65})),
    *((("lookups",), value) for value in (None, {}, [{"name": "a"}], GOOD["lookups"] * 513)),
    (("lookups", 0, "rows"), -1),
    *((("source",), value) for value in (None, {}, [], {"slot": "s"})),
    *((("source", "state"), value) for value in ("Draining", None)),
    *((("source", "slot"), value) for value in ("", "a b", "x" * 64, None)),
    *((("source", "position"), value) for value in ("0/g", "0/", "123456789/0", 7, None)),
    *(
        (("source", name), value)
        for name in ("index", "changes", "lagBytes", "lagSeconds")
        for value in (-1, "1", 2**63, None)
    ),
    *((("source", name), value) for name in ("retainedBytes", "safeBytes", "timeline") for value in (-1, 1.5)),
    (("source", "atRisk"), 5),
    *((("source", "snapshot"), value) for value in (None, {"phase": "Done"}, {"rows": -1}, {"table": "x" * 257})),
    *((("source", "error"), value) for value in ("boom", {}, {"reason": "no word", "message": "m", "remedy": "r"})),
    (("source", "circuit"), {"openedAt": "yesterday"}),
    (("now",), 1),
    (("supervising",), "yes"),
]


def changed(path: tuple[str | int, ...], value: Any) -> bytes:
    document = copy.deepcopy(GOOD)
    within: Any = document
    for key in path[:-1]:
        within = within[key]
    within[path[-1]] = value
    return json.dumps(document).encode()


def test_a_good_one_is_taken_whole() -> None:
    assert parse_answer(json.dumps(GOOD).encode()) == GOOD
    assert parse_answer(json.dumps({**GOOD, "newer": 1}).encode()) == GOOD


@pytest.mark.parametrize(("path", "value"), MALFORMED, ids=lambda value: str(value)[:40])
def test_one_wrong_word_and_nothing_is_believed(path: tuple[str | int, ...], value: Any) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the place is what matters
        parse_answer(changed(path, value))
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["configHash", "run", "now", "conditions", "sinks"])
def test_what_every_driver_says_may_not_be_missing(missing: str) -> None:
    with pytest.raises(ValueError, match=f"{missing}: Field required"):
        parse_answer(json.dumps({key: value for key, value in GOOD.items() if key != missing}).encode())


def test_a_frontier_without_its_epoch_is_none() -> None:
    sink = {key: value for key, value in GOOD["sinks"][0].items() if key != "epoch"}
    assert "frontier" not in parse_answer(json.dumps({**GOOD, "sinks": [sink]}).encode())["sinks"][0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 4000,
        "Exception in thread main",
        '{"reason": "X", "message": "m"}',
        '{"reason": "X", "message": "\\ud800", "remedy": "r"}',
        '{"reason": ["X"], "message": "m", "remedy": "r"}',
        '{"reason": "no word", "message": "m", "remedy": "r"}',
        '{"reason": "X", "message": "m", "remedy": "r", "source": null}',
        '{"reason": "X", "message": "m", "remedy": "r", "source": {"slot": "s"}}',
        '{"reason": "X", "message": "m", "remedy": "r", "source": {"state": "Failed", "slot": "s", "index": -1}}',
        '{"reason": "X", "message": "m", "remedy": "r", "sinks": {}}',
        '{"reason": "X", "message": "m", "remedy": "r", "sinks": [null]}',
        '{"reason": "X", "message": "m", "remedy": "r", "sinks": [{}]}',
        '{"reason": "X", "message": "m", "remedy": "r", "sinks": [{"name": "a", "state": "Dead"}]}',
        '{"reason": "X", "message": "m", "remedy": "r", "sinks": [{"name": "a", "state": "Failed", "error": "x"}]}',
    ],
)
def test_last_words_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - likewise
        parse_words(text)


counts = st.integers(0, 2**53)
times = st.integers(0, 4_000_000_000_000)
errors = st.builds(SinkPipelineError, st.sampled_from(Reason), st.text(), st.text())
partitions = partition_progresses(counts, times, st.just(checked({"MalformedJson": 2})))
sources = st.builds(SourcePartition, st.sampled_from(["t", "u"]), st.integers(0, 3))
metas = st.builds(
    Meta,
    epoch=counts,
    run=st.just("r"),
    owner=st.just(Owner(cluster="c", name="n/n")),
    partitions=st.just({"t": 1}),
    source=st.just({"t": "id"}),
    data=st.none() | st.just("d"),
    progress=st.none() | st.just("p"),
    restored=st.none() | counts,
)
reports = st.builds(
    SinkReport,
    name=st.sampled_from(["a", "b", "c"]),
    exactly_once=st.booleans(),
    state=st.sampled_from(SinkState),
    progress=st.none() | st.builds(Progress, meta=metas, partitions=st.dictionaries(sources, partitions, max_size=3)),
    lag=st.none() | counts,
    held_back=st.none() | st.builds(HeldBack, counts, st.none() | st.just(OpenTransaction("it is open", "end it"))),
    circuit_opened_at=st.none() | times,
    error=st.none() | errors,
    drift=st.just(()) | st.tuples(st.text()),
    proved=st.none() | st.booleans(),
    still_since=st.none() | times,
)
executors = st.none() | st.builds(
    Executors,
    registered=st.integers(0, 100),
    wanted=st.none() | st.integers(0, 100),
    none_since=st.none() | times,
)


@given(st.lists(reports, unique_by=lambda report: report.name, max_size=3), executors, times)
def test_whatever_a_driver_writes_is_believed(found: list[SinkReport], joined: Executors | None, now: int) -> None:
    status = render(found, identity="i", generation=None, previous=None, now_ms=now, executors=joined)
    body = status_body(status, DriverInfo(config_hash="h", run="r", pid=1), now)
    told = parse_answer(body)
    assert told["sinks"] == json.loads(body)["sinks"]
    assert told["conditions"] == json.loads(body)["conditions"]
    words = last_words("SparkFailed", "the facts", "", status["sinks"])
    assert parse_words(words.decode()) == json.loads(words)


def goes_on_from(sinks: list[Any]) -> None:
    found = from_status({"identity": "i", "sinks": sinks}, "i")
    assert parse(render_resume(found), "i") == found


@given(mutated(ANSWER))
def test_whatever_is_believed_can_be_gone_on_from(told: dict[str, Any]) -> None:
    try:
        answer = parse_answer(json.dumps({"configHash": "h", **told}).encode(errors="surrogatepass"))
    except ValueError:
        return
    goes_on_from(answer["sinks"])


@given(mutated(WORDS))
def test_whatever_is_believed_of_last_words_can_be_gone_on_from(told: dict[str, Any]) -> None:
    try:
        words = parse_words(json.dumps(told))
    except ValueError:
        return
    goes_on_from(words.get("sinks", []))
