"""The operator with nothing but what its image holds."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import prune
from servers.local_process import HOST
from support import environment
from support.kube.operator_lab import OperatorLab

pytestmark = [pytest.mark.kube, pytest.mark.thorough("the same operator, with fewer files of others")]

UNNEEDED = [environment.ROOT / "operator" / name for name in ("unneeded.txt", "unneeded-code.txt")]
IMPORT_ALL = """
import importlib, pkgutil, sys
for top in map(importlib.import_module, ("sinkpipeline_operator", "sinkpipeline")):
    for each in pkgutil.walk_packages(top.__path__, top.__name__ + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"pip", "pyspark", "pandas", "pyarrow", "numpy", "pytest"}, loaded
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment.make(tmp_path_factory.mktemp("image"), "sinkpipeline-operator", "", *UNNEEDED)


def test_it_misses_nothing(python: Path, new_lab: Callable[..., OperatorLab], name: str) -> None:
    subprocess.run([python, "-I", "-c", IMPORT_ALL], check=True)
    lab = new_lab("--kafka-access")
    lab.start(python=[str(python)])
    lab.apply(lab.pipeline(name, deletionPolicy="Delete"))
    lab.until_ready(name)
    lab.drivers.kill((lab.namespace, name))
    lab.until_ready(name)
    assert "sinkpipeline_" in lab.answer("/metrics")[1]
    asked = [str(python), "-m", "sinkpipeline_operator.ready", f"http://{HOST}:{lab.port}/readyz", "0"]
    assert subprocess.run(asked, check=True, capture_output=True, text=True).stdout.endswith(": ok\n")
    plugin = [str(python), "-c", "from sinkpipeline_operator.plugin.main import main; main()"]
    status = [*plugin, "status", name, f"--namespace={lab.namespace}", f"--kubeconfig={lab.cluster.kubeconfig}"]
    shown = subprocess.run(status, check=True, capture_output=True, text=True).stdout
    assert shown.startswith(f"{lab.namespace}/{name}: ")
    assert lab.stop() == 0
    assert not {"ModuleNotFoundError", "ImportError", "FileNotFoundError"} & set(re.findall(r"\w+Error", lab.log))


def test_it_has_no_more_than_its_share(python: Path) -> None:
    # 100 MB over the base, with the bytecode that pip makes.
    assert prune.size(python.parents[1]) < 60e6
