"""The table of causes against the client: what the producers are told while a cluster answers with an error."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from sinkpipeline.core.causes import TABLE
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.kafka import connection, producers
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from support.kafka.mock_cluster import ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID, PRODUCE, MockCluster

NUMBERS = {name: number for name, number in vars(KafkaError).items() if isinstance(number, int)}
FEW = ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
"""Which no row names, as the client never tells them."""
ROW = (b"value", b"key", -1, 0, None)
THREADS = 24


def codes_of(reason: Reason) -> list[str]:
    """Those that a broker may answer with; what is negative is the client's own."""
    return [code for cause in TABLE if cause.reason is reason for code in cause.codes if NUMBERS[code] > 0]


@dataclass(frozen=True)
class Case:
    code: str
    api: int
    plain: bool = False

    def told(self) -> Reason | None:
        """What a sink is told of the error in the end; None where the client got over it."""
        with MockCluster("out") as cluster:
            try:
                self._write(cluster)
            except InDoubt as trouble:
                return None if trouble.told is None else trouble.told.reason
            except SinkPipelineError as error:
                return error.reason
        return None

    def _write(self, cluster: MockCluster) -> None:
        servers = Connection(bootstrap_servers=cluster.servers)
        if self.plain or self.api == INIT_PRODUCER_ID:
            cluster.answer(self.api, NUMBERS[self.code])
        if self.plain:
            with closing(PlainProducer(servers)) as plain:
                plain.produce_rows("out", [ROW])
                plain.flush(2.0)
            return
        with closing(TransactionalProducer(servers, "id", deadline_s=2.0)) as producer:
            cluster.answer(self.api, NUMBERS[self.code])
            producer.begin()
            producer.produce_rows("out", [ROW])
            producer.commit(4.0)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "_DELIVERY_TIMEOUT_MS", 1_500)
    monkeypatch.setattr(connection, "SOCKET_TIMEOUT_MS", 1_000)


def found(cases: Iterable[Case]) -> dict[Case, Reason | None]:
    """They wait, most of the time."""
    cases = list(cases)
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(cases, pool.map(Case.told, cases), strict=True))


def produced(codes: Iterable[str]) -> list[Case]:
    return [Case(code, PRODUCE, plain) for code in codes for plain in (False, True)]


def test_too_few_replicas_in_sync_are_an_outage() -> None:
    assert set(found(produced([*FEW, "NOT_LEADER_FOR_PARTITION"])).values()) == {Reason.BROKER_UNREACHABLE}


@pytest.mark.thorough("each code of the table")
def test_every_outage_is_told_as_one_wherever_it_is_met() -> None:
    outages = codes_of(Reason.BROKER_UNREACHABLE)
    transactions = [Case(code, api) for code in outages for api in (ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID)]
    told = found([*produced(outages), *transactions])
    assert {case for case, reason in told.items() if reason not in (None, Reason.BROKER_UNREACHABLE)} == set()


def test_what_is_refused_for_good_is_told_at_once() -> None:
    """It was tried six times, and counted, as a transaction in doubt."""
    refused = codes_of(Reason.KAFKA_REFUSED)
    told = found([*produced(refused), *(Case(code, END_TXN) for code in refused)])
    assert set(told.values()) == {Reason.KAFKA_REFUSED}
