"""Where the events of a binary log stand, also beyond 4 GiB of a file, where what they say begins at 0 again.

A server closes a file behind the transaction that fills it, however large that is, and other ones may still come behind
it. Readers name a place by 32 bits. So nobody can begin to read beyond 4 GiB.

Source: https://bugs.mysql.com/bug.php?id=112189, and what a server says of a file that is larger.
"""

from __future__ import annotations

from typing import Final

from sinkpipeline.core.changes.binlog_events import Head

PLACES: Final = 1 << 32
"""How many places of a file can be named."""


class Places:
    """Follows what comes of a log, event by event."""

    def __init__(self, number: int, offset: int) -> None:
        """`number`: in the file's name; `offset`: where reading begins in it."""
        self.number = number
        self.end = offset
        """Where the next event begins, as far as that is known, and not cut to 32 bits."""

    def rotated(self, number: int, offset: int) -> None:
        """What comes next is of this file, from there on."""
        self.number, self.end = number, offset

    def passed(self, head: Head) -> None:
        """An event of the log came. Not each one comes, and some do not say where they end."""
        self.end += head.size
        if head.end:
            # The nearest place with these last 32 bits.
            self.end += (head.end - self.end + PLACES // 2) % PLACES - PLACES // 2

    def is_begin(self, head: Head) -> bool:
        """Whether anybody can begin at the newest event; `head`: of it."""
        return self.end - head.size < PLACES

    @property
    def is_named(self) -> bool:
        """Whether anybody can go on behind the newest event."""
        return self.end < PLACES
