"""How long a hunt goes on, and with which seeds."""

from __future__ import annotations

import argparse
import itertools
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hunt:
    seeds: Iterator[int]
    ends: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.ends


def asked(prog: str, description: str | None, arguments: Sequence[str] | None) -> Hunt:
    """By the command's arguments."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--seconds", type=float, default=600.0, help="for how long (600); Ctrl-C ends it too")
    parser.add_argument("--seed", type=int, help="the first one; by default any")
    found = parser.parse_args(arguments)
    first = secrets.randbits(32) if found.seed is None else found.seed
    return Hunt(itertools.count(first), time.monotonic() + found.seconds)
