"""The bearer token of the driver's service."""

from __future__ import annotations

import contextlib
import hmac
import time
from pathlib import Path

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.connection import read_secret

READ_AGAIN_S = 1.0
"""Nobody who guesses makes us read a file for each guess."""


class Token:
    """A mounted Secret, which may be written anew while the driver runs.

    Raises:
        SinkPipelineError: SecretInvalid.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = _read(path)
        self._read_at = time.monotonic()

    def is_that(self, given: bytes) -> bool:
        if hmac.compare_digest(given, self._token):
            return True
        if time.monotonic() - self._read_at < READ_AGAIN_S:
            return False
        self._read_at = time.monotonic()
        # While it is being replaced, the one that was read before goes on.
        with contextlib.suppress(SinkPipelineError):
            self._token = _read(self._path)
        return hmac.compare_digest(given, self._token)


def _read(path: Path) -> bytes:
    token = read_secret(path).strip()
    if not token:
        raise SinkPipelineError(Reason.SECRET_INVALID, f"{path} is empty", "write a token into it")
    return token.encode()
