"""What every database has as a source of changes: the change topic, and how its transactions become those of Kafka."""

import enum

from pydantic import model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.kafka import Auth, BootstrapServers
from sinkpipeline.core.manifest.problems import Fault, fault_error
from sinkpipeline.core.manifest.sinks import DataTopic, DeadLetter, OnExistingData, ProgressTopic


class StartingPosition(str, enum.Enum):
    """Where a first start begins."""

    SNAPSHOT = "Snapshot"
    INCREMENTAL_SNAPSHOT = "IncrementalSnapshot"
    NOW = "Now"


class Transactions(str, enum.Enum):
    """How transactions of the database become transactions of Kafka."""

    SPLIT = "Split"
    WHOLE = "Whole"


def check_begins(starting_position: StartingPosition | None, start_from: Part | None) -> None:
    """That a source says, once, where a first start begins. Raises PydanticCustomError."""
    if starting_position is None and start_from is None:
        right = "write Snapshot, IncrementalSnapshot or Now here, or give startFrom"
        raise fault_error([Fault(right, "is missing", ("startingPosition",))])
    if starting_position is not None and start_from is not None:
        wrong = "stands beside startingPosition"
        raise fault_error([Fault("give startingPosition or startFrom, not both", wrong, ("startFrom",))])


class ChangeTopic(Part):
    """Where the stage writes, and the sinks read."""

    bootstrap_servers: BootstrapServers | None = None
    """host:port of the brokers, separated by commas. Left out, the cluster of the first Kafka sink that names one, with
    its auth."""
    auth: Auth | None = None
    """How to authenticate; only where bootstrapServers is given here."""
    topic: DataTopic
    """The change topic. It needs as long a retention as a sink may be stopped."""
    progress_topic: ProgressTopic = ProgressTopic()
    """The compacted topic with 1 partition that holds the stage's progress; sinks may share it."""
    # Without a default, which would be stored with every pipeline and so restart its driver with an upgrade.
    on_existing_data: OnExistingData | None = None
    """What a first start does if the change topic holds data. Refuse does not start; it is the default. Append writes
    behind that data, such as of a stage whose progress was lost."""
    dead_letter: DeadLetter | None = None
    """The topic for changes that the change topic doesn't take, as they are too large. Left out, such a change stops
    the stage."""

    @model_validator(mode="after")
    def _topics_are_apart(self) -> Self:
        faults = []
        if self.progress_topic.name == self.topic.name:
            right = "keep changes and progress in different topics"
            faults.append(Fault(right, "is the change topic too", ("progressTopic", "name")))
        if self.dead_letter is not None and self.dead_letter.topic.name in (self.topic.name, self.progress_topic.name):
            wrong = "is the change topic or the progress topic too"
            faults.append(Fault("give dead letters a topic of their own", wrong, ("deadLetter", "topic", "name")))
        if self.auth is not None and self.bootstrap_servers is None:
            wrong = "stands without bootstrapServers"
            faults.append(Fault("give bootstrapServers too, or leave auth to the sink", wrong, ("auth",)))
        if faults:
            raise fault_error(faults)
        return self
