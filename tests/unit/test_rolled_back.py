"""What proves that rows went back with their progress, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rolled_back import Partitions, RolledBack, compared
from sinkpipeline.core.topics import remember

P0, P1 = (SourcePartition("in", number) for number in range(2))


def at(*states: tuple[int, int], dead: int = 0) -> Partitions:
    """Of each partition its next offset, and the rows that were delivered."""
    found = {
        SourcePartition("in", number): PartitionProgress(epoch=0, next=offset, rows=rows)
        for number, (offset, rows) in enumerate(states)
    }
    return {**found, P0: replace(found[P0], dead=dead)}


BOTH = RolledBack(rows=30, offsets=50, partitions=2)


@pytest.mark.parametrize(
    ("found", "remembered", "counted", "before", "then"),
    [
        # As a stream has it that nobody else writes into: each row counts one.
        pytest.param(at((10, 5), (20, 15)), at((40, 25), (40, 25)), 20, 50, BOTH, id="just the rows"),
        pytest.param(at((10, 5), (20, 15)), at((40, 25), (40, 25)), 26, 66, BOTH, id="cells count too"),
        pytest.param(at((10, 5), (20, 15)), at((40, 25), (40, 25)), 3, 900, BOTH, id="rows of others went too"),
        pytest.param(at((10, 5), (20, 15)), at((40, 25), (40, 25)), 21, 50, None, id="one row may be there"),
        pytest.param(at((10, 5), (20, 15)), at((40, 25), (40, 25)), 50, 50, None, id="nothing went back"),
        pytest.param(at((10, 5), (20, 15)), at((40, 25), (40, 25)), 90, 50, None, id="others have written since"),
        pytest.param(at((10, 5), (20, 15)), at((40, 25), (40, 25)), None, 50, None, id="it does not count"),
        pytest.param(at((10, 5), (20, 15)), at((40, 25), (40, 25)), 20, None, None, id="nobody knows what it was"),
        pytest.param(at((10, 5)), at((40, 25), (40, 25)), 0, 900, None, id="a partition has no progress"),
        # A status has the rows of all partitions in the first one.
        pytest.param(
            at((10, 5), (50, 25)), at((40, 40), (40, 0)), 20, 50, RolledBack(10, 30, 1), id="one has gone on since"
        ),
        # Records that gave nothing.
        pytest.param(at((10, 5), (20, 15)), at((40, 20), (40, 0)), 50, 50, RolledBack(0, 50, 2), id="all left out"),
        pytest.param(at((10, 5), (50, 15)), at((40, 20), (40, 0)), 50, 50, None, id="left out, or in the other one"),
        pytest.param(at((10, 5), (20, 15)), at((40, 20), (40, 0), dead=1), 50, 50, None, id="a letter"),
        pytest.param(at((10, 5), (20, 15)), at((40, 20), (40, 0), dead=1), 49, 50, RolledBack(0, 50, 2), id="gone too"),
    ],
)
def test_what_is_proved(
    found: Partitions, remembered: Partitions, counted: int | None, before: int | None, then: RolledBack | None
) -> None:
    if then is not None:
        assert compared(found, remembered, counted=counted, remembered_count=before) == then
        return
    with pytest.raises(SinkPipelineError) as told:
        compared(found, remembered, counted=counted, remembered_count=before)
    assert told.value.reason is Reason.PROGRESS_REGRESSED


def test_nothing_is_told_of_what_is_not_behind() -> None:
    for found in (at((40, 25)), at((41, 26)), at((40, 25), (0, 0))):
        assert compared(found, at((40, 25)), counted=0, remembered_count=90) is None


def test_why_it_is_not_proved() -> None:
    with pytest.raises(SinkPipelineError, match="has lost 15 offsets in 1 of 1 partitions; the sink counts 41 entries"):
        compared(at((25, 5)), at((40, 15)), counted=41, remembered_count=50)


def test_an_attempt_that_reads_what_went_back_does_not_forget_what_it_was() -> None:
    """It is interrupted after that: the next one finds out again how much is delivered again, and tells it."""
    meta = Meta(epoch=0, run="r", owner=Owner(cluster="file", name="p"), partitions={"in": 1}, progress="first")
    known = Progress(meta=meta, partitions=at((40, 25)), counted=50)
    remembered = Remembered(remember(known))
    remembered.read(replace(known, partitions=at((10, 5)), counted=None))
    assert remembered.memory == remember(known)
    remembered.read(replace(known, partitions=at((41, 25)), counted=None))
    assert remembered.memory is not None
    assert remembered.memory.partitions == at((41, 25))
    remembered.read(replace(known, meta=replace(meta, epoch=1), partitions=at((0, 0))))
    assert remembered.memory.epoch == 1, "a reset is no news of an earlier time"
