"""Named points at which a test can stop a process, to kill it there.

Nothing happens unless `SINKPIPELINE_FAILPOINTS` is set to `NAME[=N][,...]`, beside `SINKPIPELINE_FAILPOINT_DIR`: at the
N-th time (the first by default) that a process reaches NAME, it writes the file `NAME.<pid>` there and sleeps until it
is killed. Waiting rather than dying leaves to the test what is killed: the worker, the driver, or everything.
Known names: `starting-after-control-init`, `starting-after-meta`, `starting-before-first-start`, `after-init`,
`after-rows-before-progress`, `after-progress-before-commit`, `after-commit`, `after-batch`.
The idea is TiKV's fail crate's, as Materialize uses it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_hits: dict[str, int] = {}


def _parse(setting: str) -> dict[str, int]:
    points = {}
    for part in filter(None, setting.split(",")):
        name, _, count = part.partition("=")
        points[name] = int(count or 1)
    return points


_POINTS = _parse(os.environ.get("SINKPIPELINE_FAILPOINTS", ""))


def failpoint(name: str) -> None:
    """Stops here for ever where a test asked for it."""
    if not _POINTS or name not in _POINTS:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] != _POINTS[name]:
        return
    directory = Path(os.environ["SINKPIPELINE_FAILPOINT_DIR"])
    (directory / f"{name}.{os.getpid()}").write_text(str(os.getpid()))
    while True:
        signal.pause()
