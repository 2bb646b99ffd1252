"""A publication that is altered beside a transaction: what a session sends of it depends on what it has met before."""

from __future__ import annotations

import pytest

from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason
from support.changes.lab import Lab
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

ROWS = 100


@pytest.fixture
def published(lab: Lab) -> Lab:
    """One of two tables, and a first start behind it."""
    lab.sql(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        f"CREATE PUBLICATION {lab.name} FOR TABLE orders",
    )
    lab.live()
    return lab


def insert(table: str, first: int, count: int) -> bytes:
    return f"INSERT INTO {table} SELECT generate_series({first}, {first + count - 1})".encode()


def delivered(lab: Lab, table: str) -> list[int]:
    return sorted(
        each.record.document["after"]["id"]
        for each in lab.found()
        if each.record.document["table"] == f"public.{table}"
    )


def cut(lab: Lab, rows: int, *, then: str | None = "orders") -> None:
    """Kills a stage at the first commit inside a transaction, which changes `others`, and `then` another table."""
    stage = lab.start(cuts=CutPolicy(rows=rows, bytes=1 << 20, seconds=0.2))
    stage.wait_for("state")
    with lab.connected(autocommit=False) as late:
        late.execute(insert("others", 0, ROWS))
        lab.sql(f"ALTER PUBLICATION {lab.name} ADD TABLE others")
        lab.sql(insert("others", 1_000, 1).decode())
        lab.caught_up()
        wait_until(lambda: lab.slot_lsn() >= lab.progress()[0], "the slot follows")
        (stage.directory / "after-commit").touch()
        if then is not None:
            late.execute(insert(then, 0, ROWS))
        late.commit()
    stage.wait_at("after-commit")
    stage.kill()
    assert lab.progress()[1] == rows, "inside the transaction, with rows that the next session leaves out"
    assert lab.position().note


def test_a_table_that_is_added_beside_a_transaction_which_is_cut(published: Lab) -> None:
    """The running session sends the first rows of `others`, as it has met that table since; the next one does not."""
    cut(published, ROWS + ROWS // 2)
    published.live()
    assert delivered(published, "orders") == [*range(ROWS)]
    assert delivered(published, "others") == [*range(ROWS), 1_000]


def test_what_no_session_sends_again_is_told(published: Lab) -> None:
    """It is cut within the rows of the table that was added: the rest of them can't be read any more."""
    cut(published, ROWS // 2)
    error = published.refusal()
    assert error.reason is Reason.SOURCE_ROLLED_BACK
    assert "beside that transaction" in error.message
    assert delivered(published, "orders") == []


@pytest.mark.thorough("other ways to alter it")
@pytest.mark.parametrize("how", ["DROP TABLE others", "SET TABLE orders, others WHERE (id < 0)", "SET TABLE orders"])
def test_a_table_that_is_left_out_beside_a_transaction_which_is_cut(published: Lab, how: str) -> None:
    """The other way round: the running session sends what the next one leaves out, or does not either."""
    lab = published
    lab.sql(f"ALTER PUBLICATION {lab.name} ADD TABLE others", insert("others", 2_000, 1).decode())
    lab.live()
    stage = lab.start(cuts=CutPolicy(rows=ROWS // 2, bytes=1 << 20, seconds=0.2))
    stage.wait_for("state")
    with lab.connected(autocommit=False) as late:
        late.execute(insert("orders", 0, ROWS))
        late.execute(insert("others", 0, ROWS))
        lab.sql(f"ALTER PUBLICATION {lab.name} {how}")
        lab.sql(insert("orders", 1_000, 1).decode())
        lab.caught_up()
        (stage.directory / "after-commit").touch()
        late.execute(insert("orders", ROWS, ROWS))
        late.commit()
    stage.wait_at("after-commit")
    stage.kill()
    assert lab.progress()[1] == ROWS // 2
    lab.live()
    assert delivered(lab, "orders") == [*range(2 * ROWS), 1_000]
    others = delivered(lab, "others")
    assert others in ([2_000], [*range(ROWS), 2_000]), "all of them, or none"


def test_a_transaction_of_which_nothing_is_sent_again_is_told(published: Lab) -> None:
    """It has changed the added table alone: since PostgreSQL 15 a session leaves out even its begin and its end."""
    cut(published, ROWS // 2, then=None)
    before = published.progress()
    for _ in range(2):
        assert published.refusal().reason is Reason.SOURCE_ROLLED_BACK
        assert published.progress() == before
    published.sql(insert("orders", 0, 1).decode())
    assert published.refusal().reason is Reason.SOURCE_ROLLED_BACK
