"""For how long things go wrong, and in which order."""

from __future__ import annotations

import argparse
import secrets


def command_line(prog: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--seconds", type=float, default=600.0, help="for how long (600)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="the order; by default any")
    return parser
