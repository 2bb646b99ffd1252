"""Data topics that are not there any more, or not named any more, though rows were delivered into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.topic_ids import by_name


def data_topic_lost(name: str, fact: str, called: str = "data topic") -> SinkPipelineError:
    return SinkPipelineError(
        Reason.DATA_TOPIC_LOST,
        f"{called} {name} is lost: {fact}",
        "nothing is created or delivered until a person decides: say where to go on with `sinkpipeline reset`",
    )


def check_several(
    before: str | None, rows: int | None, there: Mapping[str, str], declared: Sequence[str], called: str = "data topic"
) -> None:
    """Refuses to go on without a topic of a sink that has, or had, several. The worst of it is told.

    A topic that is new to the sink may be missing. Which topic got how many rows is not known: each got some.

    Args:
        before: the ids that are known, as `core/topic_ids.py` has them.
        rows: how many were delivered, into all of them; None where that is not known.
        there: the ids of those declared topics that are there.
        declared: all that the manifest names.
        called: what messages call one.

    Raises:
        SinkPipelineError: DataTopicLost, DataTopicRemoved.
    """
    known = by_name(before, there)
    delivered = "rows were delivered" if rows is None else f"{rows} rows were delivered"
    if not there or (before is not None and not known):
        # Of a sink that had one topic only the id is known.
        what = f"no topic has the id {before}" if there else "it is missing"
        raise data_topic_lost(", ".join(declared), f"{what}, and {delivered} into it", called)
    for name in sorted(known.keys() & set(declared)):
        if name not in there:
            raise data_topic_lost(name, f"it is missing, and {delivered} into the sink's topics", called)
        if there[name] != known[name]:
            raise data_topic_lost(name, f"it was re-created: its id was {known[name]}, is {there[name]}", called)
    gone = sorted(known.keys() - set(declared))
    if gone:
        raise SinkPipelineError(
            Reason.DATA_TOPIC_REMOVED,
            f"the sink has delivered into {', '.join(gone)}, which the manifest does not name any more",
            "name it in kafka.topics again, or say where to go on without it with `sinkpipeline reset`",
        )
