from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SENTINEL_KEY, SinkId, SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress, advance, check, check_not_removed
from sinkpipeline.core.progress_records import (
    ProgressFold,
    encode,
    encode_meta,
    encode_partition,
    encode_sentinel,
    is_sentinel,
)
from sinkpipeline.core.removal import newest_metas
from sinkpipeline.core.starting import overlay
from sinkpipeline.core.tally import checked
from support.sink.progresses import partition_progresses

SINK = SinkId("shop.orders", "enriched")
OTHER = SinkId("shop.orders", "enriched2")
P0, P1 = SourcePartition("raw", 0), SourcePartition("raw", 1)
OWNER = Owner(cluster="c-1", name="shop/orders")

Log = Sequence[tuple[str | None, bytes | None]]

counts = st.integers(0, 2**63 - 1)
words = st.text(min_size=1, max_size=8)
by_word = st.dictionaries(st.sampled_from([*"AbcdE", "WrongType"]), counts, max_size=4)
partition_states = partition_progresses(counts, counts, st.just(()) | st.builds(checked, by_word, by_word))
metas = st.builds(
    Meta,
    epoch=counts,
    run=words,
    owner=st.builds(Owner, cluster=words, name=words),
    partitions=st.none() | st.dictionaries(words, counts, max_size=3),
    source=st.dictionaries(words, words, max_size=3),
    data=st.none() | words,
    progress=st.none() | words,
)


def meta(partitions: dict[str, int] | None, *, epoch: int = 0, run: str = "r") -> Meta:
    return Meta(epoch=epoch, run=run, owner=OWNER, partitions=partitions)


def at(offset: int, *, epoch: int = 0) -> PartitionProgress:
    return PartitionProgress(epoch=epoch, next=offset)


def fold(log: Log, sink: SinkId = SINK) -> Progress:
    folded = ProgressFold(sink)
    for offset, (key, value) in enumerate(log):
        folded.apply(None if key is None else key.encode(), value, offset)
    return folded.result(len(log))


def p(partition: SourcePartition, state: PartitionProgress | None, sink: SinkId = SINK) -> tuple[str, bytes | None]:
    return sink.partition_key(partition), None if state is None else encode_partition(state)


def m(value: Meta | None, sink: SinkId = SINK) -> tuple[str, bytes | None]:
    return sink.meta_key, None if value is None else encode_meta(value)


def refusal(log: Log) -> SinkPipelineError:
    with pytest.raises(SinkPipelineError) as caught:
        fold(log)
    return caught.value


def test_wire_format_is_that_of_the_design() -> None:
    state = PartitionProgress(epoch=0, next=120, rows=118, dead=2, dropped=0, lost=0, at=1700000000000)
    assert encode_partition(state) == (
        b'{"v":1,"epoch":0,"next":120,"rows":118,"dead":2,"dropped":0,"lost":0,"at":1700000000000}'
    )
    by_class = checked({"InvalidUtf8": 1, "WrongType": 1}, {"RecordTooLarge": 3})
    assert encode_partition(replace(state, by_class=by_class)) == (
        b'{"v":1,"epoch":0,"next":120,"rows":118,"dead":2,"dropped":0,"lost":0,"at":1700000000000,'
        b'"deadByClass":{"InvalidUtf8":1,"WrongType":1},"droppedByClass":{"RecordTooLarge":3}}'
    )
    full = Meta(
        epoch=0, run="r-1", owner=OWNER, partitions={"raw": 3}, source={"raw": "id-s"}, data="id-d", progress="id-p"
    )
    assert encode_meta(full) == (
        b'{"v":1,"epoch":0,"run":"r-1","owner":{"cluster":"c-1","name":"shop/orders"},"partitions":{"raw":3},'
        b'"source":{"raw":"id-s"},"data":"id-d","progress":"id-p"}'
    )
    assert encode_sentinel("n-1") == b'{"v":1,"nonce":"n-1"}'


@given(partition_states)
def test_a_partition_record_is_read_back(state: PartitionProgress) -> None:
    assert fold([p(P0, state)]).partitions == {P0: state}


@given(partition_states)
def test_a_release_that_knows_no_classes_reads_the_rest(state: PartitionProgress) -> None:
    """It takes the fields that it knows; what it writes is read without classes."""
    document = json.loads(encode_partition(state))
    old = {name: document[name] for name in ("v", "epoch", "next", "rows", "dead", "dropped", "lost", "at")}
    found = fold([(SINK.partition_key(P0), json.dumps(old).encode())]).partitions[P0]
    assert found == replace(state, by_class=())


@given(partition_states)
def test_a_partition_s_progress_travels_and_is_a_key(state: PartitionProgress) -> None:
    assert pickle.loads(pickle.dumps(state)) == state
    assert {state: 1}[copy.deepcopy(state)] == 1


def test_a_class_that_is_not_known_is_kept() -> None:
    value = encode_partition(at(1)).replace(b'"at":0', b'"at":0,"deadByClass":{"FromTheFuture":7}')
    found = fold([(SINK.partition_key(P0), value)]).partitions[P0]
    assert found.by_class == checked({"FromTheFuture": 7})
    assert encode_partition(advance(found, to=5, at=0)) == value.replace(b'"next":1', b'"next":5')


@pytest.mark.parametrize("name", ["deadByClass", "droppedByClass"])
@pytest.mark.parametrize("value", [b"null", b"[]", b"1", b'{"WrongType":-1}', b'{"WrongType":"1"}', b'{"no word":1}'])
def test_what_are_no_counts_by_class_is_corrupt(name: str, value: bytes) -> None:
    record = encode_partition(at(1)).replace(b'"at":0', b'"at":0,"%b":%b' % (name.encode(), value))
    error = refusal([(SINK.partition_key(P0), record)])
    assert error.reason is Reason.PROGRESS_CORRUPT
    assert name in error.message


@given(metas)
def test_a_meta_record_is_read_back(value: Meta) -> None:
    assert fold([m(value)]).meta == value


@given(words, words)
def test_a_sentinel_is_known_by_its_nonce(nonce: str, other: str) -> None:
    key = SENTINEL_KEY.encode()
    assert is_sentinel(key, encode_sentinel(nonce), nonce)
    assert is_sentinel(key, encode_sentinel(other), nonce) == (nonce == other)
    assert not is_sentinel(key, None, nonce)
    assert not is_sentinel(key + b"x", encode_sentinel(nonce), nonce)
    assert not is_sentinel(None, encode_sentinel(nonce), nonce)


def test_all_records_of_a_sink_are_encoded_with_meta_last() -> None:
    progress = Progress(meta=meta({"raw": 2}), partitions={P1: at(5), P0: at(3)})
    assert encode(SINK, progress) == [p(P0, at(3)), p(P1, at(5)), m(meta({"raw": 2}))]
    assert encode(SINK, Progress()) == []


FOLDS: dict[str, tuple[Log, Progress]] = {
    "nothing": ([], Progress(end=0)),
    "the last of each key wins": (
        [p(P0, at(1)), p(P1, at(7)), m(meta(None)), p(P0, at(2)), m(meta({"raw": 2}))],
        Progress(meta=meta({"raw": 2}), partitions={P0: at(2), P1: at(7)}, end=5),
    ),
    "the same again": ([p(P0, at(1)), p(P0, at(1))], Progress(partitions={P0: at(1)}, end=2)),
    "another epoch may move back": (
        [p(P0, at(9)), p(P0, at(1, epoch=1))],
        Progress(partitions={P0: at(1, epoch=1)}, end=2),
    ),
    "a tombstone removes its key": (
        [m(meta({"raw": 1})), p(P0, at(1)), p(P1, at(1)), p(P0, None), m(None)],
        Progress(partitions={P1: at(1)}, end=5),
    ),
    "after a tombstone anything goes": (
        [p(P0, at(9)), p(P0, None), p(P0, at(1))],
        Progress(partitions={P0: at(1)}, end=3),
    ),
    "a tombstone of nothing": ([p(P0, None), m(None)], Progress(end=2)),
    "what belongs to others": (
        [
            (SENTINEL_KEY, encode_sentinel("n")),
            (SENTINEL_KEY, b"not even JSON"),
            p(P0, at(5), OTHER),
            m(meta(None), OTHER),
            (OTHER.prefix + "new", b"?"),
            ("filler", b"?"),
            (None, b"?"),
            (None, None),
            ("sinkpipeline/v2/shop.orders/enriched/meta", b"?"),
        ],
        Progress(end=9),
    ),
}


@pytest.mark.parametrize("name", FOLDS)
def test_fold(name: str) -> None:
    log, expected = FOLDS[name]
    assert fold(log) == expected


def test_a_frontier_that_moves_back_is_refused_with_the_facts() -> None:
    error = refusal([p(P0, at(120)), p(P1, at(1)), p(P0, at(119))])
    assert error.reason is Reason.PROGRESS_REGRESSED
    for fact in ("raw-0", "120", "119", "offset 2"):
        assert fact in error.message


GOOD_PARTITION: dict[str, Any] = json.loads(encode_partition(at(1)))
GOOD_META: dict[str, Any] = json.loads(encode_meta(meta({"raw": 1})))


@pytest.mark.parametrize("version", [2, 0, "1", None, True, 1.5, []], ids=repr)
@pytest.mark.parametrize(("key", "good"), [(SINK.partition_key(P0), GOOD_PARTITION), (SINK.meta_key, GOOD_META)])
def test_an_unknown_version_is_refused_and_never_guessed(key: str, good: dict[str, Any], version: object) -> None:
    document = {**good, "v": version}
    assert refusal([(key, json.dumps(document).encode())]).reason is Reason.PROGRESS_VERSION_UNKNOWN
    del document["v"]
    assert refusal([(key, json.dumps(document).encode())]).reason is Reason.PROGRESS_VERSION_UNKNOWN


TOO_DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "value", [b"", b"{", b"[]", b"1", b"null", b'"text"', b"\xff", TOO_DEEP], ids=lambda value: repr(value[:10])
)
@pytest.mark.parametrize("key", [SINK.partition_key(P0), SINK.meta_key])
def test_what_is_no_json_object_is_corrupt(key: str, value: bytes) -> None:
    assert refusal([(key, value)]).reason is Reason.PROGRESS_CORRUPT


@pytest.mark.parametrize("wrong", [-1, 1.0, "1", None, True, [], "absent"], ids=repr)
@pytest.mark.parametrize("name", ["epoch", "next", "rows", "dead", "dropped", "lost", "at"])
def test_what_is_no_count_is_corrupt(name: str, wrong: object) -> None:
    document = {key: value for key, value in {**GOOD_PARTITION, name: wrong}.items() if value != "absent"}
    assert refusal([(SINK.partition_key(P0), json.dumps(document).encode())]).reason is Reason.PROGRESS_CORRUPT


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": None},
        {"epoch": -1},
        {"run": None},
        {"run": ""},
        {"run": 1},
        {"owner": None},
        {"owner": "shop/orders"},
        {"owner": {"cluster": "c"}},
        {"owner": {"cluster": "", "name": "n"}},
        {"owner": {"cluster": "c", "name": 1}},
        {"partitions": []},
        {"partitions": {"raw": -1}},
        {"partitions": {"raw": "2"}},
        {"partitions": {"raw": True}},
        {"source": None},
        {"source": {"raw": None}},
        {"data": 1},
        {"progress": []},
    ],
    ids=repr,
)
def test_a_meta_record_of_the_wrong_shape_is_corrupt(change: dict[str, object]) -> None:
    assert refusal([(SINK.meta_key, json.dumps({**GOOD_META, **change}).encode())]).reason is Reason.PROGRESS_CORRUPT


@pytest.mark.parametrize("rest", ["", "x", "p/raw", "p/raw/x", "p//0", "meta/x"])
def test_an_unknown_key_below_our_prefix_is_corrupt(rest: str) -> None:
    assert refusal([(SINK.prefix + rest, encode_partition(at(1)))]).reason is Reason.PROGRESS_CORRUPT


CORRUPT: dict[str, Progress] = {
    "p/ without meta": Progress(partitions={P0: at(1)}),
    "p/ below a meta without partitions": Progress(meta=meta(None), partitions={P0: at(1)}),
    "a partition of meta without p/": Progress(meta=meta({"raw": 2}), partitions={P0: at(1)}),
    "no p/ at all": Progress(meta=meta({"raw": 1})),
    "p/ beyond meta": Progress(meta=meta({"raw": 1}), partitions={P0: at(1), P1: at(1)}),
    "p/ of a topic that meta doesn't list": Progress(
        meta=meta({"raw": 1}), partitions={P0: at(1), SourcePartition("other", 0): at(1)}
    ),
    "an older epoch": Progress(meta=meta({"raw": 2}, epoch=1), partitions={P0: at(1, epoch=1), P1: at(1)}),
    "a newer epoch": Progress(meta=meta({"raw": 1}), partitions={P0: at(1, epoch=1)}),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_progress_that_contradicts_itself_is_refused(name: str) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        check(CORRUPT[name])
    assert caught.value.reason is Reason.PROGRESS_CORRUPT
    assert "sinkpipeline reset" in caught.value.remedy


@pytest.mark.parametrize(
    ("progress", "exists", "complete"),
    [
        (Progress(), False, False),
        (Progress(meta=meta(None)), False, False),
        (Progress(meta=meta({})), True, True),
        (Progress(meta=meta({"raw": 2}), partitions={P0: at(1), P1: at(0)}), True, True),
    ],
    ids=["nothing", "announced only", "no source topics", "both partitions"],
)
def test_sound_progress(progress: Progress, exists: bool, complete: bool) -> None:
    check(progress)
    assert (progress.exists, progress.complete) == (exists, complete)


def test_incomplete_progress_exists_but_is_not_complete() -> None:
    partial = CORRUPT["a partition of meta without p/"]
    assert (partial.exists, partial.complete) == (True, False)


def test_rows_are_those_of_all_partitions() -> None:
    states = {P0: PartitionProgress(epoch=0, next=9, rows=4), P1: PartitionProgress(epoch=0, next=9, rows=3)}
    assert Progress(partitions=states).rows == 7


def test_advance_keeps_the_counts() -> None:
    classes = checked({"WrongType": 1}, {"NullValue": 1})
    state = PartitionProgress(epoch=2, next=5, rows=3, dead=1, dropped=1, lost=2, at=1, by_class=classes)
    assert advance(state, to=9, at=7, lost=4) == PartitionProgress(
        epoch=2, next=9, rows=3, dead=1, dropped=1, lost=6, at=7, by_class=classes
    )
    assert advance(state, to=5, at=1) == state
    with pytest.raises(ValueError, match="back from 5 to 4"):
        advance(state, to=4, at=7)


@st.composite
def legal_logs(draw: st.DrawFn) -> list[tuple[str | None, bytes | None]]:
    """What drivers and tasks may write: frontiers that only move forward, metas, and records of others."""
    frontier = dict.fromkeys((P0, P1, SourcePartition("other", 0)), 0)
    log: list[tuple[str | None, bytes | None]] = []
    for kind in draw(st.lists(st.sampled_from(["p", "meta", "sentinel", "other"]), max_size=12)):
        if kind == "p":
            partition = draw(st.sampled_from(sorted(frontier)))
            frontier[partition] += draw(st.integers(0, 3))
            log.append(p(partition, at(frontier[partition])))
        elif kind == "meta":
            log.append(m(meta(draw(st.sampled_from([None, {"raw": 1}, {"raw": 2}])), run=draw(st.sampled_from("ab")))))
        elif kind == "sentinel":
            log.append((SENTINEL_KEY, encode_sentinel("n")))
        else:
            log.append(p(P0, at(draw(st.integers(0, 9))), OTHER))
    return log


@given(legal_logs(), st.data())
def test_a_log_read_in_two_parts_is_the_log(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    suffix = ProgressFold(SINK)
    for offset, (key, value) in enumerate(log[cut:], cut):
        suffix.apply(None if key is None else key.encode(), value, offset)
    assert overlay(fold(log[:cut]), suffix.result(len(log))) == fold(log)


@given(legal_logs(), st.integers(0, 12))
def test_a_suffix_that_holds_every_key_is_the_truth(log: Log, cut: int) -> None:
    suffix, whole = fold(log[cut:]), fold(log)
    if suffix.complete and whole.meta is not None:
        assert suffix.meta == whole.meta
        for partition in whole.meta.source_partitions():
            assert suffix.partitions[partition] == whole.partitions[partition]


def test_a_result_does_not_change_when_the_fold_goes_on() -> None:
    folded = ProgressFold(SINK)
    folded.apply(SINK.partition_key(P0).encode(), encode_partition(at(1)), 0)
    before = folded.result(1)
    folded.apply(SINK.partition_key(P0).encode(), encode_partition(at(2)), 1)
    assert before.partitions == MappingProxyType({P0: at(1)})


def test_a_removed_key_is_not_no_news() -> None:
    known, tail = fold([m(meta({"raw": 1})), p(P0, at(3))]), fold([p(P1, at(1)), p(P0, at(5)), p(P0, None)])
    with pytest.raises(SinkPipelineError, match="removed by a tombstone") as caught:
        check_not_removed(tail, [P0])
    assert caught.value.reason is Reason.PROGRESS_CORRUPT
    check_not_removed(tail, [P1])
    # Neither the old value nor the beginning.
    assert P0 not in overlay(known, tail).partitions
    assert overlay(overlay(known, tail), fold([p(P0, at(6))])).removed == frozenset()


def test_the_newest_meta_of_every_sink_is_found() -> None:
    """Also one of a newer release, of which nothing else is known."""
    one, two, three = (SinkId(name, "out") for name in ("a", "b", "c"))
    owner = Owner(cluster="c", name="n")
    old, new = (Meta(epoch=epoch, run="r", owner=owner, partitions={}) for epoch in (1, 2))
    records = [
        (one.meta_key.encode(), encode_meta(old), 0),
        (one.meta_key.encode(), encode_meta(new), 1),
        (one.partition_key(SourcePartition("t", 0)).encode(), b"{}", 2),
        (two.meta_key.encode(), encode_meta(old), 3),
        (two.meta_key.encode(), None, 4),
        (three.meta_key.encode(), b'{"v":2}', 5),
        (b"sinkpipeline/v1/sentinel", b"{}", 6),
        (None, b"{}", 7),
    ]
    assert newest_metas(records) == {one.meta_key: new, three.meta_key: None}
