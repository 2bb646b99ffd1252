"""What a pod of ours says: lines for people, or JSON documents where the chart asks for them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sinkpipeline.cli.endings import one_line
from sinkpipeline.cli.say import say
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.log_lines import Json, Plain, is_json


@contextmanager
def pod_log() -> Iterator[None]:
    """All to stderr, which is the pod's log; of the Kafka client only what is a warning."""
    handler = logging.StreamHandler()
    plain = Plain("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(Json(os.environ) if is_json(os.environ) else plain)
    handler.addFilter(lambda record: record.levelno >= logging.INFO or record.exc_info is not None)
    logger = logging.getLogger("sinkpipeline")
    logger.setLevel(logging.DEBUG)
    logger.handlers, logger.propagate = [handler], False
    # Python's own warnings, and of libraries what nobody else handles.
    logging.captureWarnings(capture=True)
    logging.getLogger().addHandler(handler)
    chatter = logging.getLogger("sinkpipeline.kafka")
    chatter.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = [], True
        logging.captureWarnings(capture=False)
        logging.getLogger().removeHandler(handler)
        chatter.setLevel(logging.NOTSET)


def tell_error(log: logging.Logger, error: SinkPipelineError) -> None:
    """The error in one line."""
    if is_json(os.environ):
        log.error("%s", one_line(error), extra={"reason": error.reason.value})
    else:
        say(one_line(error), err=True)


def tell(log: logging.Logger, text: str) -> None:
    """A text of several lines for people; for programs one document."""
    if is_json(os.environ):
        log.info("%s", text)
    else:
        say(text)
