"""What brokers tell somebody who asks them, as an answer of a test and not its end."""

from __future__ import annotations

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.kafka.admin import Admin


def trouble(admin: Admin, timeout_s: float = 2.0) -> SinkPipelineError | None:
    """Why the brokers don't answer it within `timeout_s`; None where they do."""
    try:
        admin.brokers(timeout_s)
    except SinkPipelineError as error:
        return error
    return None
