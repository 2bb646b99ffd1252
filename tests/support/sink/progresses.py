"""Progress as Hypothesis draws it."""

from __future__ import annotations

from hypothesis import strategies as st

from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.tally import Tally

_NUMBERS = ("epoch", "next", "rows", "dead", "dropped", "lost")


def partition_progresses(
    counts: st.SearchStrategy[int],
    at: st.SearchStrategy[int],
    dead_by_class: st.SearchStrategy[Tally],
    dropped_by_class: st.SearchStrategy[Tally] | None = None,
) -> st.SearchStrategy[PartitionProgress]:
    """The progress of one partition, with numbers and counts by class from these."""
    dropped = st.just(()) if dropped_by_class is None else dropped_by_class
    numbers = dict.fromkeys(_NUMBERS, counts)
    return st.builds(PartitionProgress, **numbers, at=at, dead_by_class=dead_by_class, dropped_by_class=dropped)
