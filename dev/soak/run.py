"""`make soak`: kills and faults for as long as one likes, in an order that a seed decides; then everything is counted.

`KIND=kafka`, the default: into topics. `KIND=postgresql`: into tables of a PostgreSQL server, which is killed too.
`KIND=nats`, `KIND=redis`: into streams, whose server is killed too.
`KIND=debezium`: a table follows the changes of another one, and both are compared.
`SOURCE=postgresql`, `SOURCE=mariadb`, `SOURCE=mysql`: the changes of a database, compared with what its server says of
them; its stage and server are killed.

It ends with 1 if a row is missing, or is there twice where it must not be, or out of order, or if the command gives up;
some records are bad, and the same holds for their dead letters.
The order of the faults repeats with the seed; their moments don't, so a seed finds its bug again only by and large.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console

from soak import databases, following, streams, tables, topics
from soak.options import command_line
from soak.outcome import Outcome, show

_SOURCE: Final = "source-"
"""Before the name of a kind that is a source."""
KINDS: Final[Mapping[str, Callable[[argparse.Namespace, Path, Console], Outcome]]] = {
    "kafka": lambda options, *where: topics.soak(options.seconds, options.seed, *where),
    "postgresql": lambda options, *where: tables.soak(options.seconds, options.seed, *where),
    **{
        kind: lambda options, *where, kind=kind: streams.soak(kind, options.seconds, options.seed, *where)
        for kind in streams.KINDS
    },
    "debezium": lambda options, *where: following.soak(options.changes, options.kills, options.seed, *where),
    **{
        f"{_SOURCE}{kind}": lambda options, *where, kind=kind: databases.soak(
            kind, options.seconds, options.seed, *where
        )
        for kind in databases.KINDS
    },
}


def main() -> int:
    parser = command_line("soak", "Kills and faults, and then everything is counted.")
    parser.add_argument(
        "kind", nargs="?", choices=KINDS, default="kafka", help="what the sink is, or the source (kafka)"
    )
    parser.add_argument("--changes", type=int, default=100_000, help="of debezium: how many are made (100,000)")
    parser.add_argument("--kills", type=int, default=10, help="of debezium, which lasts until both are done (10)")
    options = parser.parse_args()
    least = following.least_changes(options.kills)
    if options.kind == "debezium" and options.changes < least:
        parser.error(f"{options.kills} kills need {least:,} changes or more, and --changes is {options.changes}")
    console = Console(soft_wrap=True)
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    outcome = KINDS[options.kind](options, directory, console)
    show(outcome, console)
    if outcome.problems:
        console.print(f"FAILED; the logs are in {directory}; again: {asked(options.kind)} SOAK='{again(options)}'")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    console.print("OK")
    return 0


def asked(kind: str) -> str:
    """As `make` is told."""
    source = kind.removeprefix(_SOURCE)
    return f"KIND={kind}" if source == kind else f"SOURCE={source}"


def again(options: argparse.Namespace) -> str:
    if options.kind == "debezium":
        return f"--changes {options.changes} --kills {options.kills} --seed {options.seed}"
    return f"--seconds {options.seconds:.0f} --seed {options.seed}"
