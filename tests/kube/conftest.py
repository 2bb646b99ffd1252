from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import control_plane
from control_plane import Cluster


@pytest.fixture(scope="session")
def api_server() -> Iterator[Cluster]:
    """A real API server with Kubeflow's CRD, one for each worker of a parallel run; tests keep apart by namespace."""
    with control_plane.cluster(crds=control_plane.spark_application_crds()) as ours:
        yield ours


@pytest.fixture
def namespace(api_server: Cluster) -> Iterator[str]:
    """A namespace of the test's own, with its default account; its deletion is not waited for."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    api_server.kubectl("create", "namespace", name)
    api_server.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s")
    yield name
    api_server.kubectl("delete", "namespace", name, "--wait=false")
