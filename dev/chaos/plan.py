"""What is done to a pipeline in which order, as a seed decides."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

LASTS_S: Final[Mapping[str, tuple[float, float]]] = {
    "driver killed": (0, 0),
    "driver evicted": (0, 0),
    "executor killed": (0, 0),
    "executor evicted": (0, 0),
    "operator killed": (0, 0),
    "operator evicted": (0, 0),
    "broker killed": (3, 20),
    "leaders moved": (0, 3),
    # Longer than a transaction may last, which is 60 s.
    "network cut": (65, 80),
    "API server restarted": (5, 25),
    # Longer than the node may be silent, which is 40 s.
    "kubelet down": (45, 70),
    "Kubeflow down during an edit": (5, 20),
    "progress topic deleted": (0, 0),
    "node drained": (5, 15),
    "memory exhausted": (0, 0),
}
"""For how long each is held, in seconds: from, to."""


@dataclass(frozen=True)
class Step:
    fault: str
    lasts_s: float
    choice: float
    """From 0 to 1: which of several pods or brokers."""


OURS_ONLY: Final = frozenset({"operator killed", "operator evicted", "progress topic deleted"})
"""What Spark's own sink doesn't have."""


def steps(seed: int, faults: Collection[str] = LASTS_S) -> Iterator[Step]:
    """Without an end: each of the faults once, then each once more in another order."""
    chance = random.Random(seed)  # noqa: S311 - it is to be repeated
    while True:
        deck = list(faults)
        chance.shuffle(deck)
        for fault in deck:
            yield Step(fault, chance.uniform(*LASTS_S[fault]), chance.random())
