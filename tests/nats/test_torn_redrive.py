"""A server that lost the end of a redrive's batch: its letters are pending again, whatever the redrive's cell says.

The batch is the redrive's cell, the rows, and the letters' cells, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.nats import LocalNats
from sinkpipeline.cells.store import Version
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.kafka.redrive import Summary
from sinkpipeline.nats.cells import NatsCells
from sinkpipeline.sinks.contract import RowBatch
from support.kafka import topics
from support.sink.cell_sink import COUNT, redrive
from support.sink.nats_redrives import NatsRepaired
from support.sink.nats_sink import LetteredNats, batch, messages
from support.sink.nats_store import block_of, cut
from support.sink.starts import refusal

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def server() -> Iterator[LocalNats]:
    """One of its own, as it is killed, and its files are cut."""
    with LocalNats() as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_tidied(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user without the right to purge: the block only grows, and tells what was removed."""
    monkeypatch.setattr(NatsCells, "_tidy", lambda *_: None)


@pytest.fixture
def sink(kafka: LocalKafka, server: LocalNats) -> Iterator[LetteredNats]:
    """All of its records are dead letters."""
    found = LetteredNats(server.address, servers=kafka.bootstrap_servers, stem=topics.unique("torn"))
    found.produce()

    def bad(_partition: object, offsets: range) -> RowBatch:
        return batch(offsets, [b"0:%d" % each for each in offsets], [b"a.subject.of.nobody" for _ in offsets])

    found.driver(COUNT, bad).drain()
    yield found
    found.close()


def size(server: LocalNats, sink: LetteredNats) -> int:
    return block_of(server, sink.stream).stat().st_size


def settled(sink: LetteredNats) -> int:
    """Letters whose cells are removed, in what is left of the stream."""
    return sum(".d." in subject and not payload for _, subject, _, payload in messages(sink.direct, sink.stream))


@pytest.mark.parametrize("share", [0.4, 0.85])
def test_what_is_lost_of_a_batch_is_pending_again_and_redriven(
    sink: LetteredNats, server: LocalNats, share: float
) -> None:
    """Where rows are lost, and where only some of the letters' cells are."""
    before = size(server, sink)
    assert redrive(sink.settings, NatsRepaired()) == ([], Summary(delivered=COUNT))
    cut(server, sink.stream, before + int((size(server, sink) - before) * share))
    kept, rows = settled(sink), sink.delivered().total()
    assert (rows < COUNT, 0 < kept < COUNT) == (share < 0.5, share > 0.5)
    [told], done = redrive(sink.settings, NatsRepaired())
    assert told.startswith(
        f"{COUNT - kept} letters were redriven before, and their rows are lost: the stream went back"
    )
    assert done == Summary(delivered=COUNT - kept)
    assert set(sink.delivered()) == set(sink.once), "none is missing; what was left of the batch is there twice"
    assert redrive(sink.settings, NatsRepaired()) == ([], Summary())


@pytest.mark.parametrize("share", [0.4, pytest.param(0.85, marks=pytest.mark.thorough("a part of the cells"))])
def test_a_redrive_that_is_in_doubt_about_such_a_batch_takes_nothing_for_settled_that_is_lost(
    sink: LetteredNats, server: LocalNats, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, torn = NatsCells.commit, list[int]()

    def commit(*args: Any, **more: Any) -> Version:
        before = size(server, sink)
        found = real(*args, **more)
        if not torn:
            cut(server, sink.stream, before + int((size(server, sink) - before) * share))
            torn.append(settled(sink))
            raise InDoubt("the answer is lost")
        return found

    monkeypatch.setattr(NatsCells, "commit", commit)
    if share < 0.5:
        assert redrive(sink.settings, NatsRepaired()) == ([], Summary(delivered=COUNT))
    else:
        error = refusal(lambda: redrive(sink.settings, NatsRepaired()), Reason.TRANSACTION_FAILED)
        assert f"{COUNT - torn[0]} of {COUNT} letters are pending again" in error.message
        assert redrive(sink.settings, NatsRepaired()) == ([], Summary(delivered=COUNT - torn[0]))
    assert set(sink.delivered()) == set(sink.once)
    assert redrive(sink.settings, NatsRepaired()) == ([], Summary())
