"""Both clients reach the API server at one address, as one account."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import incluster_config

from sinkpipeline_operator.kube import client
from sinkpipeline_operator.kube.client import ApiUnavailable, Cluster, access_of, connect
from sinkpipeline_operator.watch.handlers import connection


def test_in_a_pod_kopf_has_the_address_and_the_token_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    authority.write_text("a certificate")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    api = connect()
    found = connection(access_of(api))
    assert (found.server, found.ca_path, found.token) == ("https://10.96.0.1:443", str(authority), "first")
    assert (found.scheme, found.insecure, found.certificate_path) == ("Bearer", False, None)
    assert "first" not in repr(access_of(api))


@pytest.mark.parametrize(
    ("no_proxy", "proxy"), [("10.96.0.0/12,10.96.0.1", None), ("example.com", "http://proxy:3128")]
)
def test_kopf_goes_through_a_proxy_where_our_client_does(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, proxy: str | None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    configuration = Configuration(host="https://10.96.0.1:443")
    assert connection(access_of(ApiClient(configuration))).proxy_url == proxy


def test_one_question_at_a_time_to_an_api_server_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers, told = threading.Event(), threading.Event(), []

    def silent(*_: object, **__: object) -> dict[str, Any]:
        asked.set()
        answers.wait(10)
        raise ApiUnavailable("no answer")

    monkeypatch.setattr(client, "_FRESH_S", 0.0)
    monkeypatch.setattr(Cluster, "_ask", silent)
    cluster = Cluster(None)  # type: ignore[arg-type]
    first = threading.Thread(target=lambda: told.append(cluster.trouble()))
    first.start()
    assert asked.wait(10)
    assert cluster.trouble() == "", "the second doesn't wait for the first"
    answers.set()
    first.join()
    assert told == ["the API server can't be worked with: no answer"]
