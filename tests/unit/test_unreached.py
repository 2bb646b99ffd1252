"""How long brokers are waited for that do not answer."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kafka import purify
from sinkpipeline.kafka.admin import Admin, Cluster
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.diagnosis import connect
from sinkpipeline.kinds.looking import purify as purify_all
from sinkpipeline.kinds.resolve import resolve_sinks
from support.app.command import manifest, sink


class Silent:
    """A client whose brokers never answer."""

    def __init__(self, servers: str) -> None:
        self.connection = Connection(bootstrap_servers=servers)
        self.waited_s: list[float] = []

    def cluster(self, timeout_s: float, *, why: Callable[[], SinkPipelineError | None]) -> Cluster:  # noqa: ARG002 - as Admin's
        self.waited_s.append(timeout_s)
        raise SinkPipelineError(Reason.BROKER_UNREACHABLE, "no answer", "check that the brokers run")


def told_of(silent: Silent) -> str:
    with pytest.raises(SinkPipelineError) as caught:
        connect(cast(Admin, silent), 5.0)
    return caught.value.message


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_broker_that_refuses_is_told_of_before_one_that_is_slow() -> None:
    refusing = Silent(closed_port())
    assert "refuses connections" in told_of(refusing)
    assert refusing.waited_s == [1.5]

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        slow = Silent(f"127.0.0.1:{listening.getsockname()[1]}")
        assert told_of(slow) == "no answer"
        assert sum(slow.waited_s) == 5.0


def test_a_cluster_that_is_away_is_waited_for_once_however_many_sinks_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_for = []

    def counting(admin: Admin, _: float) -> Cluster:
        waited_for.append(admin.connection)
        return connect(admin, 0.1)

    monkeypatch.setattr(purify, "connect", counting)
    sinks: list[Any] = [sink(name) for name in ("a", "b", "c")]
    settings = resolve_sinks(parse_manifest(manifest(closed_port(), "many", ["in"], sinks=sinks)), None)
    findings = list(purify_all(settings))
    assert [each.error is not None and each.error.reason for each in findings] == [Reason.BROKER_UNREACHABLE] * 3
    assert len(waited_for) == 1
