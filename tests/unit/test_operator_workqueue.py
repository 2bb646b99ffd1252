"""When pipelines are looked at: never two looks at once, nothing that happened is missed, trouble backs off."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from urllib.error import HTTPError

import pytest
from kopf._cogs.structs import references

from sinkpipeline_operator.act.definitions import Definitions
from sinkpipeline_operator.child.builder import PIPELINE_LABEL
from sinkpipeline_operator.kube.client import ApiUnavailable, Cluster, Conflict, Kind, Ref
from sinkpipeline_operator.kube.selector import Selector
from sinkpipeline_operator.program import _Running
from sinkpipeline_operator.report.metrics import Metrics
from sinkpipeline_operator.report.web import Web
from sinkpipeline_operator.watch.handlers import build
from sinkpipeline_operator.watch.workqueue import WORKERS, WorkQueue

ONE, OTHER = Ref("shop", "one"), Ref("shop", "other")
DEADLINE_S = 20.0


class Looks:
    """Counts looks, and lets a test hold them."""

    def __init__(self) -> None:
        self.seen: list[Ref] = []
        self.polled: list[Ref] = []
        self.at_once: dict[Ref, int] = {}
        self.most: dict[Ref, int] = {}
        self.answer: Callable[[Ref], float | None] = lambda _: 3600.0
        self.versions: set[tuple[Ref, str]] = set()
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()

    def look(self, ref: Ref) -> float | None:
        with self._lock:
            self.seen.append(ref)
            self.at_once[ref] = self.at_once.get(ref, 0) + 1
            self.most[ref] = max(self.most.get(ref, 0), self.at_once[ref])
        try:
            assert self.gate.wait(DEADLINE_S), "a test forgot to open the gate"
            return self.answer(ref)
        finally:
            with self._lock:
                self.at_once[ref] -= 1

    def has_seen(self, ref: Ref, version: str) -> bool:
        return (ref, version) in self.versions

    def poll(self, ref: Ref) -> float | None:
        self.polled.append(ref)
        return 3600.0


def play(story: Callable[[WorkQueue, Looks], Awaitable[None]]) -> Looks:
    looks = Looks()

    async def run() -> None:
        with ThreadPoolExecutor(WORKERS) as executor:
            queue = WorkQueue(look=looks.look, poll=looks.poll, executor=executor, has_seen=looks.has_seen)
            work = asyncio.create_task(queue.run())
            try:
                await story(queue, looks)
            finally:
                looks.gate.set()
                work.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await work

    asyncio.run(run())
    return looks


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:.0f} s: {what}"
        await asyncio.sleep(0.005)


def test_one_look_at_a_time_and_what_happens_meanwhile_leads_to_another() -> None:
    async def story(queue: WorkQueue, looks: Looks) -> None:
        looks.gate.clear()
        queue.touch(ONE)
        await until(lambda: looks.seen == [ONE], "the first look")
        for _ in range(5):
            queue.touch(ONE)
        looks.gate.set()
        await until(lambda: looks.seen == [ONE, ONE], "one more look for all that happened")

    assert play(story).most == {ONE: 1}


def test_one_that_hangs_holds_up_no_other() -> None:
    async def story(queue: WorkQueue, looks: Looks) -> None:
        looks.gate.clear()
        queue.touch(ONE)
        await until(lambda: looks.seen == [ONE], "the first look")
        queue.touch(OTHER)
        await until(lambda: OTHER in looks.seen, "the other's look")

    play(story)


def test_a_version_that_a_look_has_written_is_no_news_though_the_watch_is_faster_than_the_answer() -> None:
    async def story(queue: WorkQueue, looks: Looks) -> None:
        looks.gate.clear()
        queue.tell(ONE, "1")
        await until(lambda: looks.seen == [ONE], "the first look")
        queue.tell(ONE, "2")
        looks.versions.add((ONE, "2"))
        looks.gate.set()
        await until(lambda: looks.at_once[ONE] == 0, "the end of the look")
        queue.tell(ONE, "2")
        queue.touch(OTHER)
        await until(lambda: looks.seen == [ONE, OTHER], "another look, and none for the echo")
        looks.gate.clear()
        queue.tell(ONE, "3")
        await until(lambda: looks.seen.count(ONE) == 2, "a look for a version of somebody else")
        queue.tell(ONE, "4")
        looks.gate.set()
        await until(lambda: looks.seen.count(ONE) == 3, "a look for one that came meanwhile")

    play(story)


def test_what_somebody_has_changed_is_looked_at_before_what_has_waited_longer() -> None:
    many = [Ref("shop", f"n{number}") for number in range(40)]

    async def story(queue: WorkQueue, looks: Looks) -> None:
        queue.tell(ONE, "1", 1)
        await until(lambda: looks.seen == [ONE], "it is known")
        looks.versions.add((ONE, "1"))
        looks.gate.clear()
        for ref in many:
            queue.tell(ref, "1", 1)
        await until(lambda: len(looks.seen) == 1 + WORKERS, "all threads are busy")
        queue.tell(ONE, "2", 2)
        looks.gate.set()
        await until(lambda: len(looks.seen) == 2 + len(many), "all were looked at")
        assert ONE in looks.seen[1 + WORKERS : 1 + 2 * WORKERS + 1]

    play(story)


def test_its_own_time_is_a_question_and_an_event_is_a_look() -> None:
    async def story(queue: WorkQueue, looks: Looks) -> None:
        looks.answer = lambda _: 0.01
        queue.touch(ONE)
        await until(lambda: looks.polled == [ONE], "the driver is asked")
        assert looks.seen == [ONE]
        queue.touch(ONE)
        await until(lambda: len(looks.seen) > 1, "a look after an event")

    play(story)


def test_news_of_kafka_is_a_question_and_none_is_missed_while_it_is_asked() -> None:
    async def story(queue: WorkQueue, looks: Looks) -> None:
        queue.nudge(OTHER)
        looks.gate.clear()
        queue.touch(ONE)
        await until(lambda: looks.seen == [ONE], "the first look")
        queue.nudge(ONE)
        looks.gate.set()
        await until(lambda: looks.polled == [ONE], "the question after it")
        queue.nudge(ONE)
        await until(lambda: looks.polled == [ONE, ONE], "another one")
        assert not queue.knows(OTHER), "nobody told that it is there"

    assert play(story).seen == [ONE]


def test_after_a_step_all_is_looked_at_again() -> None:
    async def story(queue: WorkQueue, looks: Looks) -> None:
        waits = iter([0.0, 0.0, 3600.0])
        looks.answer = lambda _: next(waits)
        queue.touch(ONE)
        await until(lambda: looks.seen == [ONE] * 3, "three looks")

    assert play(story).polled == []


@pytest.mark.parametrize("trouble", [Conflict("changed"), ApiUnavailable("down"), ValueError("a bug")])
def test_trouble_is_tried_again_and_others_go_on(trouble: Exception) -> None:
    async def story(queue: WorkQueue, looks: Looks) -> None:
        def fail_once(ref: Ref) -> float:
            if looks.seen.count(ref) == 1 and ref == ONE:
                raise trouble
            return 3600.0

        looks.answer = fail_once
        queue.touch(ONE)
        queue.touch(OTHER)
        await until(lambda: looks.seen.count(ONE) == 2 and OTHER in looks.seen, "another look")

    play(story)


def test_one_that_is_gone_is_forgotten_and_may_come_back() -> None:
    async def story(queue: WorkQueue, looks: Looks) -> None:
        looks.answer = lambda _: None
        queue.touch(ONE)
        await until(lambda: looks.seen == [ONE], "the look")
        await until(lambda: not queue.knows(ONE), "it is forgotten")
        queue.touch(ONE)
        await until(lambda: looks.seen == [ONE, ONE], "the look at the new one")

    play(story)


def test_a_queue_that_has_ended_is_told() -> None:
    async def end() -> WorkQueue:
        looks = Looks()
        with ThreadPoolExecutor(1) as executor:
            queue = WorkQueue(look=looks.look, poll=looks.poll, executor=executor, has_seen=looks.has_seen)
            queue._start_what_is_due = lambda: 1 // 0  # type: ignore[assignment,method-assign,return-value]
            assert not queue.is_over
            with pytest.raises(ZeroDivisionError):
                await queue.run()
        return queue

    queue = asyncio.run(end())
    assert queue.is_over
    process = _Running(cast(Cluster, None), cast(Definitions, None), look_s=60)
    process._queue = queue
    assert "the work queue has ended" in process.trouble()
    # What ends the pod is the probe's answer.
    with (
        Web("127.0.0.1", 0, is_alive=process.trouble, is_ready=process.waiting, metrics=Metrics()) as web,
        pytest.raises(HTTPError, match="503") as refused,
    ):
        urllib.request.urlopen(f"http://127.0.0.1:{web.port}/healthz", timeout=DEADLINE_S)
    with refused.value as answer:
        assert b"the work queue has ended" in answer.read()


@pytest.mark.parametrize(("selector", "pipelines"), [("", []), ("shard=a,!test", ["shard=a,!test"])])
def test_only_what_is_ours_is_watched(selector: str, pipelines: list[str]) -> None:
    async def never() -> Coroutine[None, None, None]:
        raise NotImplementedError

    child = Kind("sparkoperator.k8s.io/v1beta2", "SparkApplication", "sparkapplications")
    nothing = cast(Any, None)
    _, settings = build(never, nothing, child, (), nothing, Selector.parse(selector))
    asked = {
        plural: settings.watching.label_selectors.collect(references.Resource(group, version, plural))
        for group, version, plural in (
            ("", "v1", "pods"),
            ("sparkoperator.k8s.io", "v1beta2", "sparkapplications"),
            ("sinkpipeline.io", "v1alpha1", "sinkpipelines"),
        )
    }
    assert asked == {"pods": [PIPELINE_LABEL], "sparkapplications": [PIPELINE_LABEL], "sinkpipelines": pipelines}
