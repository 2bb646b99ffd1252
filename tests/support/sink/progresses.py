"""Progress as Hypothesis draws it."""

from __future__ import annotations

from hypothesis import strategies as st

from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.tally import Tally

_NUMBERS = ("epoch", "next", "rows", "dead", "dropped", "lost")


def partition_progresses(
    counts: st.SearchStrategy[int],
    at: st.SearchStrategy[int],
    by_class: st.SearchStrategy[Tally],
) -> st.SearchStrategy[PartitionProgress]:
    """The progress of one partition, with numbers and counts by class from these."""
    numbers = dict.fromkeys(_NUMBERS, counts)
    return st.builds(PartitionProgress, **numbers, at=at, by_class=by_class)
