from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.resume import OpenCircuit, Resume, from_status, parse, render
from sinkpipeline.core.status import SinkReport, SinkState
from sinkpipeline.core.status import render as render_status
from sinkpipeline.core.tally import checked
from sinkpipeline.core.topics import Memory

IDENTITY = "shop.orders"
OPENED_AT = 1_700_000_000_000
OWNER = Owner(cluster="c-2", name="shop/orders")
CIRCUIT = OpenCircuit(opened_at=OPENED_AT, config_hash="8f14e45f", message="5 failures in a row", remedy="look")
MEMORY = Memory(
    epoch=2,
    partitions={
        SourcePartition("a", 0): PartitionProgress(
            epoch=2,
            next=120,
            rows=110,
            dead=2,
            dropped=1,
            lost=4,
            by_class=checked({"MalformedJson": 2}, {"FromTheFuture": 1}),
        ),
        SourcePartition("a", 1): PartitionProgress(epoch=2, next=118),
        SourcePartition("b", 0): PartitionProgress(epoch=2, next=7),
    },
    source={"a": "id-a"},
    data="id-d",
    progress=None,
    rows=110,
    rolled_back=3,
    counted=4711,
)
PROGRESS = Progress(
    meta=Meta(
        epoch=2,
        run="r",
        owner=OWNER,
        partitions={"a": 2, "b": 1},
        source={"a": "id-a"},
        data="id-d",
        progress=None,
        rolled_back=3,
    ),
    partitions=MEMORY.partitions,
    counted=4711,
)


def resume(**facts: Any) -> Resume:
    return Resume(**{"identity": IDENTITY, **facts})


def written(given: Resume) -> Any:
    return json.loads(json.dumps(render(given)))


def status(**facts: Any) -> dict[str, Any]:
    report = SinkReport(**{"name": "one", "exactly_once": True, "progress": PROGRESS, **facts})
    return render_status([report], identity=IDENTITY, generation=1, previous=None, now_ms=OPENED_AT)


@pytest.mark.parametrize(
    "told",
    [
        resume(),
        resume(memories={"one": MEMORY}),
        resume(circuits={"one": CIRCUIT}),
        resume(circuits={"one": OpenCircuit(opened_at=OPENED_AT, config_hash="h")}),
        resume(memories={"one": MEMORY, "two": MEMORY}, circuits={"two": CIRCUIT}, adopt=OWNER),
    ],
    ids=["nothing", "memory", "circuit", "circuit without its error", "everything"],
)
def test_what_is_written_is_read_back(told: Resume) -> None:
    assert parse(written(told), IDENTITY) == told


names = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
counts = st.integers(0, 2**53)
by_word = st.dictionaries(st.sampled_from(["WrongType", "NullValue", "FromTheFuture"]), counts)
tallies = st.builds(checked, by_word, by_word)


@st.composite
def memories(draw: st.DrawFn) -> Memory:
    sizes = draw(st.dictionaries(names, st.integers(1, 5), min_size=1, max_size=3))
    epoch, rows = draw(counts), draw(counts)
    partitions = {
        SourcePartition(topic, number): PartitionProgress(epoch=epoch, next=draw(counts))
        for topic, size in sizes.items()
        for number in range(size)
    }
    partitions[min(partitions)] = PartitionProgress(
        epoch=epoch,
        next=draw(counts),
        rows=rows,
        dead=draw(counts),
        dropped=draw(counts),
        lost=draw(counts),
        by_class=draw(tallies),
    )
    ids = st.none() | st.text(min_size=1)
    return Memory(
        epoch=epoch,
        partitions=partitions,
        source={topic: f"id-{topic}" for topic in sizes if draw(st.booleans())},
        data=draw(ids),
        progress=draw(ids),
        rows=rows,
    )


circuits = st.builds(
    OpenCircuit,
    opened_at=st.integers(0, 2**32).map(lambda seconds: seconds * 1000),
    config_hash=st.text(min_size=1),
    message=st.text(),
    remedy=st.text(),
)
owners = st.builds(Owner, cluster=st.text(min_size=1), name=st.text(min_size=1))


@given(st.dictionaries(names, memories(), max_size=3), st.dictionaries(names, circuits, max_size=3), st.none() | owners)
def test_any_document_is_read_back(
    remembered: dict[str, Memory], opened: dict[str, OpenCircuit], adopt: Owner | None
) -> None:
    told = resume(memories=remembered, circuits=opened, adopt=adopt)
    assert parse(written(told), IDENTITY) == told


def test_a_status_becomes_a_resume() -> None:
    error = SinkPipelineError(Reason.CIRCUIT_OPEN, CIRCUIT.message, CIRCUIT.remedy)
    document = status(state=SinkState.FAILED, circuit_opened_at=OPENED_AT, error=error)
    document["sinks"][0]["circuit"]["configHash"] = "8f14e45f"

    found = from_status(document, IDENTITY, adopt=OWNER)

    assert found == resume(memories={"one": MEMORY}, circuits={"one": CIRCUIT}, adopt=OWNER)
    assert parse(written(found), IDENTITY) == found


def test_a_circuit_of_a_run_from_a_file_is_left_out() -> None:
    error = SinkPipelineError(Reason.CIRCUIT_OPEN, "m", "r")
    found = from_status(status(state=SinkState.FAILED, circuit_opened_at=OPENED_AT, error=error), IDENTITY)
    assert found == resume(memories={"one": MEMORY})


def test_only_a_circuit_of_the_current_configuration_stays_open() -> None:
    told = resume(circuits={"one": CIRCUIT, "two": OpenCircuit(opened_at=0, config_hash="older")})
    assert told.open_circuits("8f14e45f") == {"one": CIRCUIT}
    assert told.open_circuits("another") == {}
    assert told.open_circuits(None) == {}


def test_a_circuit_tells_what_opened_it() -> None:
    assert (CIRCUIT.error.reason, CIRCUIT.error.message) == (Reason.CIRCUIT_OPEN, "5 failures in a row")
    silent = OpenCircuit(opened_at=OPENED_AT, config_hash="h").error
    assert "2023-11-14T22:13:20Z" in silent.message
    assert "restartNonce" in silent.remedy


def test_an_error_of_another_reason_is_not_the_circuits() -> None:
    document = written(resume(circuits={"one": CIRCUIT}))
    document["sinks"][0]["error"]["reason"] = "BrokerUnreachable"
    assert parse(document, IDENTITY).circuits["one"].message == ""


EVERYTHING = resume(memories={"one": MEMORY}, circuits={"one": CIRCUIT}, adopt=OWNER)


@pytest.mark.parametrize("document", [None, [], "text", 1, {}, {"v": 1}, {"v": 1, "identity": IDENTITY}], ids=repr)
def test_what_is_no_resume_document_is_refused(document: object) -> None:
    assert refusal(document).reason is Reason.STATUS_FILE_INVALID


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": "1"},
        {"v": None},
        {"identity": "shop.others"},
        {"sinks": None},
        {"adopt": "c-2"},
        {"adopt": {"cluster": "c-2"}},
        {"adopt": {"cluster": "", "name": "n"}},
    ],
    ids=repr,
)
def test_a_wrong_part_is_refused(change: dict[str, Any]) -> None:
    assert refusal({**written(EVERYTHING), **change}).reason is Reason.STATUS_FILE_INVALID


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": 1},
        {"circuit": "open"},
        {"circuit": {"openedAt": "2023-11-14T22:13:20Z"}},
        {"circuit": {"configHash": "h"}},
        {"circuit": {"configHash": "h", "openedAt": "yesterday"}},
        {"circuit": {"configHash": "h", "openedAt": 1_700_000_000_000}},
        {"error": "text"},
        {"frontier": [{"topic": "a", "next": [-1]}]},
        {"epoch": None},
    ],
    ids=repr,
)
def test_a_wrong_sink_is_refused(change: dict[str, Any]) -> None:
    document = written(EVERYTHING)
    document["sinks"][0] |= change
    assert refusal(document).reason is Reason.STATUS_FILE_INVALID


def test_a_sink_that_is_there_twice_is_refused() -> None:
    document = written(EVERYTHING)
    document["sinks"] *= 2
    assert "one is there twice" in refusal(document).message


def refusal(document: object) -> SinkPipelineError:
    with pytest.raises(SinkPipelineError) as caught:
        parse(document, IDENTITY)
    return caught.value
