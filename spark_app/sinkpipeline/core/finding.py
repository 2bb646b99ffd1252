"""What is found of a sink before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.topics import Beginning, TopicDecision


@dataclass(frozen=True)
class Finding:
    """What was found of one sink: what a start would do, or why it would be refused."""

    sink: SinkId
    decision: TopicDecision | None
    error: SinkPipelineError | None
    warnings: tuple[str, ...] = ()
    creates_dead_letters: bool = False
    begins: tuple[str, ...] = ()
    """Of a first start that goes on for somebody else: where, and what is delivered again."""

    called: str = "topic"
    """What the rows and the progress are kept in."""

    @property
    def plan(self) -> str:
        """One line for a person."""
        if self.decision is None:
            return "would be refused" if self.error is not None else "waits for its source"
        created = [
            name
            for name, create in (
                (f"the progress {self.called}", self.decision.create_progress),
                (f"the data {self.called}", self.decision.create_data),
                ("the dead-letter topic", self.creates_dead_letters),
            )
            if create
        ]
        begins = (
            "resumes from its progress" if self.decision.beginning is Beginning.RESUME else "starts for the first time"
        )
        return f"{begins}, creates {_listed(created) or 'nothing'}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
