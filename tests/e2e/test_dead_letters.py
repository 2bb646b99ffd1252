"""100,000 records of which some are bad in every way, killed at random: one end each, judged from outside."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.deadletter import DeadLetter, parse
from support.app.command import App, Run, manifest, sink
from support.kafka import topics
from support.kafka.raw import RawRecord, produce_raw
from support.kafka.topics import Whole

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(600)]

SEED = 20261122
COUNT = 100_000
PARTITIONS = 4
BAD, FILTERED = 0.01, 0.01
KILLS = 2
LATE = 2
"""Records that only the broker refuses: each is looked for by halves."""
HUGE = 6
"""Records too large for counted Arrow batches, all near the end: each run that meets one starts its sink again."""

SCHEMA = "id BIGINT NOT NULL, p INT, h STRING, n INT, ts BIGINT, plus BIGINT, by INT, keep INT"
SELECT = {
    "value": "IF(n IS NULL, CAST((id + COALESCE(plus, 0)) DIV COALESCE(`by`, 1) AS STRING), repeat('x', n))",
    "partition": "p",
    "headers": "IF(h IS NULL, CAST(map() AS MAP<STRING, STRING>), map(h, 'x'))",
    "timestamp": "ts",
}
WHERE = "id >= 0 AND 1 DIV COALESCE(keep, 1) = 1"
CONFIG = {"max.message.bytes": "12000", "message.timestamp.before.max.ms": "14400000"}
LOWER = {"message.timestamp.before.max.ms": "7200000"}
"""While it runs: until the next start nobody knows but the broker."""
BETWEEN_MS = 10_800_000

Make = Callable[[random.Random], bytes | None]


def one_of(*values: bytes) -> Make:
    return lambda chance: chance.choice(values)


KINDS: list[tuple[set[str], Make]] = [
    ({"MalformedJson"}, one_of(b"not json", b"", b"{", b"[]", b'{"id":1} {"id":2}', b'{"id":1}\0', b"\0", b"null x")),
    ({"MalformedJson", "InvalidUtf8"}, lambda chance: b"\xff" + chance.randbytes(chance.choice([1, 30, 300]))),
    ({"InvalidUtf8"}, one_of(b'{"id":1,"h":"\xff"}', b'{"id":1,"h":"\xed\xa0\x80"}', b'{"id":1,"h":"\xc0\xaf"}')),
    ({"WrongType"}, one_of(b'{"id":"one"}', b'{"id":1.5}', b'{"id":1,"n":[]}', b'{"id":9223372036854775808}')),
    ({"MissingField"}, one_of(b'{"p":0}', b"{}", b'{"id":null}')),
    ({"NullValue"}, lambda _: None),
    ({"EvaluationFailed"}, one_of(b'{"id":1,"plus":9223372036854775807}', b'{"id":1,"by":0}', b'{"id":1,"keep":0}')),
    ({"PartitionOutOfRange"}, one_of(b'{"id":1,"p":99}', b'{"id":1,"p":-2}', b'{"id":1,"p":2147483647}')),
    ({"InvalidHeader"}, one_of(b'{"id":1,"h":"a\\u0000b"}')),
    ({"RecordTooLarge"}, one_of(b'{"id":1,"n":13000}')),
    ({"InvalidTimestamp"}, one_of(b'{"id":1,"ts":1000}', b'{"id":1,"ts":-5}', b'{"id":1,"ts":9999999999999}')),
]
HUGE_KINDS: list[tuple[set[str], Make]] = [
    ({"MalformedJson", "InvalidUtf8"}, lambda chance: b"\xff" + chance.randbytes(200_000)),
    ({"RecordTooLarge"}, one_of(b'{"id":1,"n":30000}', b'{"id":1,"n":2000000}')),
]


@dataclass
class World:
    """What is in the source, and what has to become of it."""

    seed: int
    good: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By source partition, in order."""
    bad: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    """The error classes that each bad record may be told to have, by partition and offset."""
    records: dict[int, list[Whole]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        chance, now = random.Random(self.seed), int(time.time() * 1000)
        late = {chance.randrange(COUNT // 20) for _ in range(LATE)}
        huge = {chance.randrange(COUNT * 19 // 20, COUNT) for _ in range(HUGE)}
        for number in range(COUNT):
            at = chance.randrange(PARTITIONS)
            fate = chance.random()
            value: bytes | None
            if number in late:
                value = b'{"id":1,"p":%d,"ts":%d}' % (at, now - BETWEEN_MS)
                self.bad[at, len(self.records[at])] = {"InvalidTimestamp"}
            elif number in huge or fate < BAD:
                classes, make = chance.choice(HUGE_KINDS if number in huge else KINDS)
                value = make(chance)
                self.bad[at, len(self.records[at])] = classes
            elif fate < BAD + FILTERED:
                value = b'{"id":-1}'
            else:
                value = json.dumps({"id": number, "p": at}).encode()
                self.good[at].append(number)
            self.records[at].append((value, self._key(chance, number), self._headers(chance), now))

    @staticmethod
    def _key(chance: random.Random, number: int) -> bytes | None:
        odd = [None, b"", b"\0", b"\xff\xfe", chance.randbytes(200)]
        return b"k%d" % number if chance.random() < 0.9 else chance.choice(odd)

    @staticmethod
    def _headers(chance: random.Random) -> list[tuple[str, bytes | None]]:
        if chance.random() < 0.9:
            return []
        names = ["h", "h", "", "ü ☃", "sinkpipeline.dlq.version", "x" * 300]
        return [
            (chance.choice(names), chance.choice([None, b"", b"\0\xff", chance.randbytes(20)]))
            for _ in range(chance.randrange(1, 4))
        ]

    def feed(self, servers: str, topic: str) -> None:
        topics.create_topic(servers, topic, partitions=PARTITIONS, config={"retention.ms": "-1"})
        for partition, found in self.records.items():
            topics.produce_whole(servers, topic, found, partition=partition)
        # Header names that are no text, as only foreign clients can write them.
        names: list[tuple[bytes, bytes | None]] = [(b"\xff\xfe", b"1"), (b"a\0b", b"2"), (b"", None)]
        strange: list[RawRecord] = [(b"no json", b"k", names), (b'{"id":1,"p":99}', b"k", names)]
        strange.append((b'{"id":%d,"p":0}' % COUNT, b"k", names))
        now = int(time.time() * 1000)
        produce_raw(servers, topic, strange, timestamp=now)
        end = len(self.records[0])
        self.bad |= {(0, end): {"MalformedJson"}, (0, end + 1): {"PartitionOutOfRange"}}
        self.good[0].append(COUNT)
        self.records[0] += [(value, key, [], now) for value, key, _ in strange]

    def judge_letter(self, letter: DeadLetter) -> None:
        at = letter.record.partition.partition, letter.record.offset
        value, key, headers, timestamp = self.records[at[0]][at[1]]
        found = (letter.record.value, letter.record.key, letter.record.timestamp)
        assert found == (value, key, timestamp), f"{at}: the record, byte for byte"
        assert self._is_strange(at) or (letter.record.headers or []) == headers, f"{at}: its headers"
        assert letter.verdict.error_class.value in self.bad[at], f"{at}: {letter.verdict}"

    def _is_strange(self, at: tuple[int, int]) -> bool:
        return at[0] == 0 and at[1] >= len(self.records[0]) - 3


def until_more_is_written(run: Run, servers: str, topic: str, rows: int) -> None:
    """More rows than that, committed or not: so that a kill finds a transaction in its middle."""

    def written() -> int:
        return sum(topics.offsets(servers, topic, partition)[1] for partition in range(PARTITIONS))

    run.eventually(lambda: topics.topic_id(servers, topic), f"{topic} is there")
    target = written() + rows
    run.eventually(lambda: written() >= target, f"{target} rows are written", 180)


def difference(partition: int, found: list[int], good: list[int]) -> str:
    """What is wrong with the good records, which are too many to be shown."""
    counts = Counter(found)
    twice = [each for each, count in counts.items() if count > 1]
    missing = sorted(set(good) - set(found))
    first = next((at for at, (a, b) in enumerate(zip(found, good, strict=False)) if a != b), min(len(found), len(good)))
    return (
        f"partition {partition}: each good record once, in order: {len(found)} of {len(good)}, {len(missing)} are "
        f"missing ({missing[:3]} to {missing[-3:]}), {len(twice)} are there twice ({twice[:3]} to {twice[-3:]}); "
        f"from the {first}th on {found[first : first + 5]} for {good[first : first + 5]}"
    )


@pytest.mark.thorough("100,000 rows and several starts of Spark; few rows are in test_redrive")
def test_every_record_has_one_end_however_often_the_driver_is_killed(kafka: LocalKafka, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    name, servers = topics.unique("dlq"), kafka.bootstrap_servers
    source, data, dead = f"{name}-in", f"{name}-out", f"{name}-dead"
    world, chance = World(SEED), random.Random(SEED)
    assert {kind for found in world.bad.values() for kind in found} == {kind for kinds, _ in KINDS for kind in kinds}
    world.feed(servers, source)
    letters = {"topic": {"name": dead, "partitions": 2, "replicationFactor": 1, "config": {"retention.ms": "-1"}}}
    document: dict[str, Any] = manifest(
        servers,
        name,
        [source],
        decode={"format": "json", "schema": SCHEMA},
        transform={"where": WHERE, "select": SELECT},
        trigger={"interval": "0s", "maxOffsetsPerTrigger": 10_000},
        sinks=[{**sink(name), "deadLetter": letters}],
    )
    topic = document["spec"]["sinks"][0]["kafka"]["topic"]
    topic |= {"partitions": PARTITIONS, "config": CONFIG}
    app = App(tmp_path, document)

    for number in range(KILLS):
        with app.start() as run:
            if number == 0:
                app.arm("after-init")
                run.until_held("after-init")
                topics.alter_topic(servers, data, LOWER)
                topics.until_too_old(servers, data, int(time.time() * 1000) - BETWEEN_MS)
                app.release("after-init")
            until_more_is_written(run, servers, data, chance.randrange(3_000, 30_000))
            run.kill()
    app.run_until_idle()

    delivered: dict[int, list[int]] = defaultdict(list)
    for record in topics.read_committed(servers, data):
        delivered[record.partition].append(int(record.text))
    for partition, good in world.good.items():
        assert delivered[partition] == good, difference(partition, delivered[partition], good)
    found = [parse(each.value, each.key, list(each.headers)) for each in topics.read_committed(servers, dead)]
    places = sorted((each.record.partition.partition, each.record.offset) for each in found)
    assert places == sorted(world.bad), "each bad record once, and no other"
    for letter in found:
        world.judge_letter(letter)
    totals = app.status()["totals"]
    rows = sum(map(len, world.good.values()))
    assert (totals["rowsDelivered"], totals["deadLettered"], totals["dropped"]) == (rows, len(found), 0)
    classes = Counter(letter.verdict.error_class.value for letter in found)
    assert {each["class"]: each["count"] for each in app.sink_status()["deadLetters"]} == classes
    shown = app.call("progress", "-f", str(app.manifest)).stdout
    table = shown.partition("CLASS")[2].partition("\n\n")[0].splitlines()[1:]
    assert {line.split()[2]: int(line.split()[3]) for line in table} == classes
