"""Alerts and dashboard: their metrics are there, their queries find something, and each alert has its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboard.board import of_all, render
from deployed.chart import CHART
from servers.local_process import free_ports
from servers.prometheus import Prometheus, promtool
from sinkpipeline.cli.pod.metrics import Metrics as DriverMetrics
from sinkpipeline.cli.pod.service import Service
from sinkpipeline.cli.pod.vitals import Vitals
from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.batch_counts import BatchCounts
from sinkpipeline.core.commit_counts import CommitCounts
from sinkpipeline.core.served import DriverInfo, Observation, RunCounts
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.report.metrics import Metrics
from sinkpipeline_operator.report.web import Web
from support.waiting import wait_until

ROOT = Path(__file__).parents[2]
ALERTS = CHART / "files" / "alerts.yaml"
BOARD = CHART / "files" / "dashboard.json"
TESTS = ROOT / "tests" / "data" / "alerts.test.yaml"
ORDERS = Ref("shop", "orders")
NOT_OF_PROMETHEUS = 90
"""Seconds: Prometheus' own start on a busy machine is most of it."""


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        yield from (each["expr"] for each in panel.get("targets", []))
        yield from expressions(panel.get("panels", []))


def status(rows: int) -> dict[str, Any]:
    """Of a pipeline in every trouble at once."""
    sink = {
        "name": "out",
        "state": "Running",
        "kind": "kafka",
        "guarantee": "ExactlyOnce",
        "rowsDelivered": rows,
        "deadLettered": rows,
        "dropped": rows,
        "lost": rows,
        "deadLetters": [{"class": "WrongType", "stage": "decode", "count": rows, "dropped": rows}],
        "lag": rows,
        "heldBack": 1,
        "lastProgressTime": "2026-01-01T00:00:00Z",
        "circuit": {"openedAt": "2026-01-01T00:00:00Z"},
        "openTransaction": {"message": "it is open", "remedy": "end it"},
        "mayBeDuplicated": 0,
        "rolledBack": rows,
    }
    source = {"state": "Running", "slot": "s", "changes": rows, "lagBytes": 1, "retainedBytes": 1, "safeBytes": 1}
    source |= {"lagSeconds": 1, "atRisk": "it holds much"}
    ready = {"type": "Ready", "status": "False"}
    return {
        "phase": "Failed",
        "conditions": [ready],
        "restarts": {"total": rows},
        "source": source,
        "sinks": [sink],
    }


def observation(rows: int) -> Observation:
    batches = BatchCounts()
    for _ in range(rows):
        costs = CommitCounts().with_commit(0.02, 100).with_doubt().with_retry("Fenced")
        batches = batches.with_batch(0.3, [Receipt(commits=1, claims=1, claiming_s=0.2, in_doubt=True, costs=costs)])
    counts = RunCounts(rows=rows, batches=batches, failures={"BatchFailed": rows}, waits_s=2.0)
    return Observation(status=status(rows), counts={"out": counts}, supervising=True)


def vitals() -> Vitals:
    return Vitals(DriverInfo(config_hash="8f14e45f", run="run-1", pid=17))


def test_the_dashboard_is_what_its_generator_makes() -> None:
    assert BOARD.read_text() == render(), "run `make dashboard`"


def test_each_alert_has_a_page() -> None:
    pages = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    assert pages == [rule["alert"] for rule in rules()]
    assert [rule["annotations"]["runbook_url"] for rule in rules()] == [
        f"docs/runbooks.md#{page.lower()}" for page in pages
    ]


@pytest.mark.prometheus
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    assert promtool("check", "rules", str(ALERTS))[0] == 0
    document = yaml.safe_load(ALERTS.read_text())
    for rule in document["groups"][0]["rules"]:
        # promtool would compare them word by word.
        del rule["annotations"]
    bare = tmp_path / "alerts.yaml"
    bare.write_text(yaml.safe_dump(document))
    test = tmp_path / "test.yaml"
    test.write_text(TESTS.read_text().replace("ALERTS", str(bare)))
    tried = {each["alertname"] for run in yaml.safe_load(test.read_text())["tests"] for each in run["alert_rule_test"]}
    assert tried == {rule["alert"] for rule in rules()}
    code, told = promtool("test", "rules", str(test))
    assert code == 0, told


@pytest.mark.prometheus
def test_metrics_are_named_as_prometheus_wants_it() -> None:
    operator = Metrics()
    operator.show(ORDERS, status(1))
    operator.took(1.0)
    driver = vitals()
    driver.observe(observation(1))
    for text in (operator.render(), DriverMetrics(driver).render()):
        # Of today's text format: the other one ends with a line that promtool does not know.
        code, told = promtool("check", "metrics", stdin=text.decode().replace("# EOF\n", ""))
        assert code == 0, told


@pytest.mark.prometheus
@pytest.mark.timeout(NOT_OF_PROMETHEUS + 60)
def test_every_query_finds_something_in_a_prometheus_that_scrapes_both(tmp_path: Path) -> None:
    metrics, driver = Metrics(), vitals()
    metrics.show(ORDERS, status(1))
    metrics.took(0.1)
    driver.observe(observation(1))
    token = tmp_path / "token"
    token.write_text("s3cr3t")
    ours, its = free_ports(2)
    labels = {"namespace": "shop", "pipeline": "orders"}
    scraped = [
        {"job_name": "operator", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{ours}"]}]},
        {"job_name": "drivers", "static_configs": [{"targets": [f"127.0.0.1:{its}"], "labels": labels}]},
    ]
    queries = [of_all(each) for each in expressions(json.loads(BOARD.read_text())["panels"])]
    absent = "SinkPipelineOperatorAbsent"
    slow = [rule["expr"] for rule in rules() if rule["alert"] != absent]
    with (
        Web("127.0.0.1", ours, is_alive=str, is_ready=str, metrics=metrics),
        Service(driver, "127.0.0.1", its, token, open_metrics=True),
        Prometheus(scraped, [ALERTS]) as prometheus,
    ):
        wait_until(
            lambda: len(prometheus.query('sinkpipeline_sink_lag_offsets{pipeline="orders"}')) == 2,
            "both are scraped",
            NOT_OF_PROMETHEUS,
        )
        [first] = (query for query in queries if "sinkpipeline_dead_letters" in query)
        wait_until(lambda: prometheus.query(first), "the first dead letters of a class are there, which no rate shows")
        metrics.show(ORDERS, status(9))
        metrics.took(0.1)
        driver.observe(observation(9))
        for query in (*queries, *slow):
            wait_until(lambda query=query: prometheus.query(query), f"there is {query}")  # type: ignore[misc]
        firing = wait_until(lambda: prometheus.query('ALERTS{alertname="SinkPipelineCircuitOpen"}'), "it fires")
        assert firing[0]["metric"]["pipeline"] == "orders"
