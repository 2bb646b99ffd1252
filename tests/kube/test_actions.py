"""What a person asks for once: shown, confirmed, and carried out once, on a real API server and a real broker."""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml

from kubeflow import pods
from servers.control_plane import Cluster, ControlPlaneError
from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline_operator.child import remedies
from sinkpipeline_operator.kube.client import Ref
from support.kafka import topics
from support.kube.job_pods import JobPods
from support.kube.operator_lab import ACCOUNT, IMAGE, Object, OperatorLab
from support.kube.pod_security import violations
from support.kube.policies import tight_quota
from support.kube.rights import allowed
from support.kube.suspended import Suspended
from support.resource.manifests import table
from support.sink.cell_driver import Driver
from support.sink.sql_sink import SqlSink, batch
from support.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pipeline(kafka_lab: OperatorLab, api_server: Cluster, kafka: LocalKafka, name: str) -> Iterator[Suspended]:
    yield Suspended(kafka_lab, api_server, kafka, name)
    kafka_lab.check()
    kafka_lab.suspend_all()


def epoch(pipeline: Suspended) -> int:
    found = topics.progress_truth(pipeline.sink.servers, pipeline.sink.progress)
    [meta] = [value for key, value in found.items() if key.endswith("/meta")]
    epoch: int = meta["epoch"]
    return epoch


def frontier(pipeline: Suspended) -> list[int]:
    found = topics.progress_truth(pipeline.sink.servers, pipeline.sink.progress)
    return [value["next"] for key, value in sorted(found.items()) if "/p/" in key]


def ask_for_a_reset(pipeline: Suspended, to: str = "earliest", **more: object) -> str:
    return pipeline.lab.ask(pipeline=pipeline.name, sink="copy", action="Reset", to=to, **more)


def commands(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def events(lab: OperatorLab, action: str) -> str:
    found = [each for each in lab.all("events") if each["involvedObject"]["name"] == action]
    return "\n".join(f"{each['reason']}: {each['message']}" for each in found)


def test_the_way_out_of_a_lost_data_topic_is_typed_as_it_is_printed(pipeline: Suspended) -> None:
    lab = pipeline.lab
    pipeline.deliver()
    data = pipeline.sink.data
    topics.delete_topic(pipeline.sink.servers, data)
    pipeline.apply()
    [ask] = commands(pipeline.until_topics("False", "DataTopicLost"))
    action = lab.type(ask).split()[0].rpartition("/")[2]
    shown = lab.until_asked(action, "AwaitingConfirmation")
    assert shown["preview"].splitlines() == [
        f"warning: up to 20 records are delivered AGAIN into {data}, although its guarantee is ExactlyOnce",
        f"epoch 0 becomes 1, counts begin at 0; what is in data topic {data} stays; it is created if it is missing",
        f"{pipeline.sink.source}-0: from 20 to 0",
    ]
    assert epoch(pipeline) == 0
    [confirm] = commands(shown["message"])
    lab.type(confirm)
    lab.until_asked(action, "Succeeded")
    assert (epoch(pipeline), frontier(pipeline)) == (1, [0])
    pipeline.until_topics("True", "TopicsAsRequested")
    [header, row] = lab.kubectl("get", "sinkpipelineactions", action).splitlines()
    assert header.split() == ["NAME", "PIPELINE", "SINK", "ACTION", "PHASE", "DIGEST", "AGE"]
    assert row.split()[:6] == [action, pipeline.name, "copy", "Reset", "Succeeded", shown["digest"]]
    lab.kubectl("wait", "--for=condition=Complete", "--timeout=1s", f"sinkpipelineaction/{action}")
    lab.until(lambda: "Succeeded: sink copy was reset" in events(lab, action), "an event tells it")
    assert f"ActionSucceeded: action {action}" in lab.told(pipeline.name)


def test_a_driver_that_runs_is_stopped_for_it_and_started_again(pipeline: Suspended) -> None:
    lab, name = pipeline.lab, pipeline.name
    pipeline.deliver()
    pipeline.apply(suspend=False)
    lab.until_ready(name)
    action = ask_for_a_reset(pipeline)
    lab.until_asked(action, "AwaitingConfirmation")
    assert lab.starts(name) == 1
    lab.confirm(action)
    lab.until_asked(action, "Succeeded")
    lab.until_started(name, 2)
    lab.until_ready(name)
    reasons = [
        each["reason"]
        for change in lab.history("sinkpipeline", name)
        for each in (change.new.get("status") or {}).get("conditions", [])
        if each["type"] == "Ready"
    ]
    assert "ActionRunning" in reasons
    # While it was reset no driver was there: it was stopped before, and started after.
    [running] = [each for each in lab.history("sinkpipelineaction", action) if phase_of(each.new) == "Running"][:1]
    [done] = [each for each in lab.history("sinkpipelineaction", action) if phase_of(each.new) == "Succeeded"][:1]
    gone = next(each for each in lab.history("pod", f"{name}-driver") if each.event == "DELETED")
    again = [each for each in lab.history("pod", f"{name}-driver") if each.event == "ADDED"][1]
    assert running.version < gone.version <= done.version < again.version


@pytest.mark.thorough("of a topic above, and tests/postgresql/test_looking resets a table by the command")
def test_a_table_is_reset_as_it_was_shown(pipeline: Suspended, postgresql: LocalPostgresql) -> None:
    lab, source = pipeline.lab, SourcePartition(pipeline.sink.source, 0)
    sql = SqlSink(postgresql.address, name=pipeline.name.replace("-", "_"))
    sql.sql(f"CREATE SCHEMA {sql.name}")
    given = table(
        servers=postgresql.address,
        database=DATABASE,
        auth={"username": SUPERUSER},
        of_table={"schema": sql.name, "name": "copy", "columns": {"off": "bigint"}},
        progressSchema=f"{sql.name}_progress",
    )
    kafka = {"bootstrapServers": pipeline.sink.servers, "topics": [source.topic]}
    spec = {"source": {"kafka": kafka}, "sinks": [given], "suspend": True}
    document = {**lab.pipeline(pipeline.name), "spec": spec}
    [settings] = resolve_sinks(parse_manifest(document), None)
    rows = f"SELECT off, count(*) FROM {sql.name}.copy GROUP BY off ORDER BY off"

    def deliver(end: int) -> None:
        """By a driver that is not there any more."""
        with Clients() as clients:
            ports = clients.ports(replace(settings, owner=pipeline.owner))
            driver = Driver(ports, {source: end}, end, lambda _, offsets: batch(offsets, [[str(n)] for n in offsets]))
            driver.drain()
            for kept in driver.worker._shared.values():
                kept.close()

    deliver(20)
    lab.apply(document)
    action = ask_for_a_reset(pipeline)
    shown = lab.until_asked(action, "AwaitingConfirmation")
    label = f"{sql.name}.copy"
    assert shown["preview"].splitlines() == [
        f"warning: up to 20 records are delivered AGAIN into {label}, although its guarantee is ExactlyOnce",
        f"epoch 0 becomes 1, counts begin at 0; what is in table {label} stays; it is created if it is missing",
        f"{source}: from 20 to 0",
    ]
    assert sql.sql(rows) == [(offset, 1) for offset in range(20)]
    lab.type(commands(shown["message"])[0])
    lab.until_asked(action, "Succeeded")
    cells = dict(sql.sql(f"SELECT key, value FROM {sql.name}_progress.progress"))
    assert [value["next"] for key, value in cells.items() if "/p/" in key] == [0]
    assert [value["epoch"] for key, value in cells.items() if key.endswith("/meta")] == [1]
    deliver(30)
    assert sql.sql(rows) == [(offset, 2 if offset < 20 else 1) for offset in range(30)], "again, as it was shown"


def phase_of(resource: Object) -> str | None:
    phase: str | None = (resource.get("status") or {}).get("phase")
    return phase


@pytest.mark.thorough("tests/kafka/test_reset has what a preview allows")
def test_what_has_moved_is_not_reset_but_shown_again(pipeline: Suspended) -> None:
    lab = pipeline.lab
    pipeline.deliver()
    pipeline.apply()
    action = ask_for_a_reset(pipeline)
    stale = lab.until_asked(action, "AwaitingConfirmation")["digest"]
    pipeline.deliver(25)
    lab.confirm(action, stale)

    def shown_again() -> bool:
        status = lab.asked(action)
        return status.get("phase") == "AwaitingConfirmation" and status["digest"] != stale

    lab.until(shown_again, "it is shown again")
    assert "from 25 to 0" in lab.asked(action)["preview"]
    assert f"spec.confirm is {stale}" in lab.asked(action)["message"]
    assert "FrontierMoved" in events(lab, action)
    assert (epoch(pipeline), frontier(pipeline)) == (0, [25])
    [confirm] = commands(lab.asked(action)["message"])
    lab.type(confirm)
    lab.until_asked(action, "Succeeded")
    assert (epoch(pipeline), frontier(pipeline)) == (1, [0])


@pytest.mark.thorough("tests/unit/test_operator_asking has two at once, with every write lost")
def test_of_two_at_once_only_one_is_carried_out(pipeline: Suspended) -> None:
    lab = pipeline.lab
    pipeline.deliver()
    pipeline.apply()
    both = [ask_for_a_reset(pipeline) for _ in range(2)]
    digests = [lab.until_asked(each, "AwaitingConfirmation")["digest"] for each in both]
    assert digests[0] != digests[1], "the digest of one confirms no other"
    for each, digest in zip(both, digests, strict=True):
        lab.confirm(each, digest)
    first = lab.until(lambda: [each for each in both if lab.asked(each)["phase"] == "Succeeded"], "one is done")
    [second] = set(both) - set(first)
    lab.until(lambda: "FrontierMoved" in events(lab, second), "the other one is shown again")
    lab.until_asked(second, "AwaitingConfirmation")
    assert epoch(pipeline) == 1


@pytest.mark.thorough("a variant of what has moved")
def test_latest_is_what_it_was_when_it_was_shown(pipeline: Suspended) -> None:
    lab = pipeline.lab
    pipeline.deliver()
    pipeline.apply()
    action = ask_for_a_reset(pipeline, to="latest")
    assert "up to 10 records are SKIPPED" in lab.until_asked(action, "AwaitingConfirmation")["preview"]
    topics.produce_numbers(pipeline.sink.servers, pipeline.sink.source, 5, start=30)
    lab.confirm(action)
    lab.until_asked(action, "Succeeded")
    assert frontier(pipeline) == [30]


@pytest.mark.thorough("tests/unit/test_operator_asked has what is refused")
def test_what_can_t_be_done_says_why(pipeline: Suspended) -> None:
    lab = pipeline.lab
    pipeline.deliver()
    pipeline.apply()
    cases = {
        "PipelineNotFound": {"pipeline": f"{pipeline.name}-not", "sink": "copy", "action": "Reset", "to": "earliest"},
        "has no sink other": {"pipeline": pipeline.name, "sink": "other", "action": "Reset", "to": "earliest"},
        "has no deadLetter": {"pipeline": pipeline.name, "sink": "copy", "action": "Redrive"},
        "which is not in the source": {
            "pipeline": pipeline.name,
            "sink": "copy",
            "action": "Reset",
            "to": "elsewhere=earliest",
        },
        "is not in the source, which has 0 to 30": {
            "pipeline": pipeline.name,
            "sink": "copy",
            "action": "Reset",
            "to": f"{pipeline.sink.source}:0=99",
        },
        "name everything twice": {
            "pipeline": pipeline.name,
            "sink": "copy",
            "action": "Reset",
            "to": "earliest,latest",
        },
    }
    for words, spec in cases.items():
        status = lab.until_asked(lab.ask(**spec), "Failed")
        assert words in status["message"], status
        assert status["error"]["remedy"]


def test_only_a_confirmation_may_be_added(pipeline: Suspended) -> None:
    lab = pipeline.lab
    action = lab.ask(pipeline=pipeline.name, sink="copy", action="Redrive")
    for change in ({"sink": "other"}, {"to": "Source"}, {"letters": {"stages": ["decode"]}}, {"action": "Purge"}):
        with pytest.raises(ControlPlaneError, match="never changes"):
            lab.patch(action, change, kind="sinkpipelineaction")
    lab.patch(action, {"confirm": "0123456789abcdef"}, kind="sinkpipelineaction")
    with pytest.raises(Exception, match="a Reset goes on"):
        lab.ask(pipeline=pipeline.name, sink="copy", action="Reset", to="Source")


ACTIONS = "sinkpipeline.io/sinkpipelineactions"


def documented_roles() -> dict[str, str]:
    """The manifests of docs/install.md for people, as they are printed there."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "install.md").read_text(), re.DOTALL)
    found = {yaml.safe_load(block)["metadata"]["name"]: block for block in blocks if "kind: ClusterRole\n" in block}
    assert set(found) == {"sinkpipeline-editor", "sinkpipeline-actions"}
    return found


@pytest.fixture
def account(pipeline: Suspended) -> Iterator[Callable[[str, str, str], Path]]:
    """Makes an account with that ClusterRole in the pipeline's namespace; its kubeconfig, once that right counts."""
    lab, made = pipeline.lab, []

    def bind(who: str, role: str, right: str) -> Path:
        name = yaml.safe_load(role)["metadata"]["name"]
        lab.kubectl("apply", "-f", "-", stdin=role)
        made.append(name)
        lab.kubectl("create", "serviceaccount", who)
        subject = f"--serviceaccount={lab.namespace}:{who}"
        lab.kubectl("create", "rolebinding", who, f"--clusterrole={name}", subject)
        verb, what = right.split()
        may = partial(allowed, lab.cluster, f"{lab.namespace}:{who}", verb, what, lab.namespace)
        wait_until(may, f"{who} may {right}")
        return lab.cluster.service_account_kubeconfig(lab.namespace, who)

    yield bind
    # No namespace takes them along.
    lab.kubectl("delete", "clusterrole", "--ignore-not-found", *made)


def test_who_may_create_actions_asks_and_who_may_patch_them_confirms(
    pipeline: Suspended, account: Callable[[str, str, str], Path]
) -> None:
    lab, roles = pipeline.lab, documented_roles()
    pipeline.deliver()
    pipeline.apply()
    role = yaml.safe_load(roles["sinkpipeline-actions"])
    [rule] = role["rules"]
    only_asks = {
        **role,
        "metadata": {"name": f"{lab.namespace}-asks"},
        "rules": [{**rule, "verbs": [verb for verb in rule["verbs"] if verb != "patch"]}],
    }
    edits = account("edits", roles["sinkpipeline-editor"], "patch sinkpipeline.io/sinkpipelines")
    asks = account("asks", json.dumps(only_asks), f"create {ACTIONS}")
    confirms = account("confirms", roles["sinkpipeline-actions"], f"patch {ACTIONS}")

    spec = {"pipeline": pipeline.name, "sink": "copy", "action": "Reset", "to": "earliest"}
    meta = {"name": f"{pipeline.name}-reset", "namespace": lab.namespace}
    asked = json.dumps(
        {"apiVersion": "sinkpipeline.io/v1alpha1", "kind": "SinkPipelineAction", "metadata": meta, "spec": spec}
    )
    # The right to edit pipelines is none to reset a sink.
    lab.cluster.kubectl("annotate", "skp", pipeline.name, "edited=yes", kubeconfig=edits)
    with pytest.raises(ControlPlaneError, match='cannot create resource "sinkpipelineactions"'):
        lab.cluster.kubectl("create", "-f", "-", stdin=asked, kubeconfig=edits)
    lab.cluster.kubectl("create", "-f", "-", stdin=asked, kubeconfig=asks)
    [confirm] = commands(lab.until_asked(meta["name"], "AwaitingConfirmation")["message"])
    program, *words = shlex.split(confirm)
    assert (program, words[2]) == ("kubectl", "patch")
    with pytest.raises(ControlPlaneError, match='cannot patch resource "sinkpipelineactions"'):
        lab.cluster.kubectl(*words, kubeconfig=asks)
    # Nor may it write the whole resource anew, which has the digest then.
    with_digest = json.loads(asked)
    with_digest["spec"]["confirm"] = lab.asked(meta["name"])["digest"]
    with pytest.raises(ControlPlaneError, match='cannot update resource "sinkpipelineactions"'):
        lab.cluster.kubectl("replace", "-f", "-", stdin=json.dumps(with_digest), kubeconfig=asks)
    assert "confirm" not in lab.find("sinkpipelineaction", meta["name"])["spec"]
    lab.cluster.kubectl(*words, kubeconfig=confirms)
    lab.until_asked(meta["name"], "Succeeded")
    assert (epoch(pipeline), frontier(pipeline)) == (1, [0])


def test_an_action_is_deleted_some_time_after_its_end(pipeline: Suspended) -> None:
    lab = pipeline.lab
    action = lab.ask(
        pipeline=f"{pipeline.name}-not", sink="copy", action="Reset", to="earliest", ttlSecondsAfterFinished=1
    )

    def phases() -> list[str]:
        return [each.new.get("status", {}).get("phase") for each in lab.history("sinkpipelineaction", action)]

    # It is there for a second only, and who looks now and then may miss that: the watch has seen it.
    lab.until(lambda: "Failed" in phases(), f"{action}: the action was Failed")
    lab.until(lambda: lab.find("sinkpipelineaction", action) is None, "it is gone")


@pytest.mark.thorough("tests/unit/test_operator_asked has it")
def test_a_pipeline_that_goes_takes_no_action_with_it(pipeline: Suspended) -> None:
    lab = pipeline.lab
    pipeline.deliver()
    pipeline.apply()
    action = ask_for_a_reset(pipeline)
    lab.until_asked(action, "AwaitingConfirmation")
    lab.delete("sinkpipeline", pipeline.name)
    assert "was deleted since" in lab.until_asked(action, "Failed")["message"]
    pipeline.apply()
    lab.until_phase(pipeline.name, "Suspended")
    assert epoch(pipeline) == 0


@pytest.mark.parametrize(
    "point", ["action-after-running", "reset-before-commit", "reset-after-commit", "action-after-outcome"]
)
@pytest.mark.thorough("an operator of its own for each point")
@pytest.mark.long("each point; tests/unit/test_operator_asking has every write lost", after=1)
def test_an_operator_that_is_killed_resets_once(
    new_lab: Callable[..., OperatorLab], api_server: Cluster, kafka: LocalKafka, name: str, point: str
) -> None:
    lab = new_lab("--kafka-access", "--resync", "1")
    pipeline = Suspended(lab, api_server, kafka, name)
    pipeline.deliver()
    lab.start()
    pipeline.apply(suspend=False)
    lab.until_ready(name)
    action = ask_for_a_reset(pipeline)
    lab.until_asked(action, "AwaitingConfirmation")
    lab.kill()
    lab.confirm(action)
    lab.start(failpoint=point)
    lab.kill_at(point)
    wait_until(lambda: lab.asked(action)["phase"] in ("Running", "AwaitingConfirmation"), "it is not through")
    lab.start()
    lab.until_asked(action, "Succeeded")
    assert (epoch(pipeline), frontier(pipeline)) == (1, [0])
    lab.until_ready(name)


# --- by a Job ---


@pytest.fixture
def restricted(
    new_lab: Callable[..., OperatorLab], api_server: Cluster, kafka: LocalKafka, name: str
) -> Callable[..., Suspended]:
    """A pipeline that has delivered, where the API server admits pods only that keep the profile "restricted"."""

    def make(*, bad: Collection[int] = ()) -> Suspended:
        lab = new_lab("--resync", "1", "--log-format", "json")
        enforce = "pod-security.kubernetes.io/enforce=restricted"
        lab.cluster.kubectl("label", "namespace", lab.namespace, enforce)
        lab.start()
        pipeline = Suspended(lab, api_server, kafka, name)
        pipeline.deliver(bad=bad)
        pipeline.apply(letters=bool(bad))
        return pipeline

    return make


@pytest.mark.thorough("a purge goes the same way")
def test_a_reset_without_access_to_kafka(restricted: Callable[..., Suspended], api_server: Cluster) -> None:
    pipeline = restricted()
    lab = pipeline.lab
    with JobPods(api_server, lab.namespace) as ran:
        action = ask_for_a_reset(pipeline)
        shown = lab.until_asked(action, "AwaitingConfirmation")
        assert "from 20 to 0" in shown["preview"]
        lab.confirm(action)
        lab.until_asked(action, "Succeeded")
    assert (epoch(pipeline), frontier(pipeline)) == (1, [0])
    for pod in ran.seen:
        assert violations(pod["spec"]) == []
        assert (pod["spec"]["serviceAccountName"], pod["spec"]["automountServiceAccountToken"]) == (ACCOUNT, False)
        assert pod["spec"]["containers"][0]["image"] == IMAGE
    jobs = [each["metadata"]["name"] for each in lab.all("jobs")]
    assert sorted(jobs) == sorted(pod["metadata"]["labels"]["job-name"] for pod in ran.seen)
    lab.delete("sinkpipelineaction", action)
    lab.until(lambda: lab.all("jobs") == [], "what it made goes with it")


@pytest.mark.thorough("a Job with a real purge; tests/kafka/test_dlq_command purges, test_operator_asking asks")
def test_a_purge_of_what_was_shown(restricted: Callable[..., Suspended], api_server: Cluster, name: str) -> None:
    pipeline = restricted(bad=[3, 5, 7])
    lab = pipeline.lab
    with JobPods(api_server, lab.namespace) as ran:
        action = lab.ask(pipeline=name, sink="copy", action="Purge", upTo={"beforeOffsets": ["0:2"]})
        shown = lab.until_asked(action, "AwaitingConfirmation")
        assert "2 PENDING letters" in shown["preview"]
        assert len(topics.read_committed(pipeline.sink.servers, pipeline.sink.dead)) == 3
        lab.confirm(action)
        lab.until_asked(action, "Succeeded")
    assert len(topics.read_committed(pipeline.sink.servers, pipeline.sink.dead)) == 1
    lines = [json.loads(line) for line in ran.log.splitlines()]
    assert {line["pipeline"] for line in lines} == {f"{lab.namespace}/{name}"}
    assert "2 PENDING letters" in lines[0]["message"]


@pytest.mark.long("three Jobs with Spark; tests/e2e/test_redrive kills a redrive, tests/cluster has its Job")
def test_a_redrive_whose_pod_is_killed(restricted: Callable[..., Suspended], api_server: Cluster, name: str) -> None:
    pipeline = restricted(bad=[3, 5, 7])
    lab = pipeline.lab
    with JobPods(api_server, lab.namespace) as ran:
        # As the event of dead letters prints it.
        action = lab.type(remedies.redrive(Ref(lab.namespace, name), "copy")).split()[0].rpartition("/")[2]
        shown = lab.until_asked(action, "AwaitingConfirmation")
        assert "3 letters of" in shown["preview"]
        ran.kill_next = True
        lab.confirm(action)
        lab.until_asked(action, "Succeeded", 150)
        assert "redrove: 3 delivered" in lab.asked(action)["message"]
    assert len(ran.seen) == 3, "a preview, one that was killed, and one that went on"
    rows = topics.texts(topics.read_committed(pipeline.sink.servers, pipeline.sink.data))
    assert sorted(map(int, rows)) == list(range(20))


@pytest.mark.long("an operator of its own, which misses a pod after half a minute")
def test_where_the_job_of_an_action_is_looked_at_is_typed_as_it_is_printed(
    restricted: Callable[..., Suspended],
) -> None:
    pipeline = restricted()
    lab = pipeline.lab
    mute = ask_for_a_reset(pipeline)
    # Nobody runs its pod, which ends without a word.
    [pod] = lab.until(lambda: lab.all("pods"), "the pod of the preview is there")
    now = dt.datetime.now(dt.timezone.utc)
    status = json.dumps({"status": pods.ended(pod, pods.Ended(2, "Error", "", now, now))})
    lab.kubectl("patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p", status)
    [describe] = commands(lab.until_asked(mute, "Failed")["error"]["remedy"])
    lab.until(lambda: "PodFailurePolicy" in lab.type(describe), "that shows why the Job has ended")

    with tight_quota(lab, {"pods": "0"}):
        refused = ask_for_a_reset(pipeline)
        found = lab.until(lambda: commands(lab.asked(refused).get("message", "")), "a pod is missed", 60)
        assert "there is none" in lab.asked(refused)["message"]
        assert "exceeded quota: tight" in lab.type(found[0])


@pytest.mark.parametrize("point", ["action-after-config", "action-after-job"])
@pytest.mark.long("an operator of its own; test_operator_asking has every write lost")
def test_an_operator_that_is_killed_makes_one_job(
    new_lab: Callable[..., OperatorLab], api_server: Cluster, kafka: LocalKafka, name: str, point: str
) -> None:
    lab = new_lab("--resync", "1")
    pipeline = Suspended(lab, api_server, kafka, name)
    pipeline.deliver()
    pipeline.apply()
    lab.start()
    lab.until_phase(name, "Suspended")
    lab.kill()
    with JobPods(api_server, lab.namespace) as ran:
        lab.start(failpoint=point)
        action = ask_for_a_reset(pipeline)
        lab.kill_at(point)
        lab.start()
        lab.confirm(action, lab.until_asked(action, "AwaitingConfirmation")["digest"])
        lab.until_asked(action, "Succeeded")
        assert len(ran.seen) == 2
    assert (epoch(pipeline), frontier(pipeline)) == (1, [0])


@pytest.mark.long("an operator of its own; what a Job is owned by is in tests/unit")
def test_a_pipeline_that_goes_takes_the_job_of_an_action_with_it(
    restricted: Callable[..., Suspended], name: str
) -> None:
    pipeline = restricted()
    lab = pipeline.lab
    action = ask_for_a_reset(pipeline)
    # Nobody runs its pod.
    lab.until(lambda: lab.all("jobs"), "the Job of the preview is there")
    lab.delete("sinkpipeline", name)
    lab.until_asked(action, "Failed")
    lab.until(lambda: lab.all("jobs") == [], "nobody wants it any more")
