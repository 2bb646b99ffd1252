"""Named points at which a test can hold a process, to kill it there or to let it go on late.

Nothing happens unless `SINKPIPELINE_FAILPOINT_DIR` is set. Then a process that reaches a point for which the file NAME
stands in that directory renames it to NAME.<pid> (so that one process takes it) and waits until that is removed.
Known names: `starting-after-control-init`, `starting-after-a-data-topic`, `starting-after-data-topic`,
`starting-after-meta`, `starting-before-first-start`, `after-init`, `after-rows-before-progress`,
`after-progress-before-commit`, `after-commit`, `after-batch`, `delivered-rows-before-progress`,
`delivered-progress-before-commit`, `delivered-after-commit`, `reset-before-transaction`, `reset-before-commit`,
`reset-after-commit`, `removal-after-a-data-topic`, `removal-before-tombstones`, `redrive-after-claim`,
`redrive-before-commit`, `redrive-before-record`, `redrive-after-commit`, `redis-after-commit`, `redis-before-commit`,
`snapshot-after-complete`, `snapshot-after-drop`, `snapshot-after-epoch`, `snapshot-after-opening`,
`snapshot-before-complete`, `snapshot-taken-back`, `sql-after-cell`, `sql-before-commit`, `stage-after-claim`,
`stage-after-creation`, `stage-after-meta`, `stage-after-slot`.
The idea is TiKV's fail crate's, as Materialize uses it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_DIRECTORY = os.environ.get("SINKPIPELINE_FAILPOINT_DIR")
_POLL_S = 0.02


def failpoint(name: str) -> None:
    """Waits here where a test asked for it."""
    if _DIRECTORY is None:
        return
    held = Path(_DIRECTORY, f"{name}.{os.getpid()}")
    try:
        Path(_DIRECTORY, name).rename(held)
    except FileNotFoundError:
        return
    while held.exists():
        time.sleep(_POLL_S)
