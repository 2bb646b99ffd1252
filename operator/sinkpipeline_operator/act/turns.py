"""Which drivers restart now, if many have to: a few at a time, in the order in which they asked.

A free turn is offered to the first of the line. Nobody bars the others: an offer passes on from a pipeline whose look
fails, and one that has held a turn for too long goes to the end of the line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sinkpipeline.core.status import condition_of
from sinkpipeline_operator.child.driverpod import ChildState
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.observe.observer import Seen


class Turns:
    """Of one operator, for as long as it lives. Usable from several threads."""

    def __init__(
        self,
        most: int,
        *,
        patience_s: float,
        tell: Callable[[Ref], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most` at once; one that takes longer than `patience_s` holds up nobody any more. `tell`: that it may ask."""
        self._most = most
        self._patience_s = patience_s
        self._tell = tell
        self._clock = clock
        self._began: dict[Ref, float] = {}
        self._waiting: dict[Ref, None] = {}
        self._offered: set[Ref] = set()
        """Those in the line that were told, and have not asked yet."""
        self._passed: set[Ref] = set()
        """Those whose look failed since: what is free now is offered to others."""
        self._slow: set[Ref] = set()
        """Those that were let go, and let others go first once."""
        self._lock = threading.Lock()

    def ask(self, seen: Seen) -> Seen:
        """With whether its driver may be restarted now, where an image or a Secret wants that, which many may share."""
        return replace(seen, observation=replace(seen.observation, its_turn=self._is_its_turn(seen)))

    def _is_its_turn(self, seen: Seen) -> bool:
        child, run, observation = seen.child, seen.run, seen.observation
        stored = None if child is None else seen.config(child.config_hash)
        stays = observation.suspended or observation.deleting or observation.paused or bool(observation.held)
        waits = (
            child is not None
            and run is not None
            and stored is not None
            and not (child.foreign or child.deleting or stays)
            and child.state is ChildState.RUNNING
            and run.hash not in {child.config_hash, *observation.rejected}
            # Else somebody has changed the manifest, and waits for it.
            and stored.is_of(run)
        )
        if not waits:
            self.leave(seen.ref)
            return True
        return self.take(seen.ref)

    def settle(self, seen: Seen, status: Mapping[str, Any]) -> None:
        """Whoever delivers with what is wanted lets the next one restart; so does one that needs a person."""
        if not self.has(seen.ref):
            return
        is_new = seen.child is not None and seen.run is not None and seen.child.config_hash == seen.run.hash
        is_ready = condition_of(status, "Ready").get("status") == "True"
        stands = seen.observation.suspended or seen.observation.deleting
        if stands or (is_new and is_ready) or condition_of(status, "Stalled").get("status") == "True":
            self.end(seen.ref)

    def take(self, ref: Ref) -> bool:
        """Whether it is its turn; else it is told when it may ask again."""
        with self._lock:
            self._let_go_of_slow_ones()
            took = self._take(ref)
            told = self._next()
        self._tell_all(told)
        return took

    def has(self, ref: Ref) -> bool:
        """Whether it has one, and has not been at it for too long."""
        with self._lock:
            self._let_go_of_slow_ones()
            has, told = ref in self._began, self._next()
        self._tell_all(told)
        return has

    def leave(self, ref: Ref) -> None:
        """It waits no more: it needs no restart, or is restarted for something else."""
        with self._lock:
            if ref not in self._waiting:
                return
            self._forget(ref)
            told = self._next()
        self._tell_all(told)

    def looked(self, ref: Ref) -> None:
        """Its look is over. If it was told, and the look failed before it could ask, another one is told."""
        with self._lock:
            if ref not in self._offered:
                return
            self._offered.discard(ref)
            self._passed.add(ref)
            told = self._next()
        self._tell_all(told)

    def end(self, ref: Ref) -> None:
        """It is done."""
        with self._lock:
            self._began.pop(ref, None)
            self._forget(ref)
            self._offer_anew()
            told = self._next()
        self._tell_all(told)

    def _take(self, ref: Ref) -> bool:
        if ref in self._began:
            return True
        others = self._waiting.keys() - self._passed - {ref}
        goes_last = ref in self._slow and bool(others)
        if goes_last or len(self._began) >= self._most:
            self._offered.discard(ref)
            if goes_last:
                self._forget(ref)
                self._passed.add(ref)
            self._waiting[ref] = None
            return False
        self._forget(ref)
        self._began[ref] = self._clock()
        return True

    def _forget(self, ref: Ref) -> None:
        """That it waits."""
        self._waiting.pop(ref, None)
        for each in (self._offered, self._passed, self._slow):
            each.discard(ref)

    def _let_go_of_slow_ones(self) -> None:
        now = self._clock()
        slow = [each for each, began in self._began.items() if now - began > self._patience_s]
        for ref in slow:
            del self._began[ref]
        if slow:
            self._slow.update(slow)
            self._offer_anew()

    def _offer_anew(self) -> None:
        self._offered.clear()
        self._passed.clear()

    def _next(self) -> list[Ref]:
        """Those who may ask now. They stay in the line until they do: a look may fail."""
        free = self._most - len(self._began) - len(self._offered)
        told = [each for each in self._waiting if each not in self._offered | self._passed][: max(0, free)]
        self._offered.update(told)
        return told

    def _tell_all(self, refs: list[Ref]) -> None:
        for ref in refs:
            self._tell(ref)
