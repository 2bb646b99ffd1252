"""What ends a command."""

from __future__ import annotations

from typing_extensions import override

FAILED, USAGE = 1, 2
"""Exit codes."""


class Failure(Exception):
    """With a reason, the facts, and what to do about them."""

    def __init__(self, reason: str, message: str, remedy: str = "") -> None:
        super().__init__(reason, message, remedy)
        self.reason = reason
        self.message = message
        self.remedy = remedy

    @override
    def __str__(self) -> str:
        return f"{self.reason}: {self.message}{f' ({self.remedy})' if self.remedy else ''}"
