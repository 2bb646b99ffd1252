"""What a driver remembers beside the progress topic: who may write it back, and what has to be proved first."""

from __future__ import annotations

from dataclasses import dataclass

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark, Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.topics import remember

P0 = SourcePartition("in", 0)


@dataclass
class Control:
    """A control id, and whether somebody has taken it since."""

    ours: bool = True
    closed: bool = False

    def still_holds(self) -> bool:
        assert not self.closed, "who gave it up can't prove anything by it"
        return self.ours

    def close(self) -> None:
        self.closed = True


def at(offset: int, *, epoch: int = 0, mark: Mark | None = None) -> Progress:
    meta = Meta(
        epoch=epoch,
        run="r",
        owner=Owner(cluster="file", name="p"),
        partitions={"in": 1},
        progress="first",
        marks={} if mark is None else {P0: mark},
    )
    return Progress(meta=meta, partitions={P0: PartitionProgress(epoch=epoch, next=offset)})


def frontier(remembered: Remembered) -> int | None:
    return None if remembered.memory is None else remembered.memory.partitions[P0].next


def test_what_was_told_is_never_proved_and_what_is_read_goes_before_it() -> None:
    remembered = Remembered(remember(at(3)))
    assert (frontier(remembered), remembered.is_ours, remembered.is_proved()) == (3, False, False)
    remembered.read(Progress())
    assert frontier(remembered) == 3
    remembered.read(at(5))
    assert frontier(remembered) == 5


def test_what_is_delivered_is_doubtful_until_the_delivery_has_ended() -> None:
    remembered = Remembered()
    remembered.started(at(3))
    assert (frontier(remembered), remembered.is_ours, remembered.is_proved()) == (3, True, False)
    in_doubt, certain = Control(), Control()
    remembered.left(at(5), in_doubt, certain=False)
    assert (in_doubt.closed, remembered.is_proved(), frontier(remembered)) == (True, False, 5)
    remembered.left(at(7), certain, certain=True)
    assert (certain.closed, remembered.is_proved(), frontier(remembered)) == (False, True, 7)
    remembered.started(at(7))
    assert (certain.closed, remembered.is_proved()) == (False, False), "the start has taken it, and holds it"


def test_what_an_earlier_start_has_read_is_forgotten_with_the_next_delivery() -> None:
    """Compared with it, progress that has lost its end would seem to be in order."""
    remembered = Remembered()
    remembered.read(at(3))
    remembered.started(at(3))
    remembered.left(at(9), Control(), certain=False)
    assert frontier(remembered) == 9


def test_marks_that_were_noted_since_the_progress_was_written_are_compared_by_each_look() -> None:
    """An attempt that is given up has read older ones, and the next attempt begins with what is remembered."""
    remembered = Remembered()
    remembered.left(at(9, mark=Mark(7, 1)), Control(), certain=False)
    for _ in range(2):
        remembered.read(at(9, mark=Mark(2, 0)))
        assert remembered.memory is not None
        assert remembered.memory.marks_in(0) == {P0: Mark(7, 1)}
    assert remembered.memory.marks_in(1) == {}, "a reset since"
    remembered.read(at(3, epoch=1))
    assert (frontier(remembered), remembered.memory.marks) == (3, {})


def test_who_was_overtaken_is_doubtful_from_then_on() -> None:
    remembered, control = Remembered(), Control()
    remembered.left(at(7), control, certain=True)
    remembered.read(at(4))
    assert frontier(remembered) == 7, "what is read is no news to who is exact"
    control.ours = False
    assert not remembered.is_proved()
    control.ours = True
    assert (control.closed, remembered.is_proved()) == (True, False)


def test_each_attempt_proves_by_the_id_that_was_taken_last() -> None:
    remembered, first, second = Remembered(), Control(), Control()
    remembered.taken_again(second)
    assert not remembered.keeps(second), "nothing is exact yet, so there is nothing to prove"
    remembered.left(at(7), first, certain=True)
    remembered.taken_again(second)
    assert (first.closed, remembered.keeps(first), remembered.keeps(second)) == (True, False, True)
    assert remembered.is_proved()
    remembered.let_go()
    assert (second.closed, remembered.is_proved()) == (True, False)


def test_only_who_is_exact_knows_his_own_leftovers() -> None:
    """What a driver and its tasks wrote into a topic that was re-created, before anybody noticed."""
    remembered, leftovers = Remembered(), Progress(partitions=at(5).partitions, end=9)
    remembered.left(at(7), Control(), certain=False)
    assert remembered.believed(leftovers, "second") == leftovers
    remembered.left(at(7), Control(), certain=True)
    assert remembered.believed(leftovers, "second") == Progress(end=9)
    assert remembered.believed(leftovers, "first") == leftovers
