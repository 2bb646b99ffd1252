"""A server of this machine for tests: in a directory of its own, and killed when this process dies, in whatever way."""

from __future__ import annotations

import os
import signal
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from servers.local_process import HOST, LocalProcess, free_ports

if TYPE_CHECKING:
    from types import TracebackType


class Opened(ABC):
    """What a `with` opens, and closes: also if it does not come up."""

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class LocalServer(Opened):
    """One server, at a port of the loopback address; use it in a `with`. What it keeps is there across `kill`."""

    def __init__(self, name: str) -> None:
        [self.port] = free_ports(1)
        self._scratch = tempfile.TemporaryDirectory(prefix=f"local-{name}-")
        self.directory = Path(self._scratch.name)
        self._process: LocalProcess | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return None if self._process is None else self._process.pid

    @override
    def open(self) -> None:
        self.prepare()
        self.start()

    @override
    def close(self) -> None:
        self.kill()
        self._scratch.cleanup()

    def prepare(self) -> None:
        """Once, before the first start."""

    @abstractmethod
    def start(self) -> None:
        """Also again, after a `kill`."""

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP, until `resume`: it keeps its connections, and says nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
