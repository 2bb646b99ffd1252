"""The progress of a stage, read by whoever does not take it."""

from __future__ import annotations

from sinkpipeline.changes.settings import StageSettings, sink_settings
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.topics import check_progress_topic
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.views import describe


def observed(settings: StageSettings) -> Progress:
    """None of it where there is no progress topic yet.

    Raises:
        SinkPipelineError: what is wrong with the topic, or with what it says.
    """
    sink = sink_settings(settings)
    place = describe(Admin(sink.connection), sink.progress.name)
    if place is None:
        return Progress()
    check_progress_topic(place)
    with ProgressLog(sink.connection, sink.progress.name, sink.group_id) as log:
        return log.observe(sink.id)
