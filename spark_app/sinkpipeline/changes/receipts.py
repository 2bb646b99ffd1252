"""What a stage tells its driver: a line of JSON for each thing that happened, on its standard output.

{"event":"claimed","run":...,"position":["0/325D0F70",467],"next":1200,"seconds":0.2}
{"event":"committed","position":...,"next":...,"rows":...,"dead":...,"dropped":...,"changes":{"public.orders":{"c":7}},
 "skipped":0,"committedAt":1763856000123,"transactions":[3,1]}
{"event":"state","position":...,"serverEnd":...,"lagBytes":...,"lagSeconds":0,"retainedBytes":...,"safeBytes":...,
 "slot":...,"timeline":1,"atRisk":null}
{"event":"failed","error":{"reason":...,"message":...,"remedy":...}}
{"event":"ended"}

While a snapshot goes on, the first three have "snapshot":{"phase":"Reading","epoch":0,"table":"public.orders",
"tablesDone":2,"tables":5,"rows":4711,"estimatedRows":81000}; the one that completes it has "snapshot":null.
While tables are read beside the stream, they have "incrementalSnapshot":{"table":"public.orders",
"tablesWaiting":2,"rows":4711}, with "waitsFor" where that can't go on; null once it is complete.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol

from sinkpipeline.core.errors import SinkPipelineError


class Receipts(Protocol):
    """Takes what a stage tells."""

    def __call__(self, event: str, **fields: Any) -> None: ...


class DriverGone(Exception):
    """Nobody takes the receipts any more."""


def to_stdout(event: str, **fields: Any) -> None:
    """Raises DriverGone."""
    try:
        sys.stdout.write(json.dumps({"event": event, **fields}, separators=(",", ":")) + "\n")
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        raise DriverGone from error


def failed(say: Receipts, error: SinkPipelineError) -> None:
    say("failed", error=error.to_dict())
