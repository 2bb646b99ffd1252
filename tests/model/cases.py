"""Runs that were found once, kept as they were printed: by `make hunt`, or by a test of the model that failed.

A case is pasted here as it is. What it showed is mended by then, so it passes. One that shows what a mutation breaks
is also run with that mutation, where it has to fail.
"""

from __future__ import annotations

from model.little_spark import Habits
from model.machine import DeadLetters, Deletions, LateTasks, Starts
from model.rules import Trouble
from model.world import Kind, Shape

CALM_HABITS = Habits(workers=1, moves=0, retry_moves=False, max_offsets=2, rows_at_a_time=1)


def a_task_outlives_its_job() -> None:
    """Its rows came beyond a progress that the next start had read already (docs/design/0004)."""
    state = LateTasks()
    shape = Shape(partitions=1, sinks=1, exactly_once=True, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.work(seconds=0.02)
    state.late_task(sends=5, trouble=Trouble.JOB_FAILS, zombie=("send", 2))
    state.work(seconds=0.02)
    state.teardown()


def dead_letters_go_as_soon_as_they_are_there() -> None:
    """The start that had made the topic waited for it, and took that for a refusal."""
    state = DeadLetters()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.work(seconds=0.02)
    state.delete_dead_letters(seconds=0.0)
    state.teardown()


def the_data_topic_is_lost_between_two_batches() -> None:
    """A look between batches confirmed it, and the batch that had begun to wait confirmed it once more, unheard."""
    state = Deletions()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.work(seconds=1.0)
    state.delete_data(create=False)
    assert state.run_to(("runner", "sleep")) is not None
    state.produce(partition=0, records=[Kind.KEPT])
    state.work(seconds=5.0)
    state.teardown()


def a_driver_is_overtaken_before_it_takes_its_ids() -> None:
    """Its task had read beyond the progress that the newer driver then delivered from."""
    state = Starts()
    habits = Habits(workers=2, moves=1, retry_moves=False, max_offsets=2, rows_at_a_time=1)
    shape = Shape(partitions=1, sinks=1, habits=habits, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.overtaken(reads=1, sends=5)
    state.overtaken_before_its_init(commits=1)
    state.teardown()


CASES = [
    (a_task_outlives_its_job, "ids_by_task_index"),
    (a_driver_is_overtaken_before_it_takes_its_ids, "reads_from_the_highest_offset"),
    (the_data_topic_is_lost_between_two_batches, "a_batch_begins_after_a_verdict"),
]
"""With the name of the mutation that it shows."""
