"""What an image does without."""

from __future__ import annotations

from pathlib import Path

import pytest

import prune
from support import environment


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    for name in (
        "a/__init__.py",
        "a/big.py",
        "a/small.py",
        "a/__pycache__/big.cpython-311.pyc",
        "b/x.py",
        "b-1.dist-info/R",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    return tmp_path


def left(site_packages: Path) -> set[str]:
    return {str(each.relative_to(site_packages)) for each in site_packages.rglob("*") if each.is_file()}


def test_what_the_list_names_goes_with_its_bytecode(site_packages: Path) -> None:
    prune.prune(site_packages, "# why\nb\nb-*\na/*.py  # but\n!a/__init__.py\n!a/small.py\n?c\n")
    assert left(site_packages) == {"a/__init__.py", "a/small.py"}


def test_a_line_that_fits_nothing_is_told_before_anything_goes(site_packages: Path) -> None:
    before = left(site_packages)
    with pytest.raises(prune.PruneError, match=r"a/bigger\.py: there is no such file"):
        prune.prune(site_packages, "b\na/bigger.py\n")
    assert left(site_packages) == before


def test_bytecode_that_a_run_has_left_is_no_part_of_an_image(site_packages: Path) -> None:
    assert prune.size(site_packages) == len(left(site_packages)) - 1


def test_the_list_of_our_own_code_fits_the_code() -> None:
    # An image is built late, and a module moves early.
    of_ours = (environment.ROOT / "operator" / "unneeded-code.txt").read_text()
    patterns = [each for each in prune.patterns(of_ours) if each.startswith("sinkpipeline")]
    assert patterns
    prune.unneeded(environment.ROOT / "spark_app", patterns)
