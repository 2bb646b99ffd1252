"""Whether the brokers refuse us, asked for clients that are not told and would wait."""

from __future__ import annotations

import time
from collections.abc import Collection

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection

_PATIENCE_S = 3.0


def check_not_refused(connection: Connection) -> None:
    """Says that the brokers refuse us, which other clients that wait for them are not told; else does nothing.

    Raises:
        SinkPipelineError: AuthenticationFailed.
    """
    try:
        Admin(connection).brokers(_PATIENCE_S)
    except SinkPipelineError as error:
        if error.reason is Reason.AUTHENTICATION_FAILED:
            raise


def barred(connection: Connection, names: Collection[str], operation: str) -> set[str]:
    """On which of several topics the principal may not do an operation (such as "READ"). None, where nobody says it."""
    admin = Admin(connection)
    try:
        return {name for name in names if admin.denied(name, (operation,))}
    except SinkPipelineError:
        return set()


class Patience:
    """Of a client that waits for an answer: once, after a while, it is asked whether we are refused."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ends: float | None = time.monotonic() + _PATIENCE_S

    def check(self) -> None:
        """To be called now and then while nothing comes.

        Raises:
            SinkPipelineError: AuthenticationFailed.
        """
        if self._ends is not None and time.monotonic() > self._ends:
            self._ends = None
            check_not_refused(self._connection)
