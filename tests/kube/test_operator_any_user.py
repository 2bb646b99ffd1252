"""The operator as a user that nothing knows by name, as its image and many clusters run it."""

from __future__ import annotations

import pwd
import subprocess
import sys
from collections.abc import Callable

import pytest

from support.kube.operator_lab import OperatorLab, nameless

pytestmark = pytest.mark.kube

UID = 65532
"""Of the image's USER."""


def runs_here() -> bool:
    try:
        started = subprocess.run([*nameless(UID), sys.executable, "-c", ""], check=False, capture_output=True)
    except FileNotFoundError:
        return False
    return started.returncode == 0


@pytest.mark.thorough("an operator of its own")
def test_a_user_without_a_name_may_run_it(new_lab: Callable[..., OperatorLab], name: str) -> None:
    if not runs_here():
        pytest.skip("needs root, setpriv, and a Python that other users may run")
    with pytest.raises(KeyError):
        pwd.getpwuid(UID)
    lab = new_lab()
    lab.start(nameless_uid=UID)
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    assert lab.stop() == 0
