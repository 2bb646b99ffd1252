"""Dead letters while the world breaks: quotas, rights, brokers, time-outs; and any bytes in a record."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from servers.local_kafka import LocalKafka
from servers.tcp_proxy import Api, Fate, Way
from servers.waiting import Patience
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import HeadersUnreadable, InDoubt
from sinkpipeline.kafka.consumers import extent
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.source.reader import SourceReader
from sinkpipeline.sinks import transactional
from sinkpipeline.sinks.contract import RowBatch
from support.kafka import topics
from support.kafka.raw import limit_produce_rate, produce_raw
from support.kafka.topics import Whole
from support.sink.dead_letters import AT_MS, Lettered, records
from support.sink.one_sink import OneSink
from support.sink.starts import refusal
from support.waiting import wait_until
from support.worlds.faults import FaultyKafka, FaultySink
from support.worlds.secure import Right, SecureKafka
from support.worlds.secured_sink import Secured

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

COUNT = 12
RECENT = {"message.timestamp.before.max.ms": "3600000"}
both = pytest.mark.parametrize("exactly_once", [True, False], ids=["ExactlyOnce", "AtLeastOnce"])
on_failure = pytest.mark.parametrize("drop", [False, True], ids=["Stop", "DropAndContinue"])


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.05)


def but(count: int, *without: int) -> list[int]:
    return [n for n in range(count) if n not in without]


# Any bytes

NASTY = [
    None,
    b"",
    b"\0",
    b"\xff" * 10,
    b"\xef\xbb\xbf{}",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b'{"id":1}\0',
    b"\r\n\x1b[2J",
    bytes(range(256)),
    b"x" * 200_000,
]
NAMES = ["", "h", "ü ☃ 𝄞", "\x1b[2J", "x" * 1000, "sinkpipeline.dlq.version", "sinkpipeline.dlq.reason", "\ufeff"]
CONTENTS = st.sampled_from(NASTY) | st.none() | st.binary(max_size=300)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES) | TEXTS, CONTENTS), max_size=4)
RECORDS: st.SearchStrategy[Whole] = st.tuples(CONTENTS, CONTENTS, HEADERS, st.just(AT_MS))


# Many records in one batch: shrinking would make a transaction of each attempt.
@settings(max_examples=2, phases=[Phase.generate])
@given(st.lists(RECORDS, min_size=100, max_size=100))
def test_any_bytes_are_quoted_byte_for_byte(kafka: LocalKafka, found: list[Whole]) -> None:
    fixed: list[Whole] = [(value, key, [(name, key)], AT_MS) for value in NASTY for key in NASTY[:-1] for name in NAMES]
    everything = [*random.Random(1).sample(fixed, 300), *found]
    count = len(everything)
    # The first half as the rows have them, the second half read from the source again.
    task = Lettered(kafka.bootstrap_servers, everything, dead_config={"max.message.bytes": "3000000"})
    task.write(task.rows(range(count), bad=range(0, count, 2), astray=range(1, count, 2)))
    assert task.dead_offsets() == list(range(count))
    assert task.counts() == (count, 0, count, 0)


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_header_whose_name_is_no_text_stops_nobody(kafka: LocalKafka, exactly_once: bool) -> None:
    task = Lettered(kafka.bootstrap_servers, records(2), exactly_once=exactly_once)
    headers: list[tuple[bytes, bytes | None]] = [(b"before", b"1"), (b"a\xc3", b"2"), (b"behind", None)]
    produce_raw(task.servers, task.sink.source, [(b"\0\xff", b"key", headers), (None, None, headers)], timestamp=AT_MS)
    task.source += [(b"\0\xff", b"key", [], AT_MS), (None, None, [], AT_MS)]
    with closing(SourceReader(task.sink.connection, "g", task.at)) as reader, pytest.raises(HeadersUnreadable):
        reader.read(2)
    task.write(task.rows(range(4), astray=[1, 2, 3]))
    assert (task.delivered(), task.dead_offsets()) == ([0], [1, 2, 3])
    told = [letter.verdict.text for letter in task.dead()]
    assert told == ["7 of 1", *["7 of 1; a header's name is not UTF-8, so all are left out"] * 2]


def test_where_the_source_begins_is_asked_again_after_a_lost_connection_and_a_refusal_is_told(
    kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = OneSink(kafka.bootstrap_servers)
    topics.produce_numbers(sink.servers, sink.source, 10)
    topics.delete_records(sink.servers, sink.source, 5)
    errors = [KafkaError._TRANSPORT, KafkaError._TRANSPORT]

    def failing(*args: Any) -> tuple[int, int]:
        if errors:
            raise KafkaException(KafkaError(errors.pop()))
        return extent(*args)

    monkeypatch.setattr("sinkpipeline.kafka.source.reader.extent", failing)
    with closing(SourceReader(sink.connection, "g", SourcePartition(sink.source, 0))) as source:
        assert source.read(2) is None
        assert errors == []
        errors.append(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(SinkPipelineError, match=sink.source) as caught:
            source.read(1)
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED


# Where they stand, and where they go


def test_letters_of_a_key_keep_their_order_in_a_topic_of_several_partitions(kafka: LocalKafka) -> None:
    count = 60
    source: list[Whole] = [(b"%d" % n, b"key %d" % (n % 5), [], AT_MS) for n in range(count)]
    task = Lettered(kafka.bootstrap_servers, source, dead_partitions=3)
    task.write(task.rows(range(count), bad=range(0, count, 2), astray=range(1, count, 2)))
    assert task.dead_offsets() == list(range(count))
    found = topics.read_committed(task.servers, task.sink.dead)
    assert len({each.partition for each in found}) > 1
    for key in {each.key for each in found}:
        of_key = [each for each in found if each.key == key]
        assert len({each.partition for each in of_key}) == 1
        assert [int(each.text) for each in of_key] == sorted(int(each.text) for each in of_key)


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_record_that_was_compacted_away_has_no_letter(kafka: LocalKafka, exactly_once: bool) -> None:
    task = Lettered(kafka.bootstrap_servers, records(COUNT), exactly_once=exactly_once, drop=True)
    topics.alter_topic(task.servers, task.sink.source, {**topics.EAGERLY_COMPACTED})
    topics.produce(task.servers, task.sink.source, [(b"k4", b"newer")])
    topics.compact(task.servers, task.sink.source, without=b"v4")
    task.write(task.rows(range(COUNT), astray=[3, 4, 5]))
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 3, 4, 5), [3, 5])
    assert task.counts() == (COUNT, COUNT - 3, 2, 1)


def chunks(task: Lettered, count: int, **columns: object) -> Iterator[RowBatch]:
    """As Spark hands them over."""
    for begin in range(0, count, 5_000):
        offsets = range(begin, min(count, begin + 5_000))
        of_these = {
            name: {n: value for n, value in found.items() if n in offsets}  # type: ignore[attr-defined]
            for name, found in columns.items()
        }
        yield task.rows(offsets, **of_these)  # type: ignore[arg-type]


@pytest.mark.thorough("half a million rows; a poison row among few is in test_dead_letters")
def test_a_poison_row_among_half_a_million(kafka: LocalKafka) -> None:
    """One that is known before costs nothing; one that only the broker refuses, a transaction for each half."""
    count, known, poison = 500_000, 2_345, 12_345
    # The source has no more than what is read from it again.
    task = Lettered(kafka.bootstrap_servers, records(poison + 1), data_config=RECENT)
    topics.alter_topic(task.servers, task.sink.data, {"max.message.bytes": "900000"})
    began = time.monotonic()
    receipt = task.write(*chunks(task, count, timestamps={known: AT_MS}, values={poison: b"x" * 950_000}), end=count)
    print(f"{receipt.claims} claims, {receipt.commits} commits, {time.monotonic() - began:.1f} s")
    assert (task.dead_offsets(), task.delivered()) == ([known, poison], but(count, known, poison))
    assert task.counts() == (count, count - 2, 2, 0)
    assert receipt.claims <= 2 + 20


# A topic that is slow, or refuses


@contextmanager
def quota(servers: str, rate: float) -> Iterator[None]:
    limit_produce_rate(servers, "rdkafka", rate)
    try:
        yield
    finally:
        limit_produce_rate(servers, "rdkafka", None)


@pytest.mark.thorough("what an administrator changes meanwhile")
def test_a_quota_slows_letters_down_and_loses_none(kafka: LocalKafka) -> None:
    count = 150
    source: list[Whole] = [(b"%d " % n + random.Random(n).randbytes(10_000), None, [], AT_MS) for n in range(count)]
    task = Lettered(kafka.bootstrap_servers, source)
    with quota(task.servers, 100_000):
        task.write(task.rows(range(count), bad=range(0, count, 2), astray=range(1, count, 2)))
    assert task.dead_offsets() == list(range(count))
    assert task.counts() == (count, 0, count, 0)


def test_a_broker_that_is_too_slow_for_large_transactions_gets_smaller_ones(
    kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried again as it was, a transaction that a quota does not let through in its time would never come through."""
    count, most = 6_000, 1_500
    task = Lettered(kafka.bootstrap_servers, records(count))
    writer = task.writer()
    real = TransactionalProducer.commit

    def commit(producer: TransactionalProducer, *more: float) -> None:
        if task.sink.data in producer._deliveries.topics and writer._open.handled > most:
            producer.abort()
            raise InDoubt("timed out", aborted=True)
        real(producer, *more)

    monkeypatch.setattr(TransactionalProducer, "commit", commit)
    writer.write(task.rows(range(count), bad=range(0, count, 100)))
    writer.finish()
    receipt = writer.receipt()
    assert (receipt.claims, receipt.commits) == (3, 4)
    assert task.dead_offsets() == list(range(0, count, 100))
    assert task.counts() == (count, count * 99 // 100, count // 100, 0)


# Rights


@pytest.fixture
def secured(secure_kafka: SecureKafka, tmp_path: Path) -> Secured:
    return Secured(servers=secure_kafka.bootstrap_servers, kafka=secure_kafka, directory=tmp_path)


@both
@on_failure
@pytest.mark.thorough("what an administrator changes meanwhile")
def test_a_right_that_is_revoked_between_the_look_and_the_commit(
    secured: Secured, exactly_once: bool, drop: bool
) -> None:
    def right(operation: AclOperation) -> Right:
        return Right(ResourceType.TOPIC, secured.dead, operation, ResourcePatternType.LITERAL)

    writing = right(AclOperation.WRITE)
    idempotent = Right(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE, ResourcePatternType.LITERAL)
    secured.grant(secured.rights("run", creating=True))
    secured.grant([writing, idempotent, *map(right, (AclOperation.DESCRIBE_CONFIGS, AclOperation.CREATE))])
    secured.grant([right(AclOperation.DESCRIBE)])
    task = Lettered(secured.servers, records(COUNT), exactly_once=exactly_once, drop=drop, given=secured)
    writer = task.writer()
    writer.write(task.rows(range(4), bad=[1]))
    secured.revoke([writing])

    def go_on() -> None:
        writer.write(task.rows(range(4, COUNT), bad=[6]))
        writer.finish()

    if drop:
        go_on()
    else:
        error = refusal(go_on, Reason.DEAD_LETTER_FAILED)
        assert f"Write on topic {secured.dead} is not granted" in error.message
    task.take(writer.receipt())
    secured.grant([writing])
    if not drop:
        task.start()
        task.write(task.rows(range(task.state.next, COUNT), bad=[n for n in (1, 6) if n >= task.state.next]))
    _, rows, dead, dropped = task.counts()
    assert task.delivered() == but(COUNT, 1, 6)
    assert (rows, dead + dropped) == (COUNT - 2, 2)
    # AtLeastOnce sends again what was open, so one that it counts as dropped may have arrived before.
    assert len(task.dead_offsets()) == dead or not exactly_once
    assert len(task.dead_offsets()) >= dead
    assert dropped == 0 or drop


# Brokers


PHASES = ((Api.PRODUCE, Way.ANSWERS), (Api.END_TXN, Way.REQUESTS), (Api.END_TXN, Way.ANSWERS))


def patiently(task: Lettered, bad: list[int], astray: list[int]) -> None:
    """As a driver does: what may pass by itself is tried again, by a start."""
    patience = Patience(90)
    while task.state.next < COUNT:
        offsets = range(task.state.next, COUNT)
        try:
            task.write(
                task.rows(offsets, bad=[n for n in bad if n in offsets], astray=[n for n in astray if n in offsets])
            )
        except SinkPipelineError as error:
            if not error.reason.retry or patience.is_over():
                raise
            restart(task, patience)


def restart(task: Lettered, patience: Patience) -> None:
    while True:
        try:
            task.start()
        except SinkPipelineError as error:
            if not error.reason.retry or patience.is_over():
                raise
        else:
            return


@pytest.mark.usefixtures("short_requests")
@pytest.mark.parametrize("dies", [True, False], ids=["dies", "stands still"])
@pytest.mark.thorough("takes a broker down in each phase; one of the dearest")
def test_a_broker_that_goes_between_letter_and_commit(faulty: FaultyKafka, dies: bool) -> None:
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(8))
        stack.callback(faulty.heal)
        kinds = [*[True] * len(PHASES), False]
        tasks = [
            Lettered(
                faulty.direct,
                records(COUNT),
                exactly_once=kind,
                given=FaultySink(faulty.direct, proxied=faulty.servers),
            )
            for kind in kinds
        ]
        traps = []
        for task, (api, way) in zip(tasks, [*PHASES, PHASES[0]], strict=True):
            name = task.sink.dead if api is Api.PRODUCE else task.sink.id.partition_id(task.at)
            trap = faulty.proxy.trap(api, way, held=True, containing=name.encode())
            traps.append(stack.enter_context(trap))
        done = [pool.submit(patiently, task, [1, 11], [4, 7]) for task in tasks]
        for trap in traps:
            trap.wait()
        if dies:
            faulty.kafka.kill_broker(1)
            for trap in traps:
                trap.release(Fate.CUT)
            faulty.kafka.start_broker(1)
        else:
            faulty.kafka.pause_broker(1)
            before = faulty.proxy.seen[Api.API_VERSIONS]
            wait_until(lambda: faulty.proxy.seen[Api.API_VERSIONS] > before + 10, "clients have come again")
            for trap in traps:
                trap.release(Fate.FORWARDED)
            faulty.kafka.resume_broker(1)
        for each in done:
            each.result(120)
        for task in tasks:
            assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 1, 4, 7, 11), [1, 4, 7, 11])
            assert task.counts() == (COUNT, COUNT - 4, 4, 0)


@pytest.mark.usefixtures("short_transactions")
@pytest.mark.thorough("waits for time-outs")
def test_transactions_that_time_out_while_a_refused_row_is_looked_for(
    kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Lettered(kafka.bootstrap_servers, records(16))
    topics.alter_topic(task.servers, task.sink.data, RECENT)
    real, seen = TransactionalProducer.commit, iter(range(100))

    def commit(producer: TransactionalProducer, *more: float) -> None:
        if next(seen) in (1, 3, 6):
            producer._producer.flush(topics.DEADLINE_S)
            topics.wait_until_settled(task.servers, task.sink.data)
        real(producer, *more)

    monkeypatch.setattr(TransactionalProducer, "commit", commit)
    task.write(task.rows(range(16), bad=[2], timestamps={5: AT_MS, 11: AT_MS}))
    assert (task.dead_offsets(), task.delivered()) == ([2, 5, 11], but(16, 2, 5, 11))
    assert task.counts() == (16, 13, 3, 0)
    assert next(seen) > 7
