"""The rules by which Hypothesis explores the model: what can go wrong, and when.

Each class is one kind of trouble, so that a mutation can be looked for where it shows; the last ones are everything
together.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from model.rules import (
    STARTS,
    Calm,
    Point,
    Trouble,
    bad_records,
    few,
    latencies,
    letters,
    lists,
    named_elsewhere,
    nths,
    points,
    records,
    several,
    several_bad,
    shapes,
    targets,
    task_points,
    zombies,
)
from model.scheduler import Fate
from model.world import PROGRESS, SOURCE, Kind, Shape
from sinkpipeline.core.targets import Targets

_FEW = 15
"""Records, for links that take seconds for each."""


class Drivers(Calm):
    """Drivers come and go."""

    @rule(latency=latencies)
    def start_driver(self, latency: float) -> None:
        self.start_another(latency)

    @rule(which=few)
    def stop_driver(self, which: int) -> None:
        if drivers := self.world.alive():
            drivers[which % len(drivers)].stop()

    @rule(which=few)
    def kill_driver(self, which: int) -> None:
        if drivers := self.world.alive():
            drivers[which % len(drivers)].kill()

    @rule(point=points, nth=nths)
    def reach(self, point: Point, nth: int) -> None:
        self.run_to(point, nth)


class Compaction(Calm):
    @rule(bound=st.integers(0, 60))
    def compact(self, bound: int) -> None:
        topic = self.world.broker.topics.get(PROGRESS)
        if topic is not None:
            topic.logs[0].compact(bound)


class LateTasks(Calm):
    """A task is given up, and goes on in the middle of the start that follows."""

    @rule(zombie=zombies, trouble=st.sampled_from(STARTS), sends=nths)
    def late_task(self, zombie: tuple[str, int], trouble: Trouble, sends: int) -> None:
        """It goes on to its end when the starter is about to send something for that time."""
        task = self.hold_a_task(zombie)
        if task is None:
            return
        self.make(trouble, task)
        starter = self.hold(("runner", "send"), sends)
        self.world.scheduler.go_alone(task)
        self.release(starter)

    @rule(
        zombie=zombies,
        trouble=st.sampled_from(STARTS),
        sends=st.integers(1, 4),
        stop=st.integers(2, 3),
        more=st.integers(1, 3),
    )
    def late_task_in_two_steps(
        self, zombie: tuple[str, int], trouble: Trouble, sends: int, stop: int, more: int
    ) -> None:
        """It goes on to a commit of its own, and to its end when the starter has sent some more."""
        task = self.hold_a_task(zombie)
        if task is None:
            return
        self.make(trouble, task)
        starter = self.hold(("runner", "send"), sends)
        self.go_alone_to(task, "commit", stop)
        self.release(starter)
        starter = self.hold(("runner", "send"), 1 + more)
        self.world.scheduler.go_alone(task)
        self.release(starter)

    @rule(zombie=zombies)
    def late_task_at_a_stop(self, zombie: tuple[str, int]) -> None:
        """The driver is told to stop, and waits for a batch that fails."""
        task = self.hold_a_task(zombie)
        if task is None:
            return
        for driver in self.world.alive():
            driver.stop()
        self.world.scheduler.run(seconds=1.0)
        self.make(Trouble.JOB_FAILS, task)
        self.world.scheduler.go_alone(task)


class Attempts(Calm):
    """A task is given up, and goes on in the middle of the attempt that follows."""

    @rule(zombie=zombies, point=task_points, nth=st.integers(1, 2))
    def late_attempt(self, zombie: tuple[str, int], point: Point, nth: int) -> None:
        task = self.hold_a_task(zombie)
        if task is None:
            return
        self.make(Trouble.LOST, task)
        other = self.hold(point, nth)
        self.world.scheduler.go_alone(task)
        self.release(other)

    @rule()
    def lose_answer(self) -> None:
        """A task ends well, and Spark doesn't hear of it."""
        task = self.hold_a_task(("rows", 1))
        for attempt in self.world.tasks():
            attempt.loses_answer |= attempt.thread is task
        self.release(task)


_HELD_BACK_S = 5.0
"""Longer than a reader waits before it ends what holds it back."""


class Starts(Calm):
    """Drivers start in the middle of each other."""

    @rule(first=st.integers(1, 4), second=st.integers(1, 5), latency=latencies)
    def two_starts(self, first: int, second: int, latency: float) -> None:
        if not self.start_another(latency):
            return
        one = self.hold(("runner", "commit"), first)
        self.start_another()
        two = self.hold(("runner", "commit"), second)
        if one is not None:
            self.world.scheduler.go_alone(one, steps=60)
        self.release(two)

    @rule(sends=st.integers(3, 6), reads=st.integers(1, 2))
    def overtaken(self, sends: int, reads: int) -> None:
        """A driver goes on, and reads nothing new, while another one starts."""
        old = self.hold(("stream", "job"))
        if not self.start_another():
            return
        new = self.hold(("runner", "send"), sends)
        if old is not None:
            self.world.produce(0, [Kind.KEPT])
            self.go_alone_to(old, "read", reads)
            self.world.scheduler.step(old, Fate.FAILED)
            self.release(old)
            self.world.scheduler.run(lambda: old.label in ("trigger", "lock"), seconds=1.0)
        self.release(new)

    @rule(commits=nths)
    def overtaken_before_its_init(self, commits: int) -> None:
        """A driver that starts again is stopped, and goes on while a task of a newer one holds reads back."""
        stream = self.hold(("stream", "job"))
        if stream is None:
            return
        self.world.scheduler.step(stream, Fate.FAILED)
        self.release(stream)
        old = self.hold(("runner", "init"))
        self.start_another()
        task = self.hold_a_task(("commit", commits))
        self.release(old)
        self.world.scheduler.run(seconds=_HELD_BACK_S)
        self.release(task)


class Kills(Calm):
    @rule(point=points, nth=nths)
    def kill(self, point: Point, nth: int) -> None:
        thread = self.run_to(point, nth)
        if thread is not None:
            self.world.scheduler.kill(thread.process)

    @rule(zombie=zombies)
    def kill_task(self, zombie: tuple[str, int]) -> None:
        task = self.hold_a_task(zombie)
        if task is not None:
            self.world.scheduler.kill(task.process)

    @rule(which=few)
    def kill_worker(self, which: int) -> None:
        if workers := self.world.workers():
            self.world.scheduler.kill(workers[which % len(workers)].process)

    @rule(commits=nths)
    def kill_starter(self, commits: int) -> None:
        self.start_another()
        starter = self.run_to(("runner", "commit"), commits)
        if starter is not None:
            self.world.scheduler.kill(starter.process)


class Chaos(Calm):
    """Anybody is stopped anywhere, and goes on at any time."""

    @rule(point=points, nth=nths)
    def stop(self, point: Point, nth: int) -> None:
        self.hold(point, nth)

    @rule(which=few)
    def release_one(self, which: int) -> None:
        if threads := self.world.scheduler.held():
            self.release(threads[which % len(threads)])

    @rule(which=few, steps=st.integers(1, 40))
    def go_alone(self, which: int, steps: int) -> None:
        if threads := self.world.scheduler.held():
            self.world.scheduler.go_alone(threads[which % len(threads)], steps=steps)

    @rule(which=few, trouble=st.sampled_from((Trouble.LOST, *STARTS)))
    def give_up(self, which: int, trouble: Trouble) -> None:
        if tasks := self.world.tasks():
            self.make(trouble, tasks[which % len(tasks)].thread)


class Answers(Calm):
    """Calls that fail, or are done although their caller is told otherwise, or are done late."""

    @rule(point=points, nth=nths, fate=st.sampled_from(list(Fate)))
    def answer(self, point: Point, nth: int, fate: Fate) -> None:
        thread = self.run_to(point, nth)
        if thread is not None:
            self.world.held = True
            self.world.scheduler.step(thread, fate)

    @rule(
        role=st.sampled_from(["task", "task", "stream", "runner"]),
        nth=st.integers(1, 4),
        fate=st.sampled_from([each for each in Fate if each is not Fate.DONE]),
    )
    def doubt(self, role: str, nth: int, fate: Fate) -> None:
        """A commit whose outcome is not known."""
        self.answer((role, "commit"), nth, fate)

    @rule(which=few)
    def arrive_late(self, which: int) -> None:
        if late := self.world.scheduler.late:
            self.world.scheduler.deliver(which % len(late))


class BadRecords(Calm):
    """Records that can't be decoded, and rows that the cluster refuses without telling which."""

    @rule(partition=st.integers(0, 1), records=bad_records)
    def produce_bad(self, partition: int, records: list[Kind]) -> None:
        self.produce(partition, records)


class Refusals(Calm):
    """The cluster refuses rows of AtLeastOnce."""

    @initialize(shape=shapes, records=records)
    def begin(self, shape: Shape, records: list[Kind]) -> None:
        super().begin(replace(shape, exactly_once=False), records)

    @rule(count=st.integers(1, 3))
    def refuse_rows(self, count: int) -> None:
        self.world.rows_to_refuse = count


class Deletions(Calm):
    """People delete topics, and somebody creates them again."""

    @rule(create=st.booleans(), filled=st.booleans())
    def delete_progress(self, *, create: bool, filled: bool) -> None:
        self.world.delete_progress(create=create, filled=filled)

    @rule(filled=st.booleans())
    def recreate_progress_while_nothing_goes_on(self, *, filled: bool) -> None:
        self.world.scheduler.run(seconds=3.0)
        self.world.delete_progress(create=True, filled=filled)

    @rule(create=st.booleans())
    def delete_data(self, *, create: bool) -> None:
        self.world.delete_data(self.world.sinks[0], create=create)

    @rule(create=st.booleans())
    def delete_data_before_a_batch(self, *, create: bool) -> None:
        """Records come while it is looked again between two batches."""
        self.world.delete_data(self.world.sinks[0], create=create)
        self.run_to(("runner", "sleep"))
        self.world.produce(0, [Kind.KEPT])


class Truncations(Calm):
    """Records are deleted from the beginning of a topic."""

    @rule(before=st.integers(1, 30))
    def truncate_progress(self, before: int) -> None:
        self.world.truncate_progress(before)

    @rule(reads=nths)
    def truncate_progress_while_it_is_read(self, reads: int) -> None:
        self.world.scheduler.run(seconds=1.0)
        self.start_another()
        self.run_to(("runner", "read"), reads)
        self.world.truncate_progress(1000)

    @rule(before=st.integers(1, 8))
    def truncate_source(self, before: int) -> None:
        self.world.truncate_source(0, before)


class Tombstones(Calm):
    @rule()
    def remove_key(self) -> None:
        self.world.remove_key(self.world.sinks[0])


class ForeignTransactions(Calm):
    """Another application writes to the progress topic, and takes its time."""

    @rule(seconds=st.sampled_from([30.0, 900.0]))
    def open_foreign_transaction(self, seconds: float) -> None:
        self.world.open_foreign_transaction(seconds)

    @rule(seconds=st.sampled_from([30.0, 900.0]))
    def start_behind_a_foreign_transaction(self, seconds: float) -> None:
        self.world.scheduler.run(seconds=1.0)
        self.world.open_foreign_transaction(seconds)
        self.world.produce(0, [Kind.KEPT])
        self.world.scheduler.run(seconds=1.0)
        for driver in self.world.alive():
            driver.kill()
        self.start_another()


class Sources(Calm):
    """The source changes."""

    @rule(records=records)
    def recreate_source(self, records: list[Kind]) -> None:
        self.world.recreate_source(records)

    @rule()
    def add_partition(self) -> None:
        self.world.add_partition()


class SparkElsewhere(Calm):
    """Spark goes on elsewhere than where it was."""

    @rule(by=st.sampled_from([-2, -1, 1]))
    def spark_goes_on_elsewhere(self, by: int) -> None:
        self.world.scheduler.run(seconds=1.0)
        self.world.make_spark_skip(by)
        self.run_to(("stream", "job"))


class Resets(Calm):
    @rule(to=targets, seconds=st.sampled_from([0.0, 5.0]))
    def reset(self, to: Targets, seconds: float) -> None:
        self.world.scheduler.run(seconds=seconds)
        self.world.reset(0, to)

    @rule(zombie=zombies, sends=st.integers(4, 8))
    def late_task_in_a_reset(self, zombie: tuple[str, int], sends: int) -> None:
        task = self.hold_a_task(zombie)
        if task is None:
            return
        self.make(Trouble.RESET, task)
        person = self.hold(("person", "send"), sends)
        self.world.scheduler.go_alone(task)
        self.release(person)


class Readers(Compaction):
    """Readers meet on one progress topic, while it is compacted."""

    @rule(commits=st.integers(1, 3))
    def compact_a_sentinel(self, commits: int) -> None:
        """One that another reader's has superseded, before its own reader has read it."""
        self.start_another()
        reader = self.run_to(("runner", "commit"), commits)
        if reader is None:
            return
        self.world.scheduler.step(reader)
        reader.held = True
        self.start_another()
        self.run_to(("runner", "offsets"))
        self.compact(1000)
        self.world.scheduler.go_alone(reader, lambda: reader.label == "describe", steps=250)


class OldAnswers(Calm):
    """A broker that is cut off from its controller answers now and then, and doesn't know the sinks' topics."""

    @rule(answers=st.integers(1, 2), seconds=st.sampled_from([0.0, 1.0]), start=st.booleans())
    def old_answers(self, answers: int, seconds: float, *, start: bool) -> None:
        self.world.scheduler.run(seconds=seconds)
        self.world.give_old_answers(answers)
        if start:
            self.start_another()


class SlowLinks(Calm):
    """A link to the data topic that takes seconds for a row, and drivers and workers that are killed meanwhile."""

    @initialize(shape=shapes, records=records, exactly_once=st.booleans())
    def begin(self, shape: Shape, records: list[Kind], *, exactly_once: bool = False) -> None:
        # A cut of ExactlyOnce has to come through before its transaction times out.
        row_s = 15.0 if exactly_once else 25.0
        super().begin(replace(shape, exactly_once=exactly_once, partitions=1, sinks=1, small=0, row_s=row_s), records)
        for judge in self.world.judges.values():
            judge.may_repeat_cuts = 0

    def produce(self, partition: int, records: list[Kind]) -> None:
        """Not too much: it takes its time."""
        if self.world.broker.log(SOURCE, partition).high < _FEW:
            super().produce(partition, records)

    @rule(records=records, seconds=st.sampled_from([20.0, 50.0, 80.0, 110.0]), worker=st.booleans())
    def kill_in_a_batch(self, records: list[Kind], seconds: float, *, worker: bool) -> None:
        self.produce(0, records)
        self.world.scheduler.run(seconds=seconds)
        processes = [each.process for each in (self.world.workers() if worker else self.world.alive())]
        for process in processes:
            self.world.cut_short()
            self.world.scheduler.kill(process)
        if not worker:
            self.start_another()


class TwoNames(Drivers):
    """The source and the sinks are one cluster by two names, and the sinks write into the source."""

    @initialize(shape=shapes, records=records)
    def begin(self, shape: Shape, records: list[Kind]) -> None:
        super().begin(replace(shape, loops=True), records)


class TombstonesMet(Tombstones, Attempts):
    """A key is removed while attempts of its task come and go."""


class DeadLetters(BadRecords, Drivers, LateTasks, Attempts, Kills, Answers):
    """Dead letters are part of everything else that goes wrong, and their topic is deleted."""

    @rule(zombie=zombies, records=bad_records)
    def late_attempt_at_bad_records(self, zombie: tuple[str, int], records: list[Kind]) -> None:
        self.world.produce(0, records)
        task = self.hold_a_task(zombie)
        if task is None:
            return
        self.make(Trouble.LOST, task)
        self.world.scheduler.run(seconds=1.0)
        self.world.scheduler.go_alone(task)

    @rule(seconds=st.sampled_from([0.0, 0.1, 3.0]))
    def delete_dead_letters(self, seconds: float) -> None:
        self.world.scheduler.run(seconds=seconds)
        self.world.delete_dead_letters(self.world.sinks[0])


class Losses(LateTasks, Deletions):
    """The progress topic is deleted while an outcome is in doubt."""

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def delete_under_an_overtaken_driver(self, seconds: float) -> None:
        """It has delivered nothing since, and when it looks again there is nothing left to tell it of the other."""
        stream, runner = self.hold(("stream", "describe")), self.hold(("runner", "await"))
        self.start_another()
        self.world.produce(0, [Kind.KEPT, Kind.KEPT])
        self.world.scheduler.run(seconds=seconds)
        self.world.delete_progress(create=False)
        for thread in (runner, stream):
            self.release(thread)

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def delete_under_an_attempt_that_was_given_up(self, seconds: float) -> None:
        """It takes its partition back from the attempt that follows, and delivers what its driver isn't told."""
        task = self.hold_a_task(("init", 1))
        if task is None:
            return
        self.make(Trouble.LOST, task)
        other = self.hold(("task", "send"), 2)
        self.world.scheduler.go_alone(task)
        self.world.delete_progress(create=False)
        self.release(other)
        self.world.scheduler.run(seconds=seconds)

    @rule(commits=st.integers(3, 5))
    def seed_in_doubt(self, commits: int) -> None:
        """A driver that starts from what is remembered doesn't learn that its seed was written."""
        self.late_task_at_a_stop(("init", 1))
        self.world.scheduler.run(seconds=3.0)
        self.world.delete_progress(create=True)
        self.start_another()
        starter = self.run_to(("runner", "commit"), commits)
        if starter is not None:
            self.world.scheduler.step(starter, Fate.LOST)


class WriteBacks(Calm):
    """A driver that writes its frontier back is overtaken meanwhile, and that progress is deleted, too."""

    @initialize(shape=shapes, records=records)
    def begin(self, shape: Shape, records: list[Kind]) -> None:
        super().begin(replace(shape, remembers=True, sinks=1), records)

    @rule(label=st.sampled_from(["init", "send", "commit"]), nth=nths, seconds=st.sampled_from([1.0, 3.0]))
    def overtaken_in_a_write_back(self, label: str, nth: int, seconds: float) -> None:
        self.world.scheduler.run(seconds=3.0)
        self.world.delete_progress(create=False)
        starter = self.hold(("runner", label), nth)
        self.start_another()
        self.world.produce(0, [Kind.KEPT, Kind.KEPT])
        self.world.scheduler.run(seconds=seconds)
        self.world.delete_progress(create=False)
        self.release(starter)
        self.world.scheduler.run(seconds=5.0)


LOOKS = [(thread, question) for thread in ("runner", "stream") for question in ("list", "read")]
"""Where a driver asks about the source: by its thread, and what it is about to do."""


class LostEnds(Drivers):
    """A replica of the source that was behind becomes the leader."""

    @initialize(shape=shapes, records=records)
    def begin(self, shape: Shape, records: list[Kind]) -> None:
        super().begin(replace(shape, leaders=True, partitions=1, sinks=1), records)

    @rule(lost=st.integers(1, 6), grown=records, seconds=st.sampled_from([1.0, 5.0, 15.0]), stopped=st.booleans())
    def lose_end_of_source(self, lost: int, grown: list[Kind], seconds: float, *, stopped: bool) -> None:
        self.world.produce(0, [Kind.KEPT] * 4)
        self.world.scheduler.run(seconds=seconds)
        if stopped:
            for driver in self.world.alive():
                driver.stop()
            self.world.scheduler.run(seconds=3.0)
        self.world.lose_end_of_source(lost, grown)

    @rule(lost=st.integers(1, 6), grown=records, point=st.sampled_from(LOOKS), nth=nths, late=st.booleans())
    def lose_end_of_source_in_a_look(
        self, lost: int, grown: list[Kind], point: tuple[str, str], nth: int, *, late: bool
    ) -> None:
        """Between two questions of a look; `late`: it is short when one is asked, and has grown again at the next."""
        self.world.produce(0, [Kind.KEPT] * 4)
        self.world.scheduler.run(seconds=15.0)
        self.world.produce(0, [Kind.KEPT])
        look = self.hold(point, nth)
        self.world.lose_end_of_source(lost, [])
        if look is not None and late:
            self.go_alone_to(look, "read", 1)
        self.world.produce(0, grown)
        self.release(look)


class FirstStarts(Calm):
    """Two drivers start for the first time; one delivers, and its progress is deleted before the other looks again."""

    @rule(label=st.sampled_from(["init", "commit"]), nth=nths, seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def delete_under_a_competing_first_start(self, label: str, nth: int, seconds: float) -> None:
        # It has met the progress topic by then. Whoever looks for the first time afterwards can know nothing of it.
        first = self.hold(("runner", label), nth)
        self.start_another()
        self.world.scheduler.run(seconds=seconds)
        self.world.delete_progress(create=False)
        self.release(first)
        self.world.scheduler.run(seconds=5.0)


class Protocol(BadRecords, Drivers, Readers, LateTasks, Attempts, Starts, Kills, Chaos, Answers):
    """Everything that may go wrong without anybody touching topics."""


class SmallBatches(BadRecords, Drivers, LateTasks, Attempts, Kills, Answers, SparkElsewhere):
    """Batches that the driver delivers itself, between others that tasks deliver."""

    @initialize(shape=shapes, records=records, small=st.sampled_from([2, 3, 100]))
    def begin(self, shape: Shape, records: list[Kind], small: int = 3) -> None:
        super().begin(replace(shape, small=small, habits=replace(shape.habits, max_offsets=5)), records)

    @rule(label=st.sampled_from(["collect", "send", "commit"]), seconds=st.sampled_from([0.1, 3.0]))
    def overtaken_in_a_small_batch(self, label: str, seconds: float) -> None:
        """A newer driver starts, and delivers, while this one has a small batch in hand."""
        old = self.hold(("stream", label))
        self.start_another()
        self.world.scheduler.run(seconds=seconds)
        self.release(old)

    @rule(zombie=zombies, label=st.sampled_from(["collect", "send", "commit"]))
    def task_of_the_batch_before(self, zombie: tuple[str, int], label: str) -> None:
        """A task is given up, another one delivers in its place, and it wakes up in the small batch that follows."""
        for _ in range(2):
            self.world.produce(0, [Kind.KEPT] * 2)
        task = self.hold_a_task(zombie)
        if task is None:
            return
        self.make(Trouble.LOST, task)
        stream = self.hold(("stream", label))
        self.world.scheduler.go_alone(task)
        self.release(stream)

    @rule(zombie=zombies, trouble=st.sampled_from(STARTS))
    def late_task_in_a_small_batch(self, zombie: tuple[str, int], trouble: Trouble) -> None:
        """A task is given up with its whole batch, which is small enough for the driver that starts next."""
        task = self.hold_a_task(zombie)
        if task is None:
            return
        self.make(trouble, task)
        stream = self.hold(("stream", "commit"))
        self.world.scheduler.go_alone(task)
        self.release(stream)

    @rule(fate=st.sampled_from([each for each in Fate if each is not Fate.DONE]))
    def doubt_a_small_batch(self, fate: Fate) -> None:
        """A commit of the driver's whose outcome is not known; the workers have kept producers of the batch before."""
        self.world.produce(0, [Kind.KEPT] * 5)
        self.world.scheduler.run(seconds=3.0)
        self.answer(("stream", "commit"), 1, fate)


class SeveralRows(Drivers, LateTasks, Attempts, Kills, Answers):
    """Records that give several rows, which Arrow batches, cuts and refusals could part."""

    @initialize(shape=shapes, records=several, exactly_once=st.sampled_from([True, True, False]))
    def begin(self, shape: Shape, records: list[Kind], *, exactly_once: bool = True) -> None:
        habits = replace(shape.habits, explodes=True)
        super().begin(replace(shape, habits=habits, exactly_once=exactly_once), records)

    @rule(partition=st.integers(0, 1), records=several)
    def produce_several(self, partition: int, records: list[Kind]) -> None:
        self.produce(partition, records)

    @rule(partition=st.integers(0, 1), records=several_bad)
    def produce_several_bad(self, partition: int, records: list[Kind]) -> None:
        # What AtLeastOnce has sent of a record that is refused stays.
        stays = self.world.shape.exactly_once
        self.produce(partition, [each for each in records if stays or each is not Kind.SEVERAL_REFUSED])


class CutInputs(SeveralRows):
    """What gives a task its rows fails: its input ends between two Arrow batches, and there is another attempt."""

    @rule(batches=st.integers(1, 3), kind=st.sampled_from([Kind.KEPT, Kind.SEVERAL]), alone=st.booleans())
    def cut_input(self, batches: int, kind: Kind, *, alone: bool) -> None:
        self.world.produce(0, [kind] * 4)
        task = self.hold(("task", "rows"), batches)
        if task is None:
            return
        task.context.is_cut = True
        self.make(Trouble.LOST, task)
        if alone:
            self.world.scheduler.go_alone(task)
        self.release(task)


class _SeveralTopics(Calm):
    """Sinks whose rows name one of several topics."""

    @initialize(shape=shapes, records=records, topics=st.sampled_from(["ab", "ab", "abc"]))
    def begin(self, shape: Shape, records: list[Kind], topics: str = "ab") -> None:
        super().begin(replace(shape, sinks=1, topics=topics), records)


class ListedTopics(_SeveralTopics):
    """Topics are deleted, made again, and left out of the list, which a reset allows."""

    @rule(topics=lists, how=st.sampled_from(["killed", "stopped", "beside"]), made=letters)
    def list_topics(self, topics: str, how: str, made: str) -> None:
        """Another manifest, while the driver of the one before is killed, told to stop, or goes on."""
        self.world.list_topics(topics)
        if made in topics:
            self.world.create_one_of_several(made)
        for driver in self.world.alive() if how != "beside" else ():
            driver.kill() if how == "killed" else driver.stop()
        self.start_another()

    @rule(letter=letters, create=st.booleans(), seconds=st.sampled_from([0.0, 1.0]), start=st.booleans())
    def delete_a_topic(self, letter: str, seconds: float, *, create: bool, start: bool) -> None:
        self.world.scheduler.run(seconds=seconds)
        self.world.delete_one_of_several(letter, create=create)
        if start:
            for driver in self.world.alive():
                driver.kill()
            self.start_another()

    @rule(topics=lists, to=targets)
    def reset_with_another_list(self, topics: str, to: Targets) -> None:
        for driver in self.world.alive():
            driver.stop()
        self.world.scheduler.run(seconds=3.0)
        self.world.list_topics(topics)
        self.world.scheduler.run(seconds=5.0)
        self.reset(to)
        self.start_another()

    @rule(to=targets)
    def reset(self, to: Targets) -> None:
        self.world.reset(0, to)


class AddedTopics(_SeveralTopics):
    """Topics are added to the list, and deleted meanwhile; their creation is cut in between."""

    @rule(creations=st.integers(1, 8), fate=st.sampled_from(list(Fate)), kill=st.booleans(), added=st.booleans())
    def cut_a_creation(self, creations: int, fate: Fate, *, kill: bool, added: bool) -> None:
        """The driver dies after one of several requests, or isn't told what became of it."""
        if added:
            self.world.list_topics("abc")
        self.start_another()
        starter = self.run_to(("runner", "create"), creations)
        if starter is None:
            return
        self.world.held = True
        self.world.scheduler.step(starter, fate)
        if kill:
            self.world.scheduler.kill(starter.process)
            self.start_another()

    @rule(seconds=st.sampled_from([1.0, 3.0]), create=st.booleans(), kill=st.booleans())
    def an_added_topic_is_lost(self, seconds: float, *, create: bool, kill: bool) -> None:
        """With its first rows, before there is a start that could have found it."""
        for driver in self.world.alive():
            driver.kill()
        self.world.list_topics("abc")
        self.start_another()
        self.world.produce(0, [Kind.KEPT] * 4)
        self.world.scheduler.run(seconds=seconds)
        for driver in self.world.alive() if kill else ():
            driver.kill()
        self.world.delete_one_of_several("c", create=create)

    @rule(letter=letters, describes=st.integers(1, 12), create=st.booleans())
    def delete_a_topic_in_a_start(self, letter: str, describes: int, *, create: bool) -> None:
        """That has something to create, too; each topic has rows by then."""
        self.world.produce(0, [Kind.KEPT] * 4)
        self.world.scheduler.run(seconds=3.0)
        self.world.list_topics("abc")
        self.start_another()
        starter = self.hold(("runner", "describe"), describes)
        self.world.delete_one_of_several(letter, create=create)
        self.release(starter)


class SeveralTopics(ListedTopics, AddedTopics, BadRecords, Drivers, LateTasks, Kills, Answers):
    """With everything else that goes wrong, and with rows for a topic that no list has."""

    @rule(partition=st.integers(0, 1), records=named_elsewhere)
    def produce_elsewhere(self, partition: int, records: list[Kind]) -> None:
        self.produce(partition, records)


class AtLeastOnce(Protocol, Refusals):
    """The other guarantee: nothing is missing."""


class Cells(BadRecords, Drivers, LateTasks, Attempts, Starts, Kills, Chaos, Answers):
    """A sink that commits rows and progress at once, in a store with compare-and-set."""

    @initialize(shape=shapes, records=records, tears=st.booleans())
    def begin(self, shape: Shape, records: list[Kind], *, tears: bool = False) -> None:
        super().begin(replace(shape, cells=True, tears=tears), records)

    @rule(changes=nths)
    def kill_a_first_start(self, changes: int) -> None:
        """In the middle of what it puts, of which some may stay."""
        self.start_another()
        starter = self.run_to(("runner", "commit"), changes)
        if starter is not None:
            self.world.scheduler.step(starter, Fate.FAILED)
            self.world.scheduler.kill(starter.process)


class CellsAtLeastOnce(Cells):
    """Rows by themselves, and the progress behind them, in such a store: nothing is missing."""

    @initialize(shape=shapes, records=records, tears=st.booleans())
    def begin(self, shape: Shape, records: list[Kind], *, tears: bool = False) -> None:
        super().begin(replace(shape, exactly_once=False), records, tears=tears)


class TornStarts(Calm):
    """First starts that die in the middle of what they put, of which the store keeps the first half."""

    @initialize(shape=shapes, records=records)
    def begin(self, shape: Shape, records: list[Kind]) -> None:
        super().begin(replace(shape, cells=True, tears=True, partitions=2), records)

    @rule(commits=nths)
    def tear(self, commits: int) -> None:
        starter = self.run_to(("runner", "commit"), commits)
        if starter is not None:
            self.world.scheduler.step(starter, Fate.FAILED)
            self.world.scheduler.kill(starter.process)
        self.start_another()


class CellsLost(Cells):
    """The store goes back to what it held once, or is deleted; people reset the sink."""

    @rule(changes=st.integers(1, 6), seconds=st.sampled_from([0.1, 1.0, 3.0]), start=st.booleans())
    def lose_tail(self, changes: int, seconds: float, *, start: bool) -> None:
        self.world.scheduler.run(seconds=seconds)
        self.world.lose_tail(changes)
        if start:
            self.start_another()

    @rule(zombie=zombies, changes=st.integers(1, 4), trouble=st.sampled_from(STARTS))
    def lose_tail_under_a_late_task(self, zombie: tuple[str, int], changes: int, trouble: Trouble) -> None:
        task = self.hold_a_task(zombie)
        if task is None:
            return
        self.world.lose_tail(changes)
        self.make(trouble, task)
        self.world.scheduler.run(seconds=3.0)
        self.world.scheduler.go_alone(task)

    @rule(to=targets, seconds=st.sampled_from([0.0, 5.0]))
    def reset(self, to: Targets, seconds: float) -> None:
        self.world.scheduler.run(seconds=seconds)
        self.world.reset(0, to)

    @rule(create=st.booleans())
    def delete_progress(self, *, create: bool) -> None:
        self.world.delete_progress(create=create)

    @rule(create=st.booleans())
    def delete_data(self, *, create: bool) -> None:
        self.world.delete_data(self.world.sinks[0], create=create)


class CellsRolledBack(Calm):
    """The store goes back as a whole, which its own counter proves: all is delivered again, without a person."""

    @initialize(shape=shapes, records=records)
    def begin(self, shape: Shape, records: list[Kind]) -> None:
        super().begin(replace(shape, cells=True, sinks=1, remembers=True, rolls_back=True), records)

    @rule(changes=st.integers(1, 6), seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def lose_tail(self, changes: int, seconds: float) -> None:
        self.world.scheduler.run(seconds=seconds)
        self.world.lose_tail(changes, proved=True)

    @rule(changes=st.integers(1, 6), kill=st.booleans())
    def lose_tail_and_start(self, changes: int, *, kill: bool) -> None:
        """By what the status remembers."""
        self.world.scheduler.run(seconds=3.0)
        for driver in self.world.alive():
            driver.kill() if kill else driver.stop()
        self.world.scheduler.run(seconds=3.0)
        self.world.lose_tail(changes, proved=True)
        self.start_another()


class CellsPutBack(CellsRolledBack):
    """And progress is put back alone, or together with a tail that is lost, and others write into the target."""

    @rule(changes=st.integers(2, 8), lost=st.integers(0, 3), records=records)
    def put_back(self, changes: int, lost: int, records: list[Kind]) -> None:
        self.world.produce(0, records)
        self.world.scheduler.run(seconds=3.0)
        for driver in self.world.alive():
            driver.stop()
        self.world.scheduler.run(seconds=3.0)
        self.world.put_back(changes, lost)
        self.start_another()

    @rule(rows=st.integers(1, 4))
    def others_write(self, rows: int) -> None:
        self.world.others_write(rows)


class Everything(
    Protocol, Deletions, Truncations, Tombstones, ForeignTransactions, Sources, SparkElsewhere, Resets, OldAnswers
):
    """And what people and retention do to topics."""
