"""For how long things go wrong, and in which order."""

from __future__ import annotations

import argparse
import secrets


def seconds_and_seed(prog: str, description: str) -> tuple[float, int]:
    """By the command's arguments; without a seed one is drawn."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    found = parser.parse_args()
    return found.seconds, secrets.randbelow(1_000_000) if found.seed is None else found.seed
