"""A verdict that only a person undoes is not given on one answer.

A broker that is cut off from its controller, or has only just started, tells of topics as it knows them; whoever asks
it is told that a topic is missing, or is another one, while the cluster has it. So such a verdict is given when several
looks over half a minute agree, each with new clients, which begin with any of the brokers.

`SINKPIPELINE_LOOK_AGAIN_S` is for tests of the whole command: how long to wait between two looks.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from sinkpipeline.core.errors import Reason, SinkPipelineError

_LOG = logging.getLogger("sinkpipeline.start")
T = TypeVar("T")

VERDICTS = frozenset(
    {
        Reason.DATA_TOPIC_LOST,
        Reason.SOURCE_TOPIC_MISSING,
        Reason.SOURCE_RECREATED,
        # A leader that has been replaced, and doesn't know, tells an end of its own.
        Reason.SOURCE_DATA_LOST,
        # Ids are compared for it, too.
        Reason.PROGRESS_LOST,
    }
)
_LOOKS = 3
_BETWEEN_S = float(os.environ.get("SINKPIPELINE_LOOK_AGAIN_S", "15"))


def agreed(look: Callable[[], T], renew: Callable[[], None], verdicts: Collection[Reason] = VERDICTS) -> T:
    """What a look returns, as soon as one does.

    Args:
        look: what may raise a verdict.
        renew: makes the clients new, before the next look.
        verdicts: which errors are looked at again.

    Raises:
        SinkPipelineError: a verdict in which all looks agree; TopicsChanged where two of them differ; and at once
            whatever is no verdict.
    """
    told: list[SinkPipelineError] = []
    while True:
        try:
            return look()
        except SinkPipelineError as error:
            if error.reason not in verdicts:
                raise
            told.append(error)
            if told[0].reason is not error.reason:
                raise _disagreement(told[0], error) from error
            if len(told) == _LOOKS:
                raise
        _LOG.warning("%s: looking again in %.0f s, before it is believed", told[-1], _BETWEEN_S)
        time.sleep(_BETWEEN_S)
        renew()


def _disagreement(one: SinkPipelineError, other: SinkPipelineError) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.TOPICS_CHANGED,
        f"the brokers tell different things: first {one.message}; then {other.message}",
        "nothing if topics are being created or brokers are starting; otherwise look for a broker without a controller",
    )
