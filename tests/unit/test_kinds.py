"""All kinds of sinks, and what it costs those who have one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kinds.later import LaterPorts
from sinkpipeline.kinds.resolve import resolve_sinks
from support.resource import redis, streams
from support.resource.manifests import changed, smallest, table

CLIENTS = {"authlib", "confluent_kafka", "nats", "psycopg", "redis"}
TOPICS_ALONE = "import sinkpipeline.cli.progress, sinkpipeline.cli.pod.command, sinkpipeline_operator.program"
ONE_SINK = """
import sinkpipeline.kinds.redriving
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kinds.cells import loaded
from sinkpipeline.kinds.resolve import resolve_sinks
loaded(*resolve_sinks(parse_manifest(json.load(sys.stdin)), None))
"""


def clients_after(code: str, given: str = "") -> set[str]:
    """What a process of its own has loaded of them."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    script = f"import json, sys\n{code}\nprint(*{{each.partition('.')[0] for each in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script], input=given, env=environ, capture_output=True, text=True, check=True
    )
    return CLIENTS & set(done.stdout.split())


def test_a_pipeline_with_topics_alone_loads_no_client_of_other_kinds() -> None:
    """Each takes a tenth of a second and more, at each start of a command, of a driver and of the operator."""
    assert clients_after(TOPICS_ALONE) == {"confluent_kafka"}


@pytest.mark.parametrize(
    ("sink", "client"), [(streams.stream(), "nats"), (table(), "psycopg"), (redis.stream(), "redis")]
)
def test_a_sink_of_another_kind_loads_its_own_client_alone(sink: dict[str, Any], client: str) -> None:
    """Also to redrive its letters."""
    document = changed(smallest(), (("spec", "sinks", 0), sink))
    assert clients_after(ONE_SINK, json.dumps(document)) == {"confluent_kafka", client}


def test_what_is_in_the_way_of_a_sink_is_told_when_it_is_used_and_may_pass() -> None:
    [settings] = resolve_sinks(parse_manifest(smallest()), None)
    away = SinkPipelineError(Reason.SECRET_NOT_FOUND, "the Secret is gone", "create it")
    tries: list[Exception | None] = [away, away, None]
    made: Any = SimpleNamespace(target="t", kind="k")

    def make() -> Any:
        error = tries.pop(0)
        if error is not None:
            raise error
        return made

    later = LaterPorts(settings, make)
    assert later.settings is settings
    for _ in range(2):
        with pytest.raises(SinkPipelineError, match="the Secret is gone"):
            _ = later.target
    assert (later.target, later.kind, tries) == ("t", "k", [])


def test_what_a_column_takes_is_told_by_its_type() -> None:
    columns = {"a": "bigint", "b": "Integer", "c": "bytea", "d": "numeric(10,2)", "e": "bigint[]", "f": "serial"}
    document = changed(smallest(), (("spec", "sinks", 0), table(of_table={"columns": columns})))
    [sink] = parse_manifest(document).spec.sinks
    assert sink.postgresql is not None
    found = {name: sink.postgresql.table.takes(name) for name in columns}
    assert found == {**dict.fromkeys("abf", "integers"), "c": "bytes", **dict.fromkeys("de", "anything")}
