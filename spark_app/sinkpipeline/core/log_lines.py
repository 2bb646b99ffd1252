"""A line of a log, for people. Pure."""

from __future__ import annotations

import logging

from typing_extensions import override

from sinkpipeline.core.printable import printable


class Plain(logging.Formatter):
    """What others say is in it as it is shown, and does nothing to the terminal that shows it."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
