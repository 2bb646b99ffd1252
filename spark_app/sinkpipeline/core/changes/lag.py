"""For how long a change may have waited that a stage has not written yet: by the server's clock alone.

What is missing was committed behind the last change that is in the topic, and behind each moment at which nothing was
missing. So it was committed after the later of the two. The second one counts where only other tables change: their log
is read too, and no change comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class End:
    """A server's end, at one moment."""

    commit: int
    """Up to where its log is written, as positions have it."""
    clock: int
    """Its own, in Unix milliseconds."""


@dataclass(frozen=True)
class Lag:
    """What is known of it, from one look at the server to the next."""

    end: End | None = None
    """Of the last look."""
    since: int | None = None
    """Everything that was committed before this is in the topic, by the server's clock; None: nothing is known."""

    def after(self, end: End, *, reached: int, committed_at: int | None) -> Lag:
        """With one more look.

        Args:
            end: what the server has said.
            reached: everything that was committed before this is in the topic.
            committed_at: when the last change of the topic was committed, in milliseconds; None: none was seen.
        """
        looks = [each for each in (self.end, end) if each is not None]
        sure = [each.clock for each in looks if reached >= each.commit]
        known = [each for each in (self.since, committed_at, *sure) if each is not None]
        return Lag(end, max(known, default=None))

    @property
    def seconds(self) -> int | None:
        """Whole ones, rounded up, so that 0 says that nothing is missing. None while nothing is known."""
        if self.end is None or self.since is None:
            return None
        return max(0, -((self.since - self.end.clock) // 1_000))
