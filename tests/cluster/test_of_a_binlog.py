"""A pipeline of a server with a binary log on a real cluster: by the rights that the docs name, robbed, and ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from cluster.target import Target
from servers.local_process import HOST
from support.changes.binlog import ORDERS, ROOTS, SERVERS, BinlogLab
from support.changes.binlog_load import insert
from support.cluster.installed import ACTION_S, START_S, Pipeline

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kafka,
    pytest.mark.timeout(600),
]

USER = "cdc"
RIGHTS = {
    "mysql": ("REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "LOCK TABLES ON {}.*", "SELECT ON {}.orders"),
    "mariadb": ("REPLICATION SLAVE, BINLOG MONITOR ON *.*", "SELECT ON {}.orders"),
}
"""As docs/changes-of-mysql-and-mariadb.md has them."""


@dataclass
class Lab(BinlogLab):
    """Whose stage is that of a resource."""

    identity_of_stage: str = ""

    @property
    @override
    def stage(self) -> str:
        return self.identity_of_stage


@pytest.fixture(params=[*SERVERS])
def lab(target: Target, pipeline: Pipeline, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Of a server that pods reach, too."""
    kind = request.param
    if ROOTS[kind]() is None:
        pytest.skip(f"no server: make {kind}")
    addresses = ",".join({HOST: None, target.kafka_host: None})
    with SERVERS[kind](settings={"bind-address": addresses}) as server:
        stage = f"{pipeline.namespace}.{pipeline.name}/source.{kind}"
        found = Lab(server, pipeline.servers, tmp_path, identity_of_stage=stage)
        found.sql(
            ORDERS,
            f"CREATE USER {USER} IDENTIFIED BY 'right'",
            *(f"GRANT {each.format(found.name)} TO {USER}" for each in RIGHTS[kind]),
        )
        yield found


def following(lab: Lab, pipeline: Pipeline, host: str, secret: str) -> dict[str, Any]:
    """The spec: the changes of `orders`, which go into a topic and no further."""
    replicas = pipeline.document["spec"]["sinks"][0]["kafka"]["topic"]["replicationFactor"]
    auth = {"username": USER, "passwordSecretRef": {"name": secret, "key": "password"}}
    source = lab.as_source(server=f"{host}:{lab.server.port}", auth=auth, startingPosition="Snapshot")
    for topic in ("topic", "progressTopic"):
        source[lab.kind]["changes"][topic]["replicationFactor"] = replicas
    return {"source": source, "decode": {"format": "raw"}, "sinks": [], "deletionPolicy": "Delete"}


def readers(lab: Lab) -> list[Any]:
    """Whoever reads the log of the server."""
    return [each for each in lab.sql("SHOW PROCESSLIST") if str(each[4]).startswith("Binlog Dump")]


def test_changes_go_into_a_topic(pipeline: Pipeline, lab: Lab, target: Target) -> None:
    case = f"changes of {lab.server.title}"
    secret = f"{pipeline.name}-{USER}"
    pipeline.installed.kubectl("create", "secret", "generic", secret, "--from-literal=password=wrong")
    insert(lab, 0, 3000)
    pipeline.apply(**following(lab, pipeline, target.kafka_host, secret))
    pipeline.until_told(f"{case}: a wrong password", "Ready", "False AuthenticationFailed", deadline_s=START_S)
    assert USER in pipeline.condition("Ready")["message"]
    stood_still = pipeline.status["source"]
    assert stood_still["state"] != "Running"
    pipeline.installed.kubectl("patch", "secret", secret, "--type=merge", "-p", '{"stringData": {"password": "right"}}')
    pipeline.until_told(f"{case}: the password is mended", "SourceHealthy", "True NoErrors", deadline_s=START_S)
    pipeline.until_told(case, "Ready", "True Running", deadline_s=START_S)
    lab.caught_up()
    lab.check_copy("orders")

    case = f"changes of {lab.server.title}: a driver's pod is deleted"
    insert(lab, 3000, 1000)
    driver = pipeline.driver
    assert driver is not None
    lab.sql("UPDATE orders SET note = 'u' WHERE id % 3 = 0", "DELETE FROM orders WHERE id % 7 = 0")
    pipeline.installed.kubectl("delete", "pod", driver["metadata"]["name"], "--force", "--grace-period=0")
    insert(lab, 5000, 100)
    pipeline.until(lambda: pipeline.driver_uid not in {None, driver["metadata"]["uid"]}, "another driver", ACTION_S)
    pipeline.until_told(case, "Ready", "True Running", deadline_s=START_S)
    lab.caught_up()

    case = f"changes of {lab.server.title}: its server is away"
    lab.server.kill()
    pipeline.until_told(case, "SourceHealthy", "False SourceUnreachable")
    assert pipeline.told("Ready").startswith("False")
    lab.server.start()
    lab.sql("UPDATE orders SET note = 'after'")
    pipeline.until_told(f"{case}, and comes back", "Ready", "True Running", deadline_s=START_S)
    lab.caught_up()
    lab.check_copy("orders")
    told = f"position   {lab.position().place} "
    pipeline.until(lambda: told in pipeline.plugin("status", pipeline.name), f"the status has {told}", ACTION_S)

    pipeline.delete("--timeout=90s")
    pipeline.until(lambda: readers(lab) == [], "nobody reads the server's log", ACTION_S)
