"""What a Python worker logs: to stderr, which is its executor's log."""

from __future__ import annotations

import logging
import os

from sinkpipeline.core.log_lines import Json, Plain, is_json


def set_up() -> None:
    """For a process, and those forked from it."""
    handler = logging.StreamHandler()
    plain = Plain("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(Json(os.environ) if is_json(os.environ) else plain)
    logger = logging.getLogger("sinkpipeline")
    logger.setLevel(logging.INFO)
    logger.handlers, logger.propagate = [handler], False
    # The client's own chatter.
    logging.getLogger("sinkpipeline.kafka").setLevel(logging.WARNING)
