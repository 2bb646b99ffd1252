"""What an image does without."""

from __future__ import annotations

import ast
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


def test_what_the_operator_keeps_of_our_code_asks_for_nothing_that_it_does_not_keep() -> None:
    """tests/kube/test_operator_image tries it, in an image; this is what a new import is told by at once."""
    root = environment.ROOT / "spark_app"
    lines = prune.patterns((environment.ROOT / "operator" / "unneeded-code.txt").read_text())
    gone = {
        each
        for path in prune.unneeded(root, [line for line in lines if line.startswith("sinkpipeline")])
        for each in (path.rglob("*.py") if path.is_dir() else [path])
    }
    wrong = [
        f"{path.relative_to(root)} imports {name}"
        for path in root.glob("sinkpipeline/**/*.py")
        if path not in gone and path.name != "__main__.py"
        for name in imported(ast.parse(path.read_text()))
        if any(each in gone for each in (root / f"{name}.py", root / name / "__init__.py"))
    ]
    assert not wrong, wrong


def imported(module: ast.Module) -> list[str]:
    """What a module imports when it is loaded, as paths."""
    found = []
    for each in module.body:
        if isinstance(each, ast.ImportFrom) and each.module is not None:
            name = each.module.replace(".", "/")
            found += [name, *(f"{name}/{alias.name}" for alias in each.names)]
        elif isinstance(each, ast.Import):
            found += [alias.name.replace(".", "/") for alias in each.names]
    return found
