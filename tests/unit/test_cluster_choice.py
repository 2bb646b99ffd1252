"""Which cluster `make cluster` takes, and what it asks of kind and Docker, which are played: neither runs in CI."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import choice, kubeflow, target
from servers.control_plane import ControlPlaneError, kind_runs

# Kept as the tools are called; answers as they give them.
_TOOL = """#!/bin/sh
printf '%s %s\\n' "$(basename "$0")" "$*" >>"$RECORD"
case "$(basename "$0") $*" in
"docker info"*) exit {docker} ;;
"docker network inspect"*) printf 'fc00:f853:ccd:e793::1\\n172.18.0.1\\n' ;;
"kubectl "*" get --raw /readyz") exit 1 ;;
esac
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    def make(*, docker: int) -> Path:
        record = tmp_path / "record"
        for name in ("kind", "docker", "kubectl", "helm"):
            tool = tmp_path / "bin" / name
            tool.parent.mkdir(exist_ok=True)
            tool.write_text(_TOOL.replace("{docker}", str(docker)))
            tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
        monkeypatch.setenv("RECORD", str(record))
        return record

    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KAFKA_HOST", raising=False)
    for module in (target, choice):
        monkeypatch.setattr(module, "DIRECTORY", tmp_path / "cluster")
    return make


def test_kind_is_asked_where_docker_runs(tools: Callable[..., Path], tmp_path: Path) -> None:
    record = tools(docker=0)
    made = choice.up(["shop"])
    assert (made.kind, made.kafka_host, made.registry) == ("kind", "172.18.0.1", "localhost")
    assert json.loads((tmp_path / "cluster" / "target.json").read_text())["kind"] == "kind"
    choice.down()
    assert not (tmp_path / "cluster").exists()
    asked = [line for line in record.read_text().splitlines() if not line.startswith(("kubectl", "docker info"))]
    ours = f"--kubeconfig={tmp_path / 'cluster' / 'kubeconfig'}"
    config = target.ROOT / "dev/kind/cluster.yaml"
    build = "docker build --file {}/Dockerfile --tag localhost/sinkpipeline-{}:0.1.0 ."
    images = "localhost/sinkpipeline-operator:0.1.0 localhost/sinkpipeline-spark:0.1.0"
    namespace = "--namespace=spark-operator --create-namespace"
    chart = f"spark-operator --repo=https://kubeflow.github.io/spark-operator --version={kubeflow.version()}"
    assert asked == [
        f"kind create cluster --name=sinkpipeline --config={config} --wait=120s {ours}",
        'docker network inspect kind --format={{range .IPAM.Config}}{{.Gateway}}{{"\\n"}}{{end}}',
        build.format("operator", "operator"),
        build.format("spark_app", "spark"),
        f"kind load docker-image {images} --name=sinkpipeline",
        f"helm upgrade --install spark-operator {chart} {namespace} {ours} --wait --timeout=180s --values=-",
        f"kind delete cluster --name=sinkpipeline {ours}",
    ]


def test_a_docker_without_its_daemon_is_none(tools: Callable[..., Path]) -> None:
    tools(docker=1)
    assert not kind_runs()


@pytest.mark.parametrize(
    ("docker", "platform", "uid", "kubeconfig", "runs"),
    [
        (0, "linux", 1000, False, True),
        (0, "darwin", 501, False, True),
        (1, "linux", 0, False, True),
        (1, "linux", 1000, False, False),
        (1, "darwin", 0, False, False),
        (0, "linux", 0, True, False),
    ],
)
def test_make_test_all_runs_it_wherever_a_cluster_can_be_made(
    tools: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    docker: int,
    platform: str,
    uid: int,
    kubeconfig: bool,
    runs: bool,
) -> None:
    tools(docker=docker)
    monkeypatch.setattr("cluster.choice.sys.platform", platform)
    monkeypatch.setattr("cluster.choice.os.geteuid", lambda: uid)
    if kubeconfig:
        monkeypatch.setenv("KUBECONFIG", "theirs")
    assert (choice.why_not() is None) is runs


def test_make_asks_it(tools: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(docker=0)
    make = tmp_path / "make"
    make.write_text("#!/bin/sh\n[ \"$*\" = '--no-print-directory e2e' ] && echo e2e is run\n")
    make.chmod(0o755)
    # The make that runs these tests is none of its business.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)

    def ask(python: str) -> tuple[str, str, int]:
        # What `install` would do is taken as done.
        argv = ["make", "--no-print-directory", "--old-file=install"]
        argv += ["e2e-if-possible", f"RUN={python}", f"MAKE={make}"]
        done = subprocess.run(argv, cwd=target.ROOT, capture_output=True, text=True, check=False)
        return done.stdout, done.stderr, done.returncode

    assert ask(sys.executable) == ("e2e is run\n", "", 0)
    monkeypatch.setenv("KUBECONFIG", "theirs")
    out, err, code = ask(sys.executable)
    assert (out, code) == ("", 0)
    assert "make e2e was not run: KUBECONFIG is set" in err
    # Whoever can't be asked has not said no.
    out, _, code = ask("false")
    assert out == ""
    assert code != 0


def test_of_a_given_cluster_it_must_be_said_where_brokers_and_images_are(
    tools: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tools(docker=0)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "theirs"))
    with pytest.raises(ControlPlaneError, match="make cluster KAFKA_HOST="):
        choice.up()
    monkeypatch.setenv("KAFKA_HOST", "192.0.2.7")
    monkeypatch.setenv("REGISTRY", "registry.example.com")
    made = choice.up()
    assert (made.kind, made.kafka_host, made.registry) == ("given", "192.0.2.7", "registry.example.com")
    choice.down()
    # Nothing is made there, and nothing ended.
    assert all(line.startswith("kubectl") for line in record.read_text().splitlines())
