"""What an operator remembers of one pipeline from look to look."""

from __future__ import annotations

from dataclasses import dataclass, field

from sinkpipeline_operator.knowing import Refused
from sinkpipeline_operator.kube.client import ApiFailed, ApiRefused
from sinkpipeline_operator.observe.hearing import Hearing
from sinkpipeline_operator.observe.observer import Seen
from sinkpipeline_operator.report.writes import Pace

_LONGEST_POLL = 3
"""So many intervals at most lie between two questions to a driver that always says the same."""

_SILENT_RESYNCS = 10
"""So many pass before all of a pipeline is looked at whose driver is silent: that its pod has gone, a watch tells."""


@dataclass(kw_only=True)
class Remembered:
    """Of one pipeline, for as long as this process lives. Nothing of it is needed to go on."""

    seen: Seen | None = None
    looked_at: float = 0.0
    secrets_at: float = 0.0
    """When its Secrets were read last."""
    answers: bool = False
    """Whether its driver did when it was asked last."""
    same: int = 0
    """How often in a row its driver has said what the status says already."""
    look_at: float | None = None
    """When an action of it has to be looked at next."""
    pace: Pace = field(default_factory=Pace)
    announced: tuple[str, ...] | None = None
    """The data topics of whose deletion people were told; None where nobody was told yet."""
    hearing: Hearing
    refusal: Refused | None = None
    """Why the last step could not be taken."""
    told: ApiRefused | ApiFailed | None = None
    """What of it stands in the status."""
    token: str | None = field(default=None, repr=False)
    """The driver's, as it was last seen."""

    def is_late(self, now: float, resync_s: float, at_rest_s: float) -> bool:
        """Whether it is time for a whole look at a pipeline whose driver was asked.

        Resource, child, pods and actions are watched: while no watch tells anything, they are as they were seen. A
        driver that answers shows that its pod is there.
        """
        if self.look_at is not None and now >= self.look_at:
            return True
        return now - self.looked_at >= (at_rest_s if self.answers else min(at_rest_s, _SILENT_RESYNCS * resync_s))

    def poll_s(self, poll_s: float) -> float:
        """When its driver is asked again: later, where it has said the same for a while."""
        return poll_s * min(_LONGEST_POLL, 1 + self.same // _LONGEST_POLL)
