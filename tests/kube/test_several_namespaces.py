"""One operator for a list of namespaces: what becomes of one of them is no matter of the others."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from deployed.chart import RELEASE
from servers.control_plane import Cluster
from support.kube.drivers import Drivers
from support.kube.operator_lab import OperatorLab

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

TRIED_S = 150.0


@pytest.fixture
def other(api_server: Cluster) -> Iterator[str]:
    """A namespace of a tenant's."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    api_server.kubectl("create", "namespace", name)
    yield name
    api_server.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.mark.long("kopf tries for a minute before it gives up, which it is not to do")
def test_a_namespace_that_takes_our_rights_away_stops_no_other_one(
    api_server: Cluster, namespace: str, other: str, drivers: Drivers, name: str
) -> None:
    """As a tenant may, in a namespace of theirs; and as the deletion of a namespace does."""
    with OperatorLab(api_server, namespace, drivers, values={"watchNamespaces": [namespace, other]}) as lab:
        api_server.kubectl("delete", "rolebinding", RELEASE, f"--namespace={other}")
        lab.start()
        # Beyond kopf's own patience.
        lab.until(lambda: re.search(rf"attempt #10 failed.*namespaces/{other}/", lab.log), "it asks on", TRIED_S)
        lab.apply(lab.pipeline(name))
        lab.until_ready(name)
        lab.patch(name, {"suspend": True})
        lab.until_status(name, lambda status: status["phase"] == "Suspended", "it is served")
