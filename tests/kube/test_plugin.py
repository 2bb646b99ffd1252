"""`kubectl sinkpipeline`, as kubectl starts it: on a real API server, with the operator."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from servers.control_plane import Cluster, kubectl_executable
from servers.local_kafka import LocalKafka
from support.kafka import topics
from support.kube.job_pods import JobPods
from support.kube.kubelet import Kubelet
from support.kube.operator_lab import OperatorLab
from support.kube.scripts import SinkScript
from support.kube.suspended import Suspended
from support.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.kafka]

LETTERS = "ID   STATE\n0:1  pending é\n" * 4_000
"""More than a kubelet tells at once."""

Plugin = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def lab(kafka_lab: OperatorLab) -> Iterator[OperatorLab]:
    yield kafka_lab
    kafka_lab.check()
    kafka_lab.suspend_all()


@pytest.fixture
def environ(lab: OperatorLab, tmp_path: Path) -> dict[str, str]:
    """Of a shell that finds the plugin, with a kubeconfig of its own."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(lab.cluster.kubectl("config", "view", "--raw", "--flatten"))
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "KUBECONFIG": str(kubeconfig),
        "KUBECACHEDIR": str(lab.cluster.directory / "kubectl-cache"),
    }


@pytest.fixture
def kubectl(lab: OperatorLab, environ: Mapping[str, str]) -> Plugin:
    """Types `kubectl ...` with a kubeconfig whose context `shop` has the lab's namespace."""

    def type_(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [kubectl_executable(), *words],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    type_("config", "set-context", "shop", f"--namespace={lab.namespace}", *_of_current(type_))
    type_("config", "set-context", "--current", "--namespace=default")
    return type_


def _of_current(kubectl: Plugin) -> list[str]:
    view = json.loads(kubectl("config", "view", "-o", "json").stdout)
    current = next(each["context"] for each in view["contexts"] if each["name"] == view["current-context"])
    return [f"--cluster={current['cluster']}", f"--user={current['user']}"]


def test_a_pipeline_is_seen_stopped_and_started(lab: OperatorLab, kubectl: Plugin, name: str) -> None:
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    lab.driver(name).change(sinks={"copy": SinkScript(rows=12_345, lag=7, next=(12_352,))})
    lab.until_status(name, lambda status: status["totals"].get("rowsDelivered") == 12_345, "it tells the rows")
    ours = ("--context", "shop")
    text = kubectl("sinkpipeline", "status", name, *ours).stdout
    assert text.startswith(f"{lab.namespace}/{name}: Running, ready for ")
    for part in ("delivered  12,345", "lag        7", f"{name}-driver: Running", "DriverSubmitted", "Settled"):
        assert part in text
    [row] = [line for line in kubectl("sinkpipeline", *ours, "status").stdout.splitlines() if line.startswith(name)]
    assert row.split()[1:4] == ["Running", "1/1", "7"]
    read = kubectl("sinkpipeline", "progress", name, *ours).stdout.splitlines()
    assert [line.split() for line in read[:2]] == [
        ["SINK", "TOPIC", "PARTITION", "NEXT"],
        ["copy", "numbers", "0", "12352"],
    ]
    assert "  delivered  12,345" in "\n".join(read)
    # Whoever may write an event there can't write what an administrator's terminal shows.
    lab.kubectl("create", "-f", "-", stdin=json.dumps(forged_event(lab.namespace, name)))
    text = kubectl("sinkpipeline", "status", name, *ours).stdout
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert "\\u001b[2J" in text
    assert f"\n{lab.namespace}/{name}: Failed" not in text
    refused = kubectl("sinkpipeline", "status", name, code=1)
    assert f"PipelineNotFound: there is no SinkPipeline {name} in namespace default" in refused.stderr
    # kubectl asks the plugin's other executable what fits.
    fitting = kubectl("__complete", "sinkpipeline", "suspend", "-n", lab.namespace, name[:4]).stdout
    assert fitting.splitlines() == [name, ":4"]
    assert "its driver has ended" in kubectl("sinkpipeline", "suspend", name, *ours, "--wait").stdout
    lab.until(lambda: lab.pod(name) is None, "its pod is gone")
    kubectl("sinkpipeline", "resume", name, *ours, "--wait")
    lab.until_started(name, 2)
    kubectl("sinkpipeline", "restart", name, *ours)
    lab.until_started(name, 3)
    assert not lab.resource(name)["spec"]["suspend"]


WITH_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.usefixtures("kubectl")
@pytest.mark.thorough("waits for looks; tests/unit/test_plugin_page has the rates")
def test_a_watch_shows_rates_until_it_is_interrupted(
    lab: OperatorLab, environ: Mapping[str, str], name: str, tmp_path: Path
) -> None:
    """With the context `shop` of the kubeconfig."""
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    shown = tmp_path / "shown"
    argv = [kubectl_executable(), "sinkpipeline", "status", name, "--context", "shop", "--watch"]
    # As at a terminal: a shell has what it runs in the background ignore Ctrl-C, and this run may be such a one.
    argv = [sys.executable, "-c", WITH_CTRL_C, *argv]
    with shown.open("wb") as out, subprocess.Popen(argv, env=environ, stdout=out, stderr=subprocess.PIPE) as watch:
        try:
            title = re.compile(rf"^{lab.namespace}/{name}: ", re.MULTILINE)
            wait_until(lambda: len(title.findall(shown.read_text())) == 1, "it has looked once")
            lab.driver(name).change(sinks={"copy": SinkScript(rows=500, next=(500,))})
            wait_until(lambda: " rows/s\n" in shown.read_text(), "a later look shows a rate")
            # kubectl has become the plugin: it is the same process.
            watch.send_signal(signal.SIGINT)
            _, told = watch.communicate(timeout=60)
        finally:
            watch.kill()
    assert (watch.returncode, told.strip()) == (1, b"")
    first, *later = title.split(shown.read_text())[1:]
    assert "rows/s" not in first
    assert re.search(r"^  delivered  500\b.*\n  rate       [1-9]\d* rows/s$", later[-1], re.MULTILINE)


def forged_event(namespace: str, name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}-forged", "namespace": namespace},
        "involvedObject": {"kind": "SinkPipeline", "name": name, "namespace": namespace},
        "lastTimestamp": "2100-01-01T00:00:00Z",
        "reason": f"No\x1b[2J\u202e\n{namespace}/{name}: Failed",
        "message": f"no\x1b[2J\r\n{namespace}/{name}: Failed",
        "type": "Warning",
    }


def test_logs_and_dead_letters_come_from_the_drivers_pod(lab: OperatorLab, kubectl: Plugin, name: str) -> None:
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return (3, "", "KafkaRefused: no\x1b[2J (grant it)\n") if "other" in argv else (0, LETTERS, "")

    ours = ("-n", lab.namespace)
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    with Kubelet(lab.cluster.kubeconfig, lambda *pod: f"the log\nof {pod[1]}\x1b[2J\n", run):
        assert kubectl("sinkpipeline", "logs", name, *ours, "--tail", "1").stdout == f"of {name}-driver\\u001b[2J\n"
        assert kubectl("sinkpipeline", "dlq", "list", name, *ours).stdout == LETTERS
        # It ends as what it ran has ended.
        failed = kubectl("sinkpipeline", "dlq", "show", name, "0:1", "--sink", "other", *ours, code=3)
        assert failed.stderr == "KafkaRefused: no\\u001b[2J (grant it)\n"
    assert asked[0][:5] == ["sinkpipeline", "dlq", "list", "-f", "/etc/sinkpipeline/config/pipeline.json"]
    assert asked[1][-1] == "0:1"


@pytest.mark.thorough("tests/kube/test_actions has the reset, tests/unit/test_plugin_asking what is shown and asked")
def test_a_reset_is_shown_confirmed_and_waited_for(
    lab: OperatorLab, kubectl: Plugin, api_server: Cluster, kafka: LocalKafka, name: str
) -> None:
    pipeline = Suspended(lab, api_server, kafka, name)
    pipeline.deliver()
    pipeline.apply()
    lab.until_phase(name, "Suspended")
    reset = ("sinkpipeline", "reset", name, "-n", lab.namespace, "--to", "earliest", "--sink")
    shown = kubectl(*reset, "copy", "--dry-run").stderr
    assert f"{pipeline.sink.source}-0: from 20 to 0" in shown
    assert "nothing was changed" in shown
    assert lab.all("sinkpipelineactions") == []
    assert frontier(pipeline) == [20]
    assert "was reset and is in epoch 1" in kubectl(*reset, "copy", "--yes").stderr
    assert frontier(pipeline) == [0]


@pytest.mark.thorough("each starts a process; tests/unit has what needs no API server")
def test_what_can_not_be_done_says_why(lab: OperatorLab, kubectl: Plugin, name: str) -> None:
    def refused(*words: str) -> str:
        return kubectl("sinkpipeline", *words, "-n", lab.namespace, code=1).stderr

    assert "PipelineNotFound" in refused("dlq", "list", name)
    lab.apply(lab.pipeline(name, suspend=True))
    lab.until_phase(name, "Suspended")
    assert "PodNotFound: no driver" in refused("logs", name)
    assert "NoDriver: " in refused("dlq", "list", name)
    assert "Suspended: " in refused("restart", name)
    assert "has no sink other (name one of copy)" in refused(
        "reset", name, "--sink", "other", "--to", "latest", "--yes"
    )
    assert "has no sink other" in refused("progress", name, "--sink", "other")
    assert "was suspended already" in kubectl("sinkpipeline", "suspend", name, "-n", lab.namespace).stdout
    lab.kubectl("delete", "sinkpipeline", name)


@pytest.mark.thorough("starts Spark; a reset goes the same way, and tests/kube/test_actions has what the Job does")
def test_dead_letters_are_purged_and_redriven(
    lab: OperatorLab, kubectl: Plugin, api_server: Cluster, kafka: LocalKafka, name: str
) -> None:
    pipeline = Suspended(lab, api_server, kafka, name)
    pipeline.deliver(bad=[3, 5, 7])
    pipeline.apply(letters=True)
    lab.until_phase(name, "Suspended")
    purge = ("sinkpipeline", "dlq", "purge", name, "-n", lab.namespace, "--sink", "copy")
    assert "name exactly one bound" in kubectl(*purge, "--yes", code=1).stderr
    redrive = ("sinkpipeline", "dlq", "redrive", name, "-n", lab.namespace, "--sink", "copy")
    with JobPods(api_server, lab.namespace):
        told = kubectl(*purge, "--before-offset", "0:2", "--yes").stderr
        assert "2 PENDING letters" in told
        assert len(topics.read_committed(pipeline.sink.servers, pipeline.sink.dead)) == 1
        # The one that is left failed as it was decoded: of another class there is none.
        told = kubectl(*redrive, "--class", "WrongType", "--yes").stderr
        assert "redrove: 0 delivered" in told
        assert len(topics.read_committed(pipeline.sink.servers, pipeline.sink.data)) == 17
        told = kubectl(*redrive, "--class", "MalformedJson", "--yes").stderr
        assert "1 letter" in told
        # A pod that failed behind its commit is followed by another one, which says so.
        assert "redrove: 1 delivered" in told or "; 1 more letters of the preview were redriven before" in told
    rows = topics.texts(topics.read_committed(pipeline.sink.servers, pipeline.sink.data))
    assert sorted(map(int, rows)) == [number for number in range(20) if number not in (3, 5)]


def frontier(pipeline: Suspended) -> list[int]:
    found = topics.progress_truth(pipeline.sink.servers, pipeline.sink.progress)
    return [value["next"] for key, value in sorted(found.items()) if "/p/" in key]
