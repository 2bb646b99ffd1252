"""Every remedy that the status of a pipeline prints is typed here as it is printed, and helps.

What is wrong is really so on a broker, and the refusal is that of a real start. The driver that says it follows a
script; that the way out is one is shown by another real start.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from servers.control_plane import Cluster
from servers.local_kafka import LocalKafka
from sinkpipeline.cli.main import cli
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import Owner, PartitionProgress
from sinkpipeline.core.progress_records import encode_partition
from sinkpipeline_operator.child.remedies import in_cluster
from sinkpipeline_operator.kube.client import Ref
from support.kafka import topics
from support.kube import remedied
from support.kube.operator_lab import OperatorLab
from support.kube.scripts import End, Script
from support.kube.suspended import ANOTHER, Suspended

pytestmark = [
    pytest.mark.kube,
    pytest.mark.kafka,
    pytest.mark.thorough("each reason; tests/kube/test_actions types the way out of a lost data topic"),
]

COMMAND = re.compile(r"`([^`]+)`")


@pytest.fixture
def pipeline(kafka_lab: OperatorLab, api_server: Cluster, kafka: LocalKafka, name: str) -> Iterator[Suspended]:
    yield Suspended(kafka_lab, api_server, kafka, name)
    kafka_lab.check()
    kafka_lab.suspend_all()


def delete_the_data_topic(pipeline: Suspended) -> None:
    topics.delete_topic(pipeline.sink.servers, pipeline.sink.data)


def recreate_the_source(pipeline: Suspended) -> None:
    topics.recreate_topic(pipeline.sink.servers, pipeline.sink.source)


def lose_the_end_of_the_source(pipeline: Suspended) -> None:
    """As an unclean election leaves it, seen from here: the frontier is behind the end."""
    write(pipeline, encode_partition(PartitionProgress(epoch=0, next=99, rows=99)))


def write_nonsense(pipeline: Suspended) -> None:
    write(pipeline, b"{")


def go_back(pipeline: Suspended) -> None:
    write(pipeline, encode_partition(PartitionProgress(epoch=0, next=1)))


def lose_progress_and_source(pipeline: Suspended) -> None:
    pipeline.apply()
    pipeline.until_topics("True", "TopicsAsRequested")
    topics.delete_topic(pipeline.sink.servers, pipeline.sink.progress)
    recreate_the_source(pipeline)


def name_fewer_topics(pipeline: Suspended) -> None:
    """It has had two, as its `meta` says."""
    key, data = pipeline.id.meta_key, pipeline.sink.data
    meta = topics.progress_truth(pipeline.sink.servers, pipeline.sink.progress)[key]
    meta |= {"v": 2, "data": {data: meta["data"], f"{data}-2": "an-id"}}
    topics.produce(pipeline.sink.servers, pipeline.sink.progress, [(key.encode(), json.dumps(meta).encode())])


def write(pipeline: Suspended, value: bytes) -> None:
    key = pipeline.id.partition_key(pipeline.sink.at())
    topics.produce(pipeline.sink.servers, pipeline.sink.progress, [(key.encode(), value)])


RESETS: dict[Reason, Callable[[Suspended], None]] = {
    Reason.DATA_TOPIC_LOST: delete_the_data_topic,
    Reason.DATA_TOPIC_REMOVED: name_fewer_topics,
    Reason.PROGRESS_LOST: lose_progress_and_source,
    Reason.SOURCE_RECREATED: recreate_the_source,
    Reason.SOURCE_DATA_LOST: lose_the_end_of_the_source,
    Reason.PROGRESS_CORRUPT: write_nonsense,
    Reason.PROGRESS_REGRESSED: go_back,
    # While it was read: a person has created it again by then, as the remedy says.
    Reason.SOURCE_TOPIC_MISSING: recreate_the_source,
}


def test_there_is_one_for_each_reason_with_a_command() -> None:
    assert {*RESETS, Reason.IDENTITY_IN_USE, Reason.CIRCUIT_OPEN} == remedied.WITH_A_COMMAND


def refusal(pipeline: Suspended) -> SinkPipelineError:
    with pytest.raises(SinkPipelineError) as caught:
        pipeline.start(pipeline.remembered())
    return caught.value


def refuse(pipeline: Suspended, error: SinkPipelineError) -> None:
    """Its driver says so, and ends."""
    words = (error.reason.value, error.message, error.remedy)
    key = (pipeline.lab.namespace, pipeline.name)
    pipeline.lab.drivers.play(key, Script(end=End(code=int(error.reason.exit_code), words=words)))
    pipeline.apply(suspend=False)


def printed(pipeline: Suspended, reason: Reason) -> list[str]:
    lab = pipeline.lab
    return COMMAND.findall(
        lab.until_condition(pipeline.name, "SparkApplicationReady", "False", reason.value)["message"]
    )


@pytest.mark.parametrize("reason", RESETS, ids=lambda reason: reason.value)
@pytest.mark.long("five more reasons, whose remedies are the same words", after=3)
def test_where_to_go_on_is_said_as_it_is_printed(pipeline: Suspended, reason: Reason) -> None:
    lab, name = pipeline.lab, pipeline.name
    pipeline.deliver()
    RESETS[reason](pipeline)
    error = refusal(pipeline)
    if reason is Reason.SOURCE_TOPIC_MISSING:
        [remedy] = {text for of, text in remedied.remedies() if of is reason and "sinkpipeline reset" in text}
        error = SinkPipelineError(reason, "a source topic was deleted while it was read", remedy)
    assert error.reason is reason
    refuse(pipeline, error)
    [ask] = printed(pipeline, reason)
    lab.drivers.play((lab.namespace, name), Script())
    action = lab.type(ask).split()[0].rpartition("/")[2]
    [confirm] = COMMAND.findall(lab.until_asked(action, "AwaitingConfirmation")["message"])
    lab.type(confirm)
    lab.until_asked(action, "Succeeded")
    pipeline.start(pipeline.remembered())
    lab.until_ready(name)


@pytest.mark.long("tests/kafka/test_starting adopts an owner")
def test_an_owner_is_adopted_as_it_is_printed(pipeline: Suspended) -> None:
    lab, name = pipeline.lab, pipeline.name
    pipeline.deliver(owner=ANOTHER)
    refuse(pipeline, refusal(pipeline))
    [adopt] = printed(pipeline, Reason.IDENTITY_IN_USE)
    lab.drivers.play((lab.namespace, name), Script())
    lab.type(adopt)
    lab.until_ready(name)
    resume = lab.driver(name).resume
    assert resume is not None
    adopted = Owner(cluster=resume["adopt"]["cluster"], name=resume["adopt"]["name"])
    assert adopted == ANOTHER
    pipeline.start(None, adopt=adopted)


def test_a_circuit_is_closed_as_it_is_printed(pipeline: Suspended) -> None:
    lab, name = pipeline.lab, pipeline.name
    pipeline.deliver()
    [remedy] = {text for of, text in remedied.remedies() if of is Reason.CIRCUIT_OPEN and "spec.restartNonce" in text}
    refuse(pipeline, SinkPipelineError(Reason.CIRCUIT_OPEN, "too many failures", remedy))
    [restart] = printed(pipeline, Reason.CIRCUIT_OPEN)
    lab.drivers.play((lab.namespace, name), Script())
    lab.type(restart)
    lab.until_ready(name)


def test_what_was_delivered_or_not_is_looked_at_as_it_is_printed(pipeline: Suspended) -> None:
    """By remedies of actions."""
    lab, name = pipeline.lab, pipeline.name
    ours = Ref(lab.namespace, name)
    told = {in_cluster(text, ours, "copy") for _, text in remedied.texts() if "`sinkpipeline " in text}
    looks = {each for text in told for each in COMMAND.findall(text) if each.startswith(f"kubectl -n {ours.namespace}")}
    [progress] = [each for each in looks if " get " in each]
    [letters] = [each for each in looks if " exec " in each]
    pipeline.apply(suspend=False)
    lab.until_ready(name)
    [sink] = json.loads(lab.type(progress))
    assert sink["name"] == "copy"
    # Kubelets play no `kubectl exec` here: it is typed on a node. It is read, but for the file, which this world lacks.
    program, *arguments = shlex.split(letters.partition(" -- ")[2])
    assert program == "sinkpipeline"
    answer = CliRunner().invoke(cli, arguments)
    assert "/etc/sinkpipeline/config/pipeline.json can't be read" in str(answer.exception)
