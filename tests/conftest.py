from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local_kafka import LocalKafka

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """One broker that the session's tests share: they keep apart by the names of their topics and groups."""
    with LocalKafka() as cluster:
        yield cluster
