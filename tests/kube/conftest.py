from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

import crd
from deployed.cluster import Kubernetes
from servers import control_plane
from servers.control_plane import Cluster
from servers.kube_api import KubeApi
from servers.local_kafka import LocalKafka
from support.kube.drivers import Drivers
from support.kube.operator_lab import OperatorLab
from support.kube.spark_pipeline import Pipeline
from support.runs.keeper import KEEPER


@pytest.fixture(scope="module")
def api_server() -> Cluster:
    """A real API server with both CRDs, one for each worker of a parallel run; tests keep apart by namespace."""
    crds = [*control_plane.spark_application_crds(), *crd.PATHS]
    return KEEPER.get("api_server", lambda: control_plane.cluster(crds=crds))


@contextlib.contextmanager
def own_namespace(api_server: Cluster) -> Iterator[str]:
    """With its default account; its deletion is not waited for."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    api_server.kubectl("create", "namespace", name)
    api_server.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s")
    yield name
    api_server.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def namespace(api_server: Cluster) -> Iterator[str]:
    with own_namespace(api_server) as name:
        yield name


@pytest.fixture(scope="module")
def drivers(api_server: Cluster) -> Iterator[Drivers]:
    """What plays Kubeflow's operator in the whole cluster, for the tests of one module."""
    with Drivers(api_server.kubeconfig) as ours:
        yield ours


@pytest.fixture(scope="module")
def shared_lab(api_server: Cluster, drivers: Drivers) -> Iterator[OperatorLab]:
    with own_namespace(api_server) as name, OperatorLab(api_server, name, drivers) as lab:
        lab.start()
        yield lab


@pytest.fixture(scope="module")
def kafka_lab(api_server: Cluster, drivers: Drivers) -> Iterator[OperatorLab]:
    """One that talks to Kafka, and looks every second."""
    options = ("--kafka-access", "--resync", "1")
    with own_namespace(api_server) as name, OperatorLab(api_server, name, drivers, options=options) as lab:
        lab.start()
        yield lab


@pytest.fixture(scope="module")
def hasty_lab(api_server: Cluster, drivers: Drivers) -> Iterator[OperatorLab]:
    """Whose operator soon calls a person to a start that waits."""
    options = ("--start-deadline", "4")
    with own_namespace(api_server) as name, OperatorLab(api_server, name, drivers, options=options) as lab:
        lab.start()
        yield lab


@pytest.fixture
def lab(shared_lab: OperatorLab) -> Iterator[OperatorLab]:
    """An operator that the tests of a module share: they keep apart by the names of their pipelines."""
    yield shared_lab
    shared_lab.check()
    shared_lab.suspend_all()


@pytest.fixture
def new_lab(api_server: Cluster, drivers: Drivers) -> Iterator[Callable[..., OperatorLab]]:
    """Makes another namespace with an operator of its own, which is not started yet."""
    with contextlib.ExitStack() as stack:
        made: list[OperatorLab] = []

        def make(*options: str) -> OperatorLab:
            name = stack.enter_context(own_namespace(api_server))
            made.append(stack.enter_context(OperatorLab(api_server, name, drivers, options=options)))
            return made[-1]

        yield make
        for each in made:
            each.check()


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """With drivers that are real ones; an API server of its own, as in a cluster one plays Kubeflow's operator."""
    with Kubernetes(tmp_path_factory.mktemp("kubernetes"), "with-spark") as ours:
        yield ours


@pytest.fixture
def new_pipeline(kubernetes: Kubernetes, kafka: LocalKafka) -> Iterator[Callable[..., Pipeline]]:
    """Makes another pipeline, which is not applied yet: see `Pipeline`."""
    made: list[Pipeline] = []
    api = KubeApi(kubernetes.cluster.kubeconfig)

    def make(*, like: Pipeline | None = None) -> Pipeline:
        made.append(Pipeline(kubernetes, api, kafka.bootstrap_servers, like=like))
        return made[-1]

    yield make
    for each in made:
        each.delete()
    api.close()


@pytest.fixture
def pipeline(new_pipeline: Callable[..., Pipeline]) -> Pipeline:
    return new_pipeline()


@pytest.fixture
def lab_everywhere(api_server: Cluster, drivers: Drivers) -> Iterator[OperatorLab]:
    """An operator of all namespaces, also of those that are made after it was started."""
    with own_namespace(api_server) as name, OperatorLab(api_server, name, drivers, everywhere=True) as lab:
        lab.start()
        yield lab
        # In a namespace that nobody has prepared, or that goes.
        lab.check(may_lack='resource "secrets"')


@pytest.fixture
def name() -> str:
    """For a pipeline."""
    return f"p-{uuid.uuid4().hex[:8]}"
