"""Secrets as files, as a pod would have them: clients take certificates and passwords from there."""

from __future__ import annotations

import base64
import hashlib
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sinkpipeline_operator.kube.client import Ref


class SecretFiles:
    """Usable from several threads.

    A directory for each content, so that no thread changes another's, and a client of the same Secrets is the same
    client. It goes once no pipeline has that content, and nobody uses it: it takes memory.
    """

    def __init__(self) -> None:
        self._root: Path | None = None
        """Of this process alone, and gone with it; an operator that never needs a Secret makes none."""
        self._of: dict[Ref, Path] = {}
        self._users: Counter[Path] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def written(self, ref: Ref, secrets: Mapping[str, Mapping[str, str]]) -> Iterator[Path]:
        """The directory, which stays while it is used: by name of the Secret and key; data is in base64."""
        words = repr(sorted((name, sorted(data.items())) for name, data in secrets.items()))
        with self._lock:
            if self._root is None:
                self._root = Path(tempfile.mkdtemp(prefix="sinkpipeline-operator-"))
            directory = self._root / hashlib.sha256(words.encode()).hexdigest()
            if not directory.is_dir():
                _write(directory, secrets)
            before, self._of[ref] = self._of.get(ref), directory
            self._users[directory] += 1
            if before is not None:
                self._remove_if_unused(before)
        try:
            yield directory
        finally:
            with self._lock:
                self._users[directory] -= 1
                self._remove_if_unused(directory)

    def forget(self, ref: Ref) -> None:
        """The pipeline is gone."""
        with self._lock:
            before = self._of.pop(ref, None)
            if before is not None:
                self._remove_if_unused(before)

    def close(self) -> None:
        with self._lock:
            if self._root is not None:
                shutil.rmtree(self._root, ignore_errors=True)
                self._root = None

    def _remove_if_unused(self, directory: Path) -> None:
        """With the lock held."""
        if not self._users[directory] and directory not in self._of.values():
            del self._users[directory]
            shutil.rmtree(directory, ignore_errors=True)


def _write(directory: Path, secrets: Mapping[str, Mapping[str, str]]) -> None:
    staging = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(staging, ignore_errors=True)
    for name, data in secrets.items():
        (staging / name).mkdir(parents=True)
        for key, value in data.items():
            (staging / name / key).write_bytes(base64.b64decode(value))
    staging.mkdir(exist_ok=True)
    staging.rename(directory)
