"""Asks a driver for its status: within two seconds, 256 KiB, no redirects, and only if it is the one that is meant.

The answer comes over a network from a pod that runs users' expressions: it is believed if the whole of it has the shape
that drivers give it, and if it is of the right one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from sinkpipeline.core import documents
from sinkpipeline_operator.child.builder import DRIVER_PORT

TIMEOUT_S = 2.0
LIMIT_BYTES = 256 * 1024
_PIECE_BYTES = 16 * 1024
_OK = 200


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a driver said; `document` is None where it said nothing that counts, and `trouble` is why."""

    document: Mapping[str, Any] | None = None
    trouble: str = ""
    is_refused: bool = False
    """Whether something came back, and it was nothing that counts."""
    is_news: bool = True
    """Whether it was asked, and that has come to an end, since this was told last."""


NO_NEWS = Answer(is_news=False)


class DriverClient:
    """Usable from several threads."""

    def __init__(self) -> None:
        self._pool = urllib3.PoolManager(num_pools=64, maxsize=4, retries=False)

    def ask(self, ip: str, token: str, *, identity: str, config_hash: str) -> Answer:
        """Never raises: a driver that doesn't answer is a fact like any other.

        Args:
            ip: of the driver's pod.
            token: what it asks for.
            identity: of the pipeline; a driver of another one is not believed.
            config_hash: what the driver must run.
        """
        host = f"[{ip}]" if ":" in ip else ip
        try:
            body = self._get(f"http://{host}:{DRIVER_PORT}/status", token)
        except _Refused as error:
            return Answer(trouble=f"its answer is {error}", is_refused=True)
        except (HTTPError, OSError, ValueError) as error:
            return Answer(trouble=f"{type(error).__name__}: {error}".replace(token, "***"))
        return checked(body, identity, config_hash)

    def _get(self, url: str, token: str) -> bytes:
        deadline = time.monotonic() + TIMEOUT_S
        response = self._pool.request(
            "GET",
            url,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=urllib3.Timeout(total=TIMEOUT_S),
            redirect=False,
            preload_content=False,
        )
        text = b""
        whole = False
        try:
            if response.status != _OK:
                raise _Refused(f"HTTP {response.status}")
            while piece := response.read1(_PIECE_BYTES):
                text += piece
                if len(text) > LIMIT_BYTES:
                    raise _Refused(f"more than {LIMIT_BYTES} bytes")
                # The client's time-out is of each read: whoever drips would hold us for ever.
                if time.monotonic() > deadline:
                    raise _Refused(f"not done within {TIMEOUT_S:.0f} s")
            whole = True
        finally:
            if whole:
                response.release_conn()
            else:
                response.close()
        return text


class _Refused(Exception):
    pass


def checked(body: bytes, identity: str, config_hash: str) -> Answer:
    """What is believed of the body of an answer."""
    try:
        document = documents.parse_answer(body)
    except ValueError as error:
        return Answer(trouble=f"its answer is no status document: {error}", is_refused=True)
    if document["configHash"] != config_hash:
        fact = f"it runs configuration {document['configHash']!r}, not {config_hash}"
        return Answer(trouble=fact, is_refused=True)
    # Before it has read its manifest a driver knows no identity, and no sinks either.
    if document.get("identity", identity) != identity:
        return Answer(trouble=f"it is of identity {document['identity']!r}, not {identity}", is_refused=True)
    return Answer(document=document)
