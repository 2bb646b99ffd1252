"""Takes out of an image's environment what nothing in it ever loads: `python prune.py VENV LIST`.

A line of the list is a pattern of paths below site-packages; `!` before it keeps what an earlier one takes; `#` begins
a comment. A pattern that matches nothing is an error, without `?` before it: what it was for may have another name now.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path


class PruneError(Exception):
    """The list doesn't fit the environment."""


def unneeded(site_packages: Path, patterns: list[str]) -> set[Path]:
    """What goes: files, and directories as a whole.

    Raises:
        PruneError: a pattern matches nothing.
    """
    found: set[Path] = set()
    for pattern in patterns:
        matched = set(site_packages.glob(pattern.lstrip("!?")))
        if not matched and not pattern.startswith("?"):
            raise PruneError(f"{pattern}: there is no such file in {site_packages}")
        found = found - matched if pattern.startswith("!") else found | matched
    return found


def patterns(text: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def prune(site_packages: Path, text: str) -> None:
    """Raises PruneError before anything is gone."""
    for path in unneeded(site_packages, patterns(text)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for path in list(_compiled(site_packages)):
        path.unlink()


def _compiled(site_packages: Path) -> Iterator[Path]:
    """Bytecode whose source is gone: Python never reads it."""
    for path in site_packages.rglob("__pycache__/*.pyc"):
        if not (path.parent.parent / f"{path.name.partition('.')[0]}.py").exists():
            yield path


def size(directory: Path) -> int:
    """Bytes of its files, without bytecode: no image has any, and whoever runs something from a directory adds some."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if not path.is_dir() and path.suffix != ".pyc")


def main() -> None:
    venv, listed = map(Path, sys.argv[1:])
    [site_packages] = venv.glob("lib/python3*/site-packages")
    before = size(venv)
    try:
        prune(site_packages, listed.read_text())
    except PruneError as error:
        sys.exit(f"prune: {listed}: {error}")
    print(f"prune: {venv}: {before / 1e6:.0f} MB before, {size(venv) / 1e6:.0f} MB after")


if __name__ == "__main__":
    main()
