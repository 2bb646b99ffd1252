"""Which process of a parallel run takes which file: `--dist loadfile`, from both ends.

Tests of `tests/kafka` wait four fifths of their time, those of the other folders compute half of theirs. One folder
after the other would leave the cores idle at the end of a run and overload them at its beginning. So every second
process takes its files from the end. A process still has files in a row that need the same servers (`keeper`).
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class BothEnds(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Of a process that crashed, xdist hands out again also the files that it had done.

        Who gets one has nothing to run, says nothing, is sent nothing more, and the run never ends.
        """
        work = self.assigned_work[node]
        for file in [file for file, tests in work.items() if all(tests.values())]:
            del work[file]
        crashed: str | None = super().remove_node(node)
        return crashed


class Sharing:
    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> BothEnds | None:
        """None leaves it to xdist."""
        return BothEnds(config, log) if config.getoption("dist") == "loadfile" else None
