"""What /metrics tells of pipelines, and that it forgets them."""

from __future__ import annotations

from typing import Any

from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.report.metrics import Metrics

ORDERS = Ref("shop", "orders")
OF = 'namespace="shop",pipeline="orders"'


def status(phase: str = "Running", ready: str = "True", **sink: Any) -> dict[str, Any]:
    return {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": ready}],
        "restarts": {"total": 2},
        "sinks": [{"name": "out", "rowsDelivered": 5, **sink}],
    }


def lines(metrics: Metrics) -> set[str]:
    return {line for line in metrics.render().decode().splitlines() if not line.startswith("#")}


def test_a_pipeline_is_told() -> None:
    metrics = Metrics()
    metrics.show(ORDERS, status(lag=7, heldBack=3))
    assert {
        'sinkpipeline_pipelines{phase="Running"} 1.0',
        'sinkpipeline_pipelines{phase="Failed"} 0.0',
        f"sinkpipeline_ready{{{OF}}} 1.0",
        f"sinkpipeline_driver_restarts{{{OF}}} 2.0",
        f'sinkpipeline_sink_rows_delivered{{{OF},sink="out"}} 5.0',
        f'sinkpipeline_sink_lag_offsets{{{OF},sink="out"}} 7.0',
        f'sinkpipeline_sink_held_back_offsets{{{OF},sink="out"}} 3.0',
    } <= lines(metrics)


def test_a_pipeline_has_one_phase_and_what_is_not_known_is_no_number() -> None:
    metrics = Metrics()
    metrics.show(ORDERS, status(lag=7))
    metrics.show(ORDERS, status("Failed", "False"))
    told = lines(metrics)
    assert {'sinkpipeline_pipelines{phase="Running"} 0.0', 'sinkpipeline_pipelines{phase="Failed"} 1.0'} <= told
    assert f"sinkpipeline_ready{{{OF}}} 0.0" in told
    assert not [line for line in told if "lag_offsets" in line]


def test_a_database_that_is_read_is_told_and_forgotten() -> None:
    metrics = Metrics()
    source = {
        "state": "Running",
        "slot": "s",
        "lagBytes": 64,
        "lagSeconds": 3,
        "retainedBytes": 4096,
        "atRisk": "it holds much",
    }
    metrics.show(ORDERS, {**status(), "source": source})
    assert {
        f"sinkpipeline_source_lag_bytes{{{OF}}} 64.0",
        f"sinkpipeline_source_lag_seconds{{{OF}}} 3.0",
        f"sinkpipeline_source_retained_bytes{{{OF}}} 4096.0",
        f"sinkpipeline_source_at_risk{{{OF}}} 1.0",
    } <= lines(metrics)
    metrics.show(ORDERS, {**status(), "source": {"state": "Suspended", "slot": "s"}})
    assert [line for line in lines(metrics) if "_source_" in line and "_sink_" not in line] == [
        f"sinkpipeline_source_at_risk{{{OF}}} 0.0"
    ]
    metrics.forget(ORDERS)
    assert not [line for line in lines(metrics) if "_source_" in line and "_sink_" not in line]


def test_what_a_person_has_to_decide_is_told() -> None:
    metrics = Metrics()
    at = f'{{{OF},sink="out"}}'
    metrics.show(ORDERS, status(lastProgressTime="2026-01-01T00:00:10Z"))
    assert {
        f"sinkpipeline_sink_circuit_open{at} 0.0",
        f"sinkpipeline_sink_source_transaction_open{at} 0.0",
        f"sinkpipeline_sink_last_progress_timestamp_seconds{at} 1.76722561e+09",
    } <= lines(metrics)
    absent = ("may_be_duplicated", "rolled_back_rows")
    assert not [line for line in lines(metrics) if any(each in line for each in absent)], "nothing was lost"
    told = {"circuit": {"openedAt": "x"}, "openTransaction": {"message": "x"}, "mayBeDuplicated": 0, "rolledBack": 9}
    metrics.show(ORDERS, status(**told))
    assert {
        f"sinkpipeline_sink_circuit_open{at} 1.0",
        f"sinkpipeline_sink_source_transaction_open{at} 1.0",
        f"sinkpipeline_sink_may_be_duplicated{at} 0.0",
        f"sinkpipeline_sink_rolled_back_rows{at} 9.0",
    } <= lines(metrics)


def test_one_that_is_suspended_is_neither_ready_nor_not() -> None:
    metrics = Metrics()
    metrics.show(ORDERS, status())
    metrics.show(ORDERS, {**status("Suspended"), "conditions": []})
    assert not [line for line in lines(metrics) if line.startswith("sinkpipeline_ready")]


def test_one_that_is_gone_is_forgotten() -> None:
    metrics = Metrics()
    metrics.show(ORDERS, status(lag=7))
    metrics.recreated(ORDERS)
    metrics.forget(ORDERS)
    told = lines(metrics)
    assert 'sinkpipeline_pipelines{phase="Running"} 0.0' in told
    assert [line for line in sorted(told) if OF in line] == []
    metrics.forget(ORDERS)


def test_dead_letters_are_told_by_stage_and_class() -> None:
    metrics, letter = Metrics(), {"class": "WrongType", "stage": "decode", "count": 3, "dropped": 1}
    metrics.show(ORDERS, status(deadLetters=[letter, {**letter, "class": "NullValue", "count": 2}]))
    at = f'class="{{}}",{OF},sink="out",stage="decode"'
    assert {
        f"sinkpipeline_dead_letters{{{at.format('WrongType')}}} 3.0",
        f"sinkpipeline_dropped_records{{{at.format('WrongType')}}} 1.0",
        f"sinkpipeline_dead_letters{{{at.format('NullValue')}}} 2.0",
    } <= lines(metrics)
    metrics.show(ORDERS, status(deadLetters=[letter]))
    assert not [line for line in lines(metrics) if "NullValue" in line], "what a reset has taken away is gone"
    metrics.forget(ORDERS)
    assert not [line for line in lines(metrics) if "WrongType" in line]


def test_looks_and_what_was_in_their_way_are_counted() -> None:
    metrics = Metrics()
    metrics.took(0.3)
    metrics.failed("ApiUnavailable")
    metrics.wrote_status()
    assert {
        "sinkpipeline_reconcile_seconds_count 1.0",
        'sinkpipeline_reconcile_errors_total{reason="ApiUnavailable"} 1.0',
        "sinkpipeline_status_writes_total 1.0",
    } <= lines(metrics)


def test_what_a_sink_is_and_promises_is_told_once() -> None:
    metrics = Metrics()

    def told() -> list[str]:
        return [line for line in lines(metrics) if "sink_info" in line]

    for durability in ("Committed", "AtRisk"):
        metrics.show(ORDERS, status(guarantee="ExactlyOnce", kind="postgresql", durability=durability))
        [line] = told()
        assert {f'durability="{durability}"', 'guarantee="ExactlyOnce"', 'kind="postgresql"', 'sink="out"'} <= set(
            line[line.index("{") + 1 : line.index("}")].split(",")
        )
    metrics.show(ORDERS, status())
    [line] = told()
    assert 'durability=""' in line, "what is not known is empty"
    metrics.forget(ORDERS)
    assert not told()
