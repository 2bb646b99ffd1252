"""Processes and threads without real threads: one of them runs at a time, until its next call of a client.

Each such call is a point at which the schedule may go elsewhere, at which a process may be killed, and at which the
call may fail, or be done although its caller is told that it failed, or be done later. Time is virtual: it is that of
the event that comes next.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from greenlet import greenlet

T = TypeVar("T")

NEVER = float("inf")


class Killed(BaseException):
    """Ends a thread of a process that is gone; nothing that it does on its way out reaches the cluster."""


class TooLong(Exception):
    """More happened than any run of this size needs: something goes round in circles."""


class Fate(enum.Enum):
    """What becomes of a call."""

    DONE = "done"
    FAILED = "failed"
    """Not done; its caller learns it at once."""
    LOST = "lost"
    """Done, but the answer is lost, which its caller learns at once."""
    LATE = "late"
    """As LOST, but the request is still on its way, and is done when the schedule says."""
    TIMED_OUT = "timed out"
    """Not done; its caller waits for its whole time-out."""
    LOST_LONG = "lost long"
    """Done; its caller waits for its whole time-out."""


@dataclass(eq=False)
class Process:
    """One operating system process."""

    name: str
    latency_s: float
    dead: bool = False
    over: bool = False
    """Set by its main thread when it returns: the process ends, and its children with it."""
    children: list[Process] = field(default_factory=list)


@dataclass(eq=False)
class Thread:
    process: Process
    name: str
    role: str
    order: int
    greenlet: greenlet = field(init=False)
    label: str = "start"
    """What it is about to do."""
    ready_at: float = 0.0
    condition: Callable[[], bool] | None = None
    """It is ready as soon as this is true, and at `ready_at` in any case."""
    held: bool = False
    done: bool = False
    fate: Fate = Fate.DONE
    calls: int = 0
    error: BaseException | None = None
    context: object = None

    def __str__(self) -> str:
        return f"{self.process.name}/{self.name}"


class Scheduler:
    """Runs threads; whoever calls it (the machine, a test) is none of them."""

    def __init__(self, *, pass_time: Callable[[float], None] = lambda _: None, limit: int = 50_000) -> None:
        self.now = 1000.0
        self.threads: list[Thread] = []
        self.late: list[tuple[str, Callable[[], object]]] = []
        """Requests that are still on their way."""
        self._trace: list[tuple[float, str | Thread, str]] = []
        self.closed = False
        self.stopped = False
        """Set by whoever found what was looked for: nothing runs any more."""
        self._pass_time = pass_time
        self._steps = 0
        self._limit = limit
        self._hub = greenlet.getcurrent()
        self._running: Thread | None = None
        self._orders = itertools.count()

    # For those who run in threads

    @property
    def current(self) -> Thread | None:
        return self._running

    def spawn(self, process: Process, name: str, role: str, target: Callable[[], object]) -> Thread:
        thread = Thread(process, name, role, next(self._orders), ready_at=self.now)

        def body() -> None:
            try:
                target()
            except Killed:
                pass
            except Exception as error:  # noqa: BLE001 - what a thread dies of is its spawner's to look at
                thread.error = error
            finally:
                thread.done = True

        thread.greenlet = greenlet(body, parent=self._hub)
        self.threads.append(thread)
        return thread

    def call(
        self,
        label: str,
        effect: Callable[[], T],
        failed: Callable[[Fate], T],
        *,
        timeout_s: float = 10.0,
    ) -> T:
        """A request of a client: does `effect` when its moment has come.

        `failed` raises or returns what the caller gets where the answer doesn't come.
        """
        thread = self._alive()
        if thread is None:
            return effect()
        thread.calls += 1
        fate = self._pause(thread, label, self.now + thread.process.latency_s, None)
        if fate is Fate.DONE:
            return effect()
        self._trace.append((self.now, thread, f"{label}: {fate.value}"))
        if fate is Fate.LATE:
            self.late.append((f"{thread} {label}", effect))
        elif fate in (Fate.LOST, Fate.LOST_LONG):
            self._silently(effect)
        if fate in (Fate.TIMED_OUT, Fate.LOST_LONG):
            self._pause(thread, "no answer", self.now + timeout_s, None)
        return failed(fate)

    def wait(self, label: str, condition: Callable[[], bool] | None, timeout_s: float | None = None) -> bool:
        """Waits until something is so, or for a time; whether it is."""
        thread = self._alive()
        if thread is None:
            return condition is not None and condition()
        deadline = NEVER if timeout_s is None else self.now + timeout_s
        self._pause(thread, label, deadline, condition)
        return condition is not None and condition()

    def _alive(self) -> Thread | None:
        """The thread that asks, or None where the machine itself does."""
        thread = self._running
        if self.closed or (thread is not None and thread.process.dead):
            raise Killed
        return thread

    def _pause(self, thread: Thread, label: str, ready_at: float, condition: Callable[[], bool] | None) -> Fate:
        thread.label, thread.ready_at, thread.condition, thread.fate = label, ready_at, condition, Fate.DONE
        self._hub.switch()
        return thread.fate

    def _silently(self, effect: Callable[[], object]) -> None:
        try:
            effect()
        except Exception as error:  # noqa: BLE001 - nobody hears of it
            self.tell(f"  (refused: {error})")

    # For whoever runs them

    def tell(self, text: str) -> None:
        self._trace.append((self.now, "", text))

    @property
    def trace(self) -> list[str]:
        """What happened, a line each."""
        return [f"{now:9.3f} {thread} {text}" for now, thread, text in self._trace]

    def runnable(self) -> Iterator[Thread]:
        return (thread for thread in self.threads if not thread.done and not thread.held)

    def held(self) -> list[Thread]:
        return [thread for thread in self.threads if thread.held]

    def step(self, thread: Thread, fate: Fate = Fate.DONE) -> None:
        """Lets one thread go on until its next call."""
        if thread.done or self.stopped or self._time_of(thread) == NEVER:
            return
        self._steps += 1
        if self._steps > self._limit:
            raise TooLong(f"{self._limit} calls")
        self.now = max(self.now, self._time_of(thread))
        self._pass_time(self.now)
        thread.fate = fate
        self._trace.append((self.now, thread, thread.label))
        before, self._running = self._running, thread
        try:
            thread.greenlet.switch()
        finally:
            self._running = before
        if thread.done and thread in self.threads:
            self.threads.remove(thread)
        if thread.process.over and not thread.process.dead:
            for process in [thread.process, *thread.process.children]:
                self.kill(process)

    def next(self) -> Thread | None:
        """The thread whose event comes first."""
        best, best_time = None, NEVER
        for thread in self.runnable():
            time = self._time_of(thread)
            if time < best_time:
                best, best_time = thread, time
        return best

    def run(self, until: Callable[[], bool] = lambda: False, *, seconds: float = NEVER, steps: int = 1_000_000) -> bool:
        """Runs whoever comes next, until something is so (true) or the time is over (false)."""
        end = self.now + seconds
        for _ in range(steps):
            if self.stopped or until():
                return True
            thread = self.next()
            if thread is None or self._time_of(thread) > end:
                if seconds != NEVER:
                    self.now = max(self.now, end)
                    self._pass_time(self.now)
                return until()
            self.step(thread)
        return until()

    def run_to(
        self, found: Callable[[Thread], bool], *, nth: int = 1, seconds: float = 30.0, steps: int = 500
    ) -> Thread | None:
        """Runs until a thread stands for the nth time where it is looked for; None where that doesn't happen."""
        end = self.now + seconds
        for thread in self.runnable():
            nth -= found(thread)
            if nth == 0:
                return thread
        for _ in range(steps):
            thread_or_none = self.next()
            if self.stopped or thread_or_none is None or self._time_of(thread_or_none) > end:
                return None
            thread = thread_or_none
            self.step(thread)
            if not thread.done and found(thread):
                nth -= 1
                if nth == 0:
                    return thread
        return None

    def go_alone(self, thread: Thread, until: Callable[[], bool] = lambda: False, *, steps: int = 200) -> None:
        """Lets a thread go on, and nobody else, until something is so; for it, time passes as it waits."""
        thread.held = False
        for _ in range(steps):
            if self.stopped or until() or thread.done or thread.process.dead or self._time_of(thread) == NEVER:
                return
            self.step(thread)

    def deliver(self, index: int) -> None:
        """A late request arrives."""
        label, effect = self.late.pop(index)
        self.tell(f"{label}: arrives late")
        self._silently(effect)

    def kill(self, process: Process) -> None:
        process.dead = True
        self.tell(f"{process.name} is killed")
        for thread in [each for each in self.threads if each.process is process]:
            self._end(thread)

    def close(self) -> None:
        self.closed = True
        for thread in list(self.threads):
            self._end(thread)

    def _end(self, thread: Thread) -> None:
        if thread is self._running:
            raise ValueError("a thread doesn't kill its own process; it returns")
        self.threads.remove(thread)
        before, self._running = self._running, thread
        if not thread.done and thread.greenlet:
            thread.greenlet.throw(Killed)
        thread.done, self._running = True, before

    def _time_of(self, thread: Thread) -> float:
        if thread.condition is not None and thread.condition():
            return self.now
        return thread.ready_at
