"""The CustomResourceDefinition on a real API server: it applies, explains itself, and refuses what the types refuse."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kubernetes.client import ApiClient, Configuration, CustomObjectsApi
from kubernetes.client.exceptions import ApiException
from kubernetes.config import load_kube_config

import crd
from deployed.chart import helm
from servers.control_plane import Cluster, ControlPlaneError, kubectl_executable
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.status import SinkReport, SinkState, render
from sinkpipeline.core.tally import checked
from sinkpipeline.core.topic_pattern import PatternError, matches
from support.resource.custom_resource import admit
from support.resource.gitops import kstatus, three_way
from support.resource.manifests import (
    ALLOWED,
    KAFKA,
    MODEL_ONLY,
    MORE_WRONG,
    PATTERNS,
    REMOVE,
    SINK,
    TRANSITIONS,
    WRONG,
    Steps,
    as_sent,
    changed,
    complete,
    dead,
    sink,
    smallest,
    table,
)
from support.resource.patterns import TOPICS, patterns
from support.waiting import wait_until

pytestmark = pytest.mark.kube

ROOT = Path(__file__).parents[2]
TIMEOUT = (5.0, 30.0)

Document = dict[str, Any]
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubectl(api_server: Cluster) -> Kubectl:
    return api_server.kubectl


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace, with the definition installed as the documentation says."""
    kubectl("apply", "-f", str(crd.PATH.parent))
    # What explains the definition is published a little later than the definition is served.
    wait_until(lambda: _explained(kubectl), "the definition is published")
    name = f"crd-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def _explained(kubectl: Kubectl) -> bool:
    try:
        return "FIELD" in kubectl("explain", "sinkpipeline.spec")
    except ControlPlaneError:
        return False


class Resources:
    """SinkPipelines of one namespace; nothing that `dry` does is stored."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        configuration = Configuration()
        load_kube_config(  # type: ignore[no-untyped-call]
            str(kubeconfig), client_configuration=configuration, persist_config=False
        )
        configuration.proxy = None  # a proxy of the environment may not lead back to this machine
        self._client = ApiClient(configuration)
        self._api = CustomObjectsApi(self._client)
        self._of = {"group": crd.GROUP, "version": crd.VERSION, "plural": crd.PLURAL, "namespace": namespace}

    def create(self, document: Document, *, dry: bool = False) -> Document:
        options = {"dry_run": "All"} if dry else {}
        body = {**document, "metadata": {**document["metadata"], "namespace": self._of["namespace"]}}
        return self._call(self._api.create_namespaced_custom_object, body=body, field_validation="Strict", **options)

    def replace(self, document: Document, *, status: bool = False) -> Document:
        call = (
            self._api.replace_namespaced_custom_object_status if status else self._api.replace_namespaced_custom_object
        )
        return self._call(call, name=document["metadata"]["name"], body=document)

    def delete(self, document: Document) -> None:
        self._call(self._api.delete_namespaced_custom_object, name=document["metadata"]["name"])

    def refusal(self, document: Document) -> str:
        """Why the API server refuses it; empty where it takes it."""
        try:
            self.create(document, dry=True)
        except ApiException as error:
            return message_of(error)
        return ""

    def close(self) -> None:
        self._client.rest_client.close()

    def _call(self, call: Callable[..., Any], **arguments: Any) -> Document:
        return dict(call(**self._of, **arguments, _request_timeout=TIMEOUT))


def message_of(error: ApiException) -> str:
    assert error.status in {400, 422}, f"{error.status}: {error.body}"
    return str(json.loads(error.body or "{}")["message"])


@pytest.fixture(scope="module")
def resources(api_server: Cluster, namespace: str) -> Iterator[Resources]:
    opened = Resources(api_server.kubeconfig, namespace)
    yield opened
    opened.close()


def named(document: Document) -> Document:
    """The same under a name of its own."""
    return changed(document, (("metadata", "name"), f"p-{uuid.uuid4().hex[:8]}"))


# --- the definition ---


def test_it_has_no_complaint(kubectl: Kubectl, namespace: str) -> None:
    definition = json.loads(kubectl("get", "crd", f"{crd.PLURAL}.{crd.GROUP}", "-o", "json"))
    conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert conditions["NamesAccepted"] == "True"
    kubectl("apply", "-f", str(crd.PATH.parent))
    for name in ("skp", "sinkpipe", "streaming"):
        kubectl("get", name, "-n", namespace)


@pytest.mark.usefixtures("namespace")
def test_explain_reads_well(kubectl: Kubectl) -> None:
    text = " ".join(kubectl("explain", "sinkpipeline.spec.sinks").split())
    assert "FIELD: sinks" in text
    for word in ("Each sink has its own progress", "deliveryGuarantee", "enum: ExactlyOnce, AtLeastOnce", "-required-"):
        assert word in text
    every = kubectl("explain", "sinkpipeline", "--recursive")
    for field in ("topicPattern", "passwordSecretRef", "restartNonce", "lastExitCode"):
        assert field in every


# --- manifests ---

RIGHT = [
    smallest(),
    complete(),
    *(changed(smallest(), change) for change in ALLOWED),
    *(yaml.safe_load(example.read_text()) for example in sorted((ROOT / "examples").glob("*.yaml"))),
]


def test_what_the_types_take_is_taken_with_the_types_defaults(resources: Resources) -> None:
    schema = crd.resource_schema()
    for document in RIGHT:
        stored = resources.create(document, dry=True)
        assert parse_manifest(stored).spec == parse_manifest(document).spec
        assert stored["spec"] == admit(schema, document)[0]["spec"], "the stand-in of tests/contract is wrong"


def test_the_largest_manifest_is_within_the_cost_of_the_rules(resources: Resources) -> None:
    """Every bound at once: the API server ends an evaluation that costs too much."""
    cluster = ",".join(f"kafka-{number:03}.{'x' * 20}:9092" for number in range(56))
    own = {"transform": {"where": "a" * 8_000, "select": {"value": "b" * 8_000}}}
    sinks = [
        own
        | dead(
            sink(
                f"s{number}",
                f"{number:02}-{'t' * 240}",
                bootstrapServers=cluster,
                progressTopic={"name": f"{number:02}-{'p' * 240}"},
                properties={"linger.ms": "10", "compression.type": "lz4"},
            ),
            f"{number:02}-{'d' * 240}",
        )
        for number in range(32)
    ]
    topics = [f"{number:03}-{'r' * 240}" for number in range(1000)]
    conf = {f"spark.x{number}.{'y' * 150}": "z" * 100 for number in range(100)}
    document = changed(
        smallest(),
        ((*KAFKA, "bootstrapServers"), cluster),
        ((*KAFKA, "topics"), topics),
        (("spec", "sinks"), sinks),
        (("spec", "spark"), {"conf": conf}),
        (("spec", "decode"), {"format": "json", "schema": "a" * 60_000}),
    )
    parse_manifest(document)
    assert resources.refusal(document) == ""
    pattern = changed(
        document, ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), "(.|b)*" * 100 + "[^a]{99}" * 10)
    )
    parse_manifest(pattern)
    assert resources.refusal(pattern) == ""
    columns = {f"{number:02}{'c' * 61}": "numeric(10,2)" for number in range(80)}
    tables = [
        dead(
            table(
                f"s{number}",
                servers=cluster,
                of_table={"name": f"{number:02}{'t' * 61}", "columns": columns, "primaryKey": list(columns)[:32]},
                select={"columns": dict.fromkeys(columns, "e" * 100)},
                writeMode="Upsert",
                deleteWhen="d" * 5_000,
                orderBy="o" * 5_000,
            ),
            f"{number:02}-{'d' * 240}",
        )
        for number in range(32)
    ]
    of_tables = changed(document, (("spec", "sinks"), tables))
    parse_manifest(of_tables)
    assert resources.refusal(of_tables) == ""


def wrong() -> list[tuple[Steps, Any, str]]:
    cases = [(steps, value, path) for steps, value, path, _ in WRONG]
    cases += [(steps, value, ".".join(map(str, steps))) for steps, value in MORE_WRONG]
    cases += [(KAFKA, {"bootstrapServers": "a:1", "topicPattern": each}, "topicPattern") for each in PATTERNS]
    known = [(steps, value) for steps, value, _, _ in MODEL_ONLY]
    return [
        (steps, value, path)
        for steps, value, path in cases
        # The envelope is Kubernetes' own; spec is this definition's.
        if steps[0] == "spec" or path == "metadata.name"
        if as_sent(changed(smallest(), (steps, value))) and (steps, value) not in known
        if path != "metadata.name" or isinstance(value, str)
    ]


def test_what_the_types_refuse_is_refused_with_the_name_of_the_field(resources: Resources) -> None:
    cases = wrong()
    assert len(cases) > 150
    with ThreadPoolExecutor(8) as pool:
        refusals = list(pool.map(resources.refusal, (changed(smallest(), case[:2]) for case in cases)))
    taken = [case for case, refusal in zip(cases, refusals, strict=True) if not refusal]
    assert taken == []
    unnamed = [
        (path, refusal)
        for (_, _, path), refusal in zip(cases, refusals, strict=True)
        if not set(words(path)[:2]) <= set(words(refusal))
    ]
    assert unnamed == []


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("(a+)+b", "ab")
@example(r"(?i)[^a]", "A")
@given(patterns, st.sampled_from(TOPICS))
def test_a_pattern_has_one_verdict_and_finds_the_same_topics(resources: Resources, pattern: str, topic: str) -> None:
    """The rule that forbids to write what is read shows whether the API server finds the topic."""
    document = changed(smallest(), ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), pattern))
    refusal = resources.refusal(changed(document, ((*SINK, "kafka", "topic", "name"), topic)))
    try:
        read = matches(pattern, topic)
    except PatternError:
        assert "spec.source.kafka.topicPattern" in refusal
        return
    assert "spec.source.kafka.topicPattern" not in refusal
    assert ("topic.name matches the source's topicPattern" in refusal) == read


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]+", re.sub(r'\["[^"]*"\]', "", text))


def test_what_only_the_types_refuse_is_taken(resources: Resources) -> None:
    for steps, value, path, _ in MODEL_ONLY:
        assert resources.refusal(changed(smallest(), (steps, value))) == "", path


def test_a_message_says_what_would_be_right(resources: Resources) -> None:
    loop = resources.refusal(changed(smallest(), (SINK, sink("copy", "orders"))))
    assert "spec.sinks" in loop
    assert "write to a topic that is not read" in loop
    conf = resources.refusal(changed(smallest(), (("spec", "spark"), {"conf": {"Spark.Master": "x"}})))
    assert "spec.spark.conf" in conf
    assert "it follows from where the pipeline runs" in conf


# --- applied again ---


def placed(document: Document, namespace: str) -> Document:
    return changed(named(document), (("metadata", "namespace"), namespace))


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
@pytest.mark.parametrize("document", [complete(), smallest()], ids=["complete", "smallest"])
@pytest.mark.thorough("each manifest; tests/contract/test_crd has them by the schema", after=1)
def test_what_is_applied_again_is_unchanged(
    resources: Resources, kubectl: Kubectl, namespace: str, how: tuple[str, ...], document: Document
) -> None:
    manifest = placed(document, namespace)
    text = json.dumps(manifest)
    apply = ("apply", *how, "-f", "-")
    stored = json.loads(kubectl(*apply, "-o", "json", stdin=text))
    assert kstatus(stored) == "InProgress", "no operator has looked at it"
    stored = resources.replace({**stored, "status": {"observedGeneration": 1}}, status=True)
    again = [json.loads(kubectl(*apply, "-o", "json", stdin=text))["metadata"]["resourceVersion"] for _ in range(2)]
    assert again == [stored["metadata"]["resourceVersion"]] * 2
    if not how:
        assert kubectl(*apply, stdin=text).split()[-1] == "unchanged"
    assert kubectl("diff", *how, "-f", "-", stdin=text) == ""
    assert three_way(manifest, manifest, stored)["spec"] == stored["spec"], "Argo CD sees no difference"
    resources.delete(stored)


@pytest.mark.helm
def test_a_release_that_is_upgraded_to_the_same_is_unchanged(
    resources: Resources, api_server: Cluster, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: twice\nversion: 0.1.0\n")
    document = placed(complete(), namespace)
    (tmp_path / "templates" / "pipeline.yaml").write_text(json.dumps(document))
    kubeconfig = api_server.kubeconfig
    helm("install", "twice", str(tmp_path), f"--namespace={namespace}", kubeconfig=kubeconfig)
    stored = api_server.get("sinkpipeline", document["metadata"]["name"], f"--namespace={namespace}")
    stored = resources.replace({**stored, "status": {"observedGeneration": 1}}, status=True)
    helm("upgrade", "twice", str(tmp_path), f"--namespace={namespace}", kubeconfig=kubeconfig)
    again = api_server.get("sinkpipeline", document["metadata"]["name"], f"--namespace={namespace}")
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    helm("uninstall", "twice", f"--namespace={namespace}", kubeconfig=kubeconfig)


# --- what never changes ---


def test_what_argo_cd_is_told_of_health_is_typed_as_it_is_printed(
    api_server: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    """And what stands in that ConfigMap already stays, as another one owns it."""
    [command] = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/gitops.md").read_text(), re.DOTALL)
    assert "--namespace argocd" in command
    configured = (f"--namespace={namespace}", "configmap", "argocd-cm")
    kubectl("create", *configured, "--from-literal=url=https://argocd.example.com")
    environ = {
        **os.environ,
        "PATH": f"{Path(kubectl_executable()).parent}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(api_server.kubeconfig),
        "KUBECACHEDIR": str(api_server.directory / "kubectl-cache"),
    }
    here = command.replace("--namespace argocd", f"--namespace {namespace}")
    strict = ["bash", "-euo", "pipefail", "-c", here]
    done = subprocess.run(strict, check=False, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(kubectl("get", *configured, "-o", "json"))["data"] == {
        "url": "https://argocd.example.com",
        "resource.customizations.health.sinkpipeline.io_SinkPipeline": (ROOT / "deploy/argocd/health.lua").read_text(),
    }


def test_what_never_changes(resources: Resources) -> None:
    for old, new, word in TRANSITIONS:
        stored = resources.create(named(old))
        try:
            after = {**copy.deepcopy(new), "metadata": stored["metadata"]}
            if not word:
                resources.replace(after)
                continue
            with pytest.raises(ApiException) as caught:
                resources.replace(after)
            assert f"{word} never changes" in message_of(caught.value)
        finally:
            resources.delete(stored)


# --- status ---


def test_the_status_is_a_subresource(resources: Resources) -> None:
    stored = resources.create(named({**smallest(), "status": {"phase": "Running"}}))
    assert stored["status"] == {"observedGeneration": -1}, "only /status writes it"
    reported = resources.replace({**stored, "status": {"phase": "Failed"}, "spec": {}}, status=True)
    assert reported["status"] == {"phase": "Failed"}
    assert reported["spec"] == stored["spec"]
    assert reported["metadata"]["generation"] == stored["metadata"]["generation"]
    with pytest.raises(ApiException) as caught:
        resources.replace({**reported, "status": {"phase": "Rnning"}}, status=True)
    assert "status.phase" in message_of(caught.value)


def test_columns(resources: Resources, kubectl: Kubectl, namespace: str) -> None:
    stored = resources.create(named(smallest()))
    name = stored["metadata"]["name"]
    state = PartitionProgress(
        epoch=0, next=9, rows=5, dead=3, dropped=1, by_class=checked({"WrongType": 3}, {"Newer": 1})
    )
    progress = Progress(partitions={SourcePartition("raw", 0): state})
    report = SinkReport(name="copy", exactly_once=True, state=SinkState.RUNNING, lag=7, progress=progress)
    status = render([report], identity="shop.orders", generation=1, previous=None, now_ms=1_700_000_000_000)
    status |= {"sparkApplication": {"name": name, "state": "RUNNING"}, "restarts": {"total": 3}}
    stored = resources.replace({**stored, "status": status}, status=True)
    assert stored["status"] == status, "nothing is pruned"

    header, row = kubectl("get", "sinkpipelines", name, "-n", namespace).splitlines()
    assert header.split() == ["NAME", "READY", "PHASE", "SINKS", "LAG", "DLQ", "AGE"]
    assert row.split()[:6] == [name, "True", "Running", "1/1", "7", "3"]
    header, row = kubectl("get", "sinkpipelines", name, "-n", namespace, "-o", "wide").splitlines()
    assert header.split()[7:] == ["DELIVERED", "DROPPED", "RESTARTS", "SPARK", "REASON", "MESSAGE"]
    assert row.split()[7:] == ["5", "1", "3", "RUNNING", "Running"]
    kubectl("wait", "--for=condition=Ready", f"sinkpipeline/{name}", "-n", namespace, "--timeout=10s")
