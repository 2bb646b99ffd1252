"""Runs that were found once, kept as they were printed: by `make hunt`, or by a test of the model that failed.

A case is pasted here as it is, or said shorter. What it showed is mended by then, so it passes. One that shows what a
mutation breaks is also run with that mutation, where it has to fail.
"""

from __future__ import annotations

from model.little_spark import Habits
from model.machine import (
    AddedTopics,
    Cells,
    CellsLost,
    DeadLetters,
    Deletions,
    LateTasks,
    Losses,
    Readers,
    Resets,
    SlowLinks,
    Starts,
    Truncations,
    WriteBacks,
)
from model.rules import Trouble
from model.scheduler import Fate
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


def a_start_is_overtaken_twice_while_it_writes_back() -> None:
    """A third one had written by then: what the late ones had read was older."""
    state = WriteBacks()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.overtaken_in_a_write_back(label="init", nth=1, seconds=1.0)
    state.overtaken_in_a_write_back(label="init", nth=1, seconds=1.0)
    state.teardown()


def a_batch_at_least_once_is_killed_over_a_slow_link() -> None:
    """What it had acknowledged was committed piece by piece."""
    state = SlowLinks()
    habits = Habits(workers=1, moves=0, retry_moves=False, max_offsets=4, rows_at_a_time=1)
    shape = Shape(partitions=1, sinks=1, habits=habits, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT, Kind.KEPT], exactly_once=False)
    state.kill_in_a_batch(records=[Kind.KEPT, Kind.KEPT], seconds=20.0, worker=False)
    state.keeps_its_word()
    state.teardown()


def progress_is_deleted_under_an_attempt_that_was_given_up(*, seeded: bool = False) -> None:
    """Its commit was in doubt, so nobody's memory of it was exact."""
    state = Losses()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=True, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    if seeded:
        state.seed_in_doubt(commits=4)
    state.delete_under_an_attempt_that_was_given_up(seconds=0.1)
    state.keeps_its_word()
    state.teardown()


def progress_is_deleted_under_an_attempt_behind_a_seed_in_doubt() -> None:
    """The seed was an attempt, too."""
    progress_is_deleted_under_an_attempt_that_was_given_up(seeded=True)


def progress_is_deleted_under_an_overtaken_driver() -> None:
    """What it remembered was older than what the newer one had delivered."""
    state = Losses()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=True, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.delete_under_an_overtaken_driver(seconds=0.1)
    state.keeps_its_word()
    state.teardown()


def progress_loses_its_records_while_it_is_read() -> None:
    """The reader's position was gone, and another one was given to it."""
    state = Truncations()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.truncate_progress_while_it_is_read(reads=3)
    state.truncate_progress_while_it_is_read(reads=1)
    state.teardown()


def a_task_outlives_the_stop_of_its_driver() -> None:
    """Its transaction was open while the next driver started."""
    state = LateTasks()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=2.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.late_task(sends=3, trouble=Trouble.JOB_FAILS, zombie=("init", 1))
    state.late_task_at_a_stop(zombie=("init", 1))
    state.keeps_its_word()
    state.teardown()


def a_task_outlives_a_reset() -> None:
    """Its rows came beyond the progress that the reset had written."""
    state = Resets()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    state.late_task_in_a_reset(sends=8, zombie=("send", 2))
    state.keeps_its_word()
    state.teardown()


def sentinels_are_compacted_while_they_are_read() -> None:
    """A reader that took the end of the topic for all of it missed a partition."""
    state = Readers()
    shape = Shape(partitions=2, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT])
    for commits in (3, 2, 1):
        state.compact_a_sentinel(commits=commits)
        state.keeps_its_word()
    state.teardown()


def a_store_loses_its_newest_cells_in_a_batch() -> None:
    """Of a partition without records in that batch: the driver wrote what it knew over the cell that had gone back."""
    state = CellsLost()
    shape = Shape(partitions=2, sinks=2, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT] * 5, tears=False)
    state.keeps_its_word()
    state.work(seconds=0.1)
    state.keeps_its_word()
    state.lose_tail_under_a_late_task(changes=3, trouble=Trouble.JOB_FAILS, zombie=("init", 1))
    state.keeps_its_word()
    state.teardown()


def the_answer_to_a_commit_into_cells_is_lost() -> None:
    """It had been carried out."""
    state = Cells()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT], tears=False)
    state.doubt(fate=Fate.LOST, nth=1, role="task")
    state.keeps_its_word()
    state.teardown()


def a_late_attempt_writes_into_cells_that_another_one_has_written() -> None:
    """It had read their versions before."""
    state = Cells()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(shape=shape, records=[Kind.KEPT], tears=False)
    state.late_attempt(nth=2, point=("task", "rows"), zombie=("init", 1))
    state.kill_a_first_start(changes=1)
    state.keeps_its_word()
    state.teardown()


def _of_several_topics(topics: str) -> AddedTopics:
    state = AddedTopics()
    shape = Shape(partitions=1, sinks=1, habits=CALM_HABITS, marker_delay_s=0.0, remembers=False, small=0)
    state.begin(topics=topics, shape=shape, records=[Kind.KEPT, Kind.KEPT])
    return state


def a_topic_is_lost_while_a_start_adds_another() -> None:
    """What the start had found is not created with what it adds."""
    state = _of_several_topics("ab")
    state.work(seconds=1.0)
    state.delete_a_topic_in_a_start(letter="a", describes=10, create=False)
    state.teardown()


def a_first_start_is_overtaken_while_it_makes_the_topic_of_its_letters() -> None:
    """The answer took ten seconds: another driver had delivered, and its topic was lost, when it went on."""
    state = _of_several_topics("abc")
    state.cut_a_creation(added=False, creations=3, fate=Fate.LOST_LONG, kill=False)
    state.delete_a_topic_in_a_start(letter="b", describes=2, create=True)
    state.delete_a_topic_in_a_start(letter="a", describes=1, create=False)
    state.teardown()


def a_topic_is_lost_while_the_answer_to_its_creation_is_waited_for() -> None:
    """It had taken another driver's rows meanwhile, and was asked for again."""
    state = _of_several_topics("a")
    state.cut_a_creation(added=False, creations=4, fate=Fate.LOST_LONG, kill=False)
    state.delete_a_topic_in_a_start(letter="a", describes=1, create=False)
    state.work(seconds=15.0)
    state.teardown()


CASES = [
    (a_task_outlives_its_job, "ids_by_task_index"),
    (a_driver_is_overtaken_before_it_takes_its_ids, "reads_from_the_highest_offset"),
    (the_data_topic_is_lost_between_two_batches, "a_batch_begins_after_a_verdict"),
    (a_start_is_overtaken_twice_while_it_writes_back, "proves_before_it_has_read"),
    (a_start_is_overtaken_twice_while_it_writes_back, "proved_once_is_proved"),
    (a_batch_at_least_once_is_killed_over_a_slow_link, "a_batch_of_at_least_once_is_one_cut"),
    (progress_is_deleted_under_an_attempt_that_was_given_up, "attempts_given_up_are_forgotten"),
    (progress_is_deleted_under_an_attempt_that_was_given_up, "memory_is_always_exact"),
    (progress_is_deleted_under_an_attempt_behind_a_seed_in_doubt, "seeds_are_forgotten"),
    (progress_is_deleted_under_an_overtaken_driver, "nobody_proves_to_hold_the_sink"),
    (progress_loses_its_records_while_it_is_read, "default_offset_reset"),
    (a_task_outlives_the_stop_of_its_driver, "announced_after_the_fence"),
    (a_task_outlives_the_stop_of_its_driver, "no_fence_of_the_partitions"),
    (a_task_outlives_the_stop_of_its_driver, "read_before_the_fence_in_a_start"),
    (a_task_outlives_a_reset, "no_fence_in_a_reset"),
    (sentinels_are_compacted_while_they_are_read, "suffix_without_all_keys"),
    (a_store_loses_its_newest_cells_in_a_batch, "cells_not_compared_with_what_is_known"),
    (the_answer_to_a_commit_into_cells_is_lost, "time_out_taken_for_an_abort"),
    (a_topic_is_lost_while_a_start_adds_another, "lost_topics_are_created_beside_new_ones"),
    (a_first_start_is_overtaken_while_it_makes_the_topic_of_its_letters, "overtaken_starts_create"),
    (a_topic_is_lost_while_the_answer_to_its_creation_is_waited_for, "creations_are_asked_for_twice"),
    (a_late_attempt_writes_into_cells_that_another_one_has_written, "version_not_compared"),
]
"""With the name of the mutation that it shows."""
