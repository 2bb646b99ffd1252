"""docs/first-pipeline.md, typed as it is printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servers.local_process import cache_directory, free_ports

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(520),
    pytest.mark.thorough("starts Spark twice; tests/e2e/test_run has what its commands do"),
]

ROOT = Path(__file__).parents[2]
INSTALLED = "make install\n"
"""The test could not run without it."""


def test_its_commands_do_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "first-pipeline.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    assert blocks[0].startswith(INSTALLED)
    [port] = free_ports(1)
    script = "".join(blocks).removeprefix(INSTALLED).replace("9092", str(port))
    # What is written goes below the test's own directory.
    (tmp_path / "dev").symlink_to(ROOT / "dev")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"trap 'kill %1' EXIT\n{script}"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path / "home"), "SINKPIPELINE_CACHE": str(cache_directory())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = shell.communicate(timeout=480)
    except subprocess.TimeoutExpired:
        # What it waits for is in its output: that is read to its end.
        os.killpg(shell.pid, signal.SIGKILL)
        out, _ = shell.communicate()
        pytest.fail(f"it has not ended in 480 s:\n{out}")
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, out
    assert out.split()[-1] == "101", out
    assert "expressions: valid" in out
    ids = sorted(int(each) for each in re.findall(r'"id":(\d+)', (tmp_path / "rows.txt").read_text()))
    assert ids == list(range(900, 1001))
    assert "`grep` says 101" in text
