"""The rights of docs/rights.md: exactly those suffice, and each one that is missing is told, with nothing lost."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from sinkpipeline.cli.dlq.contents import read_contents
from sinkpipeline.cli.dlq.purging import delete_records
from sinkpipeline.cli.dlq.selection import find_topic
from sinkpipeline.cli.progress import progress as show_progress
from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict, encode
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.targets import Targets, parse_targets
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.follower import ProgressFollower
from sinkpipeline.kafka.preview import look
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.purify import purify
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.kafka.source.groups import Groups
from sinkpipeline.kafka.source.lag_groups import LagGroups
from sinkpipeline.kafka.source.positions import read_group
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.one_sink import plan_of, remembered, rows
from support.sink.redrives import ALL_FINE, redriving
from support.waiting import wait_until
from support.worlds.secure import RIGHTS, Door, Need, Right, SecureKafka, constant
from support.worlds.secured_sink import NEEDS, PASSWORD, Secured

pytestmark = pytest.mark.kafka

DEADLINE_S = 40.0
"""No missing right may hang. It is told within two seconds; the rest is for a machine that is busy."""


@pytest.fixture
def secured(secure_kafka: SecureKafka, tmp_path: Path) -> Secured:
    return Secured(servers=secure_kafka.bootstrap_servers, kafka=secure_kafka, directory=tmp_path)


def describing(right: Right) -> list[Right]:
    """Without it nobody could tell a missing Read, Write or Delete, which imply it, from a missing Describe."""
    implied = right.operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)
    return [replace(right, operation=AclOperation.DESCRIBE)] if implied else []


def tells(refused: SinkPipelineError, right: Right) -> bool:
    """Whether the message names a right; of a transaction that wrote to two topics it names both."""
    operation = right.operation.name.title().replace("_", "")
    where = {ResourceType.TOPIC: "topic", ResourceType.GROUP: "group"}.get(right.resource, "transactional id")
    return bool(re.match(rf"{operation} on {where} (\S+ or )?{re.escape(right.name)}", refused.message))


def run(sink: Secured) -> None:
    sink.feed(range(2))
    started = sink.starter().start()
    with closing(started.hold):
        sink.write(started, range(2))
    assert sink.delivered() == ["0", "1"]
    assert sink.frontier() == {0: 2}


def run_at_least_once(sink: Secured) -> None:
    sink.feed(range(2))
    started = sink.starter(exactly_once=False).start()
    with closing(started.hold):
        writer = AtLeastOnceWriter(plan_of(sink, started, 2), sink.at(), Worker())
        writer.write(rows(range(2)))
        writer.finish()
    assert sink.delivered() == ["0", "1"]


def validate(sink: Secured) -> None:
    [finding] = purify([sink.settings()])
    if finding.error is not None:
        raise finding.error


def progress(sink: Secured) -> None:
    secret = sink.directory / "user" / "password"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text(PASSWORD)
    sasl = {
        "mechanism": "SCRAM-SHA-512",
        "username": sink.user,
        "passwordSecretRef": {"name": "user", "key": "password"},
    }
    servers = sink.kafka.servers(Door.SASL)
    spec: dict[str, Any] = {
        "identity": sink.name,
        "source": {"kafka": {"bootstrapServers": servers, "topics": [sink.source], "auth": {"sasl": sasl}}},
        "sinks": [
            {
                "name": "out",
                "deliveryGuarantee": "ExactlyOnce",
                "kafka": {"topic": {"name": sink.data}, "progressTopic": {"name": sink.progress}},
            }
        ],
    }
    head = {"apiVersion": "sinkpipeline.io/v1alpha1", "kind": "SinkPipeline", "metadata": {"name": "p"}}
    manifest = sink.directory / "sinkpipeline.json"
    manifest.write_text(json.dumps({**head, "spec": spec}))
    show_progress(manifest, sink.directory, "json")


def reset(sink: Secured) -> None:
    admin = Admin(sink.connection)
    resetting = SinkReset(ports=ports(sink.settings(), admin, admin))
    resetting.carry_out(resetting.plan(parse_targets(["latest"])))


def reset_to_group(sink: Secured) -> None:
    group = f"{sink.name}-imported"
    Groups(Connection(bootstrap_servers=sink.servers)).commit(group, {sink.at(): 0})
    admin = Admin(sink.connection)
    resetting = SinkReset(ports=ports(sink.settings(), admin, admin))
    resetting.carry_out(resetting.plan(Targets(), read_group(group, sink.connection)))


def preview(sink: Secured) -> None:
    """What it does before Spark reads the source."""
    look(sink.settings(), None)


def remove(sink: Secured) -> None:
    admin = Admin(sink.connection)
    SinkRemoval(ports=ports(sink.settings(), admin, admin)).carry_out()
    assert topics.topic_id(sink.servers, sink.data) is None


COMMANDS: dict[str, Callable[[Secured], None]] = {
    "run": run,
    "validate": validate,
    "progress": progress,
    "reset": reset,
    "reset --to-group": reset_to_group,
    "preview": preview,
    "deletionPolicy: Delete": remove,
}
OF_PROGRESS = frozenset({"progress", "reset", "reset --to-group", "preview", "deletionPolicy: Delete"})
"""What looks at, or changes, what a run has left."""


def lettered(sink: Secured) -> SinkSettings:
    return sink.settings(dead_letter=DeadLetterSettings(topic=TopicRequest(name=sink.dead)))


def dlq_list(sink: Secured) -> None:
    settings = lettered(sink)
    topic = find_topic(settings)
    assert topic is not None
    assert len(read_contents(settings, topic).letters) == 2


def dlq_redrive(sink: Secured) -> None:
    redrive = redriving(lettered(sink), ALL_FINE)
    survey = redrive.survey()
    assert survey is not None
    assert redrive.carry_out(survey).delivered == 2


def dlq_purge(sink: Secured) -> None:
    dlq_list(sink)
    delete_records(lettered(sink), sink.dead, {0: 1})


DLQ: dict[str, Callable[[Secured], None]] = {
    "dlq list": dlq_list,
    "dlq redrive": dlq_redrive,
    "dlq purge": dlq_purge,
}


def with_letters(sink: Secured) -> None:
    sink.start_by_somebody_else()
    topics.create_topic(sink.servers, sink.dead)
    for offset in range(2):
        record = SourceRecord(partition=sink.at(), offset=offset, key=None, value=b"v", headers=None, timestamp=1)
        letter = DeadLetter(sink=sink.id, verdict=Verdict(ErrorClass.WRONG_TYPE, "x"), record=record)
        value, key, _, _, headers = encode(letter)
        topics.produce_whole(sink.servers, sink.dead, [(value, key, headers, 1)])  # type: ignore[list-item]


@pytest.mark.parametrize("command", DLQ)
@pytest.mark.thorough("each command", after=1)
def test_exactly_these_rights_suffice_for_dead_letters(command: str, secured: Secured) -> None:
    with_letters(secured)
    secured.grant(secured.rights(command))

    DLQ[command](secured)


@pytest.mark.parametrize(
    ("command", "need"),
    [
        pytest.param(command, need, id=f"{command} without {need.operation.name} on {need.name}")
        for command in DLQ
        for need in NEEDS
        if command in need.commands
    ],
)
@pytest.mark.thorough("each right of each command", after=1)
def test_each_right_that_is_missing_for_dead_letters_is_told(command: str, need: Need, secured: Secured) -> None:
    with_letters(secured)
    missing = secured.right(need)
    secured.grant({*secured.rights(command), *describing(missing)} - {missing})

    assert tells(fails(lambda: DLQ[command](secured)), missing)
    assert secured.delivered() == []


def fails(command: Callable[[], None]) -> SinkPipelineError:
    """Why a command is refused: because of a right, and soon."""
    began = time.monotonic()
    with pytest.raises(SinkPipelineError) as refused:
        command()
    assert time.monotonic() - began < DEADLINE_S
    assert refused.value.reason is Reason.AUTHORIZATION_FAILED, refused.value
    assert "docs/rights.md" in refused.value.remedy
    return refused.value


def test_the_commands_of_the_documentation_grant_what_its_table_says() -> None:
    [script] = re.findall(r"```sh\n(.*?)```", RIGHTS.read_text(), re.DOTALL)
    variables: dict[str, str] = dict(word.split("=", 1) for word in re.findall(r"\b[A-Z]+=\S+", script))
    granted = set()
    for line in script.splitlines():
        if line.startswith("acls --"):
            words = shlex.split(Template(line).substitute(variables))[1:]
            options = list(zip(words[::2], words[1::2], strict=True))
            given = dict(options)
            topic = given.get("--topic")
            resource = ResourceType.TOPIC if topic is not None else ResourceType.TRANSACTIONAL_ID
            pattern = ResourcePatternType[given.get("--resource-pattern-type", "literal").upper()]
            granted |= {
                Right(resource, topic or given["--transactional-id"], AclOperation[constant(value)], pattern)
                for option, value in options
                if option == "--operation"
            }

    names = {
        "identity": variables["IDENTITY"],
        "source topic": variables["SOURCE"],
        "data topic": variables["DATA"],
        "progress topic": variables["PROGRESS"],
    }
    assert granted == {need.right(names) for need in NEEDS if "run" in need.commands}


@pytest.mark.parametrize("creating", [True, False], ids=["created by us", "created beforehand"])
@pytest.mark.parametrize("command", [run, run_at_least_once, validate])
@pytest.mark.thorough("each command, with topics of both kinds", after=1)
def test_exactly_these_rights_suffice(command: Callable[[Secured], None], secured: Secured, *, creating: bool) -> None:
    if not creating:
        secured.create_topics()
    secured.grant(secured.rights("validate" if command is validate else "run", creating=creating))

    command(secured)


@pytest.mark.parametrize("command", sorted(OF_PROGRESS))
@pytest.mark.thorough("each command", after=1)
def test_exactly_these_rights_suffice_to_look_and_to_reset(command: str, secured: Secured) -> None:
    secured.feed(range(3))
    secured.start_by_somebody_else()
    secured.grant(secured.rights(command))

    COMMANDS[command](secured)

    if command == "deletionPolicy: Delete":
        assert set(secured.truth().values()) == {None}, "tombstones"
    else:
        assert secured.frontier() == {0: 3 if command == "reset" else 0}


MISSING = [
    pytest.param(command, need, id=f"{command} without {need.operation.name} on {need.name}")
    for command in COMMANDS
    for need in NEEDS
    if command in need.commands
    # Only Spark reads the source: tests/e2e/test_secured.py.
    and not (command in ("run", "preview") and (need.cluster, need.operation) == ("source", AclOperation.READ))
]


@pytest.mark.parametrize(("command", "need"), MISSING)
@pytest.mark.thorough("each right of each command", after=3)
@pytest.mark.long("each right of each command", after=12)
def test_each_missing_right_is_told(command: str, need: Need, secured: Secured) -> None:
    creating = need.operation is AclOperation.CREATE
    if command in OF_PROGRESS:
        secured.start_by_somebody_else()
    elif not creating:
        secured.create_topics()
    missing = secured.right(need)
    granted = {*secured.rights(command, creating=creating), *describing(missing)} - {missing}
    secured.grant(granted)
    before = topics.progress_truth(secured.servers, secured.progress) if command in OF_PROGRESS else None

    refused = fails(lambda: COMMANDS[command](secured))

    assert tells(refused, missing), refused
    if creating:
        assert topics.topic_id(secured.servers, missing.name) is None
    elif before is None:
        assert secured.delivered() == []
    else:
        known = {key for key in before if key.startswith(secured.id.prefix)}
        after = topics.progress_truth(secured.servers, secured.progress)
        assert {key: after[key] for key in known if "/p/" in key} == {key: before[key] for key in known if "/p/" in key}


def several(sink: Secured) -> TopicRequest:
    parts = tuple(TopicRequest(name=f"{sink.data}-{each}") for each in "abc")
    return TopicRequest(name=", ".join(each.name for each in parts), parts=parts)


def rights_of_several(sink: Secured, command: str, *, creating: bool = False) -> set[Right]:
    """`<data topic>` is each of them."""
    return {
        each
        for right in sink.rights(command, creating=creating)
        for each in (
            [replace(right, name=part.name) for part in several(sink).parts] if right.name == sink.data else [right]
        )
    }


def run_several(sink: Secured) -> None:
    """A row for each topic."""
    data = several(sink)
    sink.feed(range(3))
    started = sink.starter(data=data).start()
    with closing(started.hold):
        writer = ExactlyOnceWriter(plan_of(sink, started, 3, settings=sink.settings(data=data)), sink.at(), Worker())
        writer.write(rows(range(3), target_topics=[each.name for each in data.parts]))
        writer.finish()


def validate_several(sink: Secured) -> None:
    [finding] = purify([sink.settings(data=several(sink))])
    if finding.error is not None:
        raise finding.error


def remove_several(sink: Secured) -> None:
    admin = Admin(sink.connection)
    SinkRemoval(ports=ports(sink.settings(data=several(sink)), admin, admin)).carry_out()


OF_SEVERAL: dict[str, Callable[[Secured], None]] = {
    "run": run_several,
    "validate": validate_several,
    "deletionPolicy: Delete": remove_several,
}


def there(sink: Secured) -> list[str]:
    return [each.name[-1] for each in several(sink).parts if topics.topic_id(sink.servers, each.name) is not None]


def of_each(sink: Secured) -> list[int]:
    """How many rows each topic has."""
    return [len(topics.read_committed(sink.servers, each.name)) for each in several(sink).parts]


@pytest.mark.parametrize(
    "creating", [True, pytest.param(False, marks=pytest.mark.thorough("topics of the other kind"))]
)
def test_exactly_these_rights_suffice_for_several_topics(secured: Secured, *, creating: bool) -> None:
    if not creating:
        prepare(secured, several(secured))
    secured.grant(rights_of_several(secured, "run", creating=creating))
    validate_several(secured)
    run_several(secured)
    assert of_each(secured) == [1, 1, 1]
    # Only to delete its topics a principal needs more.
    secured.grant(rights_of_several(secured, "deletionPolicy: Delete"))
    remove_several(secured)
    wait_until(lambda: there(secured) == ([] if creating else ["a", "b", "c"]), "what the sink has made is gone")


def prepare(sink: Secured, data: TopicRequest) -> None:
    topics.create_topic(sink.servers, sink.progress, config=topics.COMPACTED)
    for each in data.parts:
        topics.create_topic(sink.servers, each.name)


@pytest.mark.parametrize(
    ("command", "operation"),
    [
        (command, need.operation)
        for command in OF_SEVERAL
        for need in NEEDS
        if command in need.commands and need.name == "<data topic>"
    ],
    ids=lambda each: getattr(each, "name", each),
)
@pytest.mark.thorough("each right of each command", after=1)
def test_a_right_that_is_missing_on_one_of_several_topics_is_told(
    command: str, operation: AclOperation, secured: Secured
) -> None:
    creating = operation is AclOperation.CREATE
    data = several(secured)
    if command == "deletionPolicy: Delete":
        connection = Connection(bootstrap_servers=secured.servers)
        admin = Admin(connection)
        settings = secured.settings(data=data, connection=connection, source={"connection": connection})
        SinkStarter(ports=ports(settings, admin, admin)).start().hold.close()
    elif not creating:
        prepare(secured, data)
    missing = Right(ResourceType.TOPIC, data.parts[1].name, operation)
    granted = rights_of_several(secured, command, creating=creating)
    assert missing in granted
    secured.grant({*granted, *describing(missing)} - {missing})

    refused = fails(lambda: OF_SEVERAL[command](secured))

    named = re.match(rf"{operation.name.title().replace('_', '')} on topic (\S+)", refused.message, re.IGNORECASE)
    assert named is not None, refused
    assert named[1] == missing.name, refused
    if creating:
        assert there(secured) == [], "who may not create one of them creates none"
    elif command == "deletionPolicy: Delete":
        # What was deleted before stays deleted, and who may delete the others goes on.
        assert there(secured) == ["b", "c"]
        secured.grant([missing])
        remove_several(secured)
        wait_until(lambda: there(secured) == [], "all are gone")
    else:
        assert of_each(secured) == [0, 0, 0]


@pytest.mark.thorough("tests/unit has who is missed; here a broker hides one of several topics")
def test_one_of_several_topics_that_is_hidden_is_not_missing(secured: Secured) -> None:
    """Taken for missing, it would be lost; taken for new, it would be created."""
    granted = rights_of_several(secured, "run", creating=True)
    secured.grant(granted)
    run_several(secured)
    name = several(secured).parts[1].name
    hidden = [right for right in granted if right.name == name]
    secured.revoke(hidden)
    refused = fails(lambda: secured.starter("run-2", data=several(secured)).start())
    assert f"Describe on topic {name}" in refused.message
    secured.grant(hidden)
    secured.starter("run-3", data=several(secured)).start().hold.close()
    assert of_each(secured) == [1, 1, 1]


@pytest.mark.thorough("the rights that suffice are granted beside it; here each is taken away", after=1)
@pytest.mark.parametrize(
    "missing",
    [None, *(need for need in NEEDS if "commitGroupOffsets" in need.commands)],
    ids=lambda need: str(need)[:60],
)
def test_without_a_right_on_its_group_a_driver_only_warns(
    missing: Need | None, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    secured.feed(range(2))
    held_back = [] if missing is None else [secured.right(missing)]
    granted = {*secured.rights("commitGroupOffsets"), *(each for right in held_back for each in describing(right))}
    secured.grant(granted - set(held_back))
    settings = secured.settings(source={"commit_group_offsets": True, "group_id_prefix": secured.name})
    groups = LagGroups([settings])

    for offset in (1, 2):
        groups.write({"out": {secured.at(): offset}})

    seen = Groups(Connection(bootstrap_servers=secured.servers)).offsets(settings.group_id)
    told = [record.getMessage() for record in caplog.records if record.name == "sinkpipeline.groups"]
    if missing is None:
        assert (seen, told) == ({secured.at(): 2}, [])
    else:
        assert (seen, len(told)) == ({}, 1), told
        assert f"{held_back[0].name}" in told[0]
        assert "AuthorizationFailed" in told[0]


def test_a_right_that_is_missing_for_at_least_once_rows(secured: Secured) -> None:
    secured.create_topics()
    write = Right(ResourceType.TOPIC, secured.data, AclOperation.WRITE)
    secured.grant({*secured.rights("run"), *describing(write)} - {write})

    refused = fails(lambda: run_at_least_once(secured))

    assert tells(refused, write), refused
    assert secured.frontier() == {0: 0}


@pytest.mark.parametrize("resource", ["source", "data", "progress"])
@pytest.mark.thorough("each kind of topic; a hidden topic of a pattern is below")
def test_a_topic_that_is_hidden_is_not_a_topic_that_is_missing(resource: str, secured: Secured) -> None:
    """Kafka shows neither. Taken for missing, it would be lost, created again, or started anew."""
    secured.grant(secured.rights("run", creating=True))
    run(secured)
    secured.feed(range(2, 4))
    hidden = [right for right in secured.rights("run", creating=True) if right.name == getattr(secured, resource)]
    memory = remembered(secured.start("run-2"))
    before = topics.topic_id(secured.servers, hidden[0].name)
    secured.revoke(hidden)

    for remembers in (None, memory):
        refused = fails(lambda remembers=remembers: secured.starter("run-3", remembers).start())
        assert f"Describe on topic {hidden[0].name}" in refused.message
    assert hidden[0].name in fails(lambda: validate(secured)).message

    secured.grant(hidden)
    assert topics.topic_id(secured.servers, hidden[0].name) == before
    started = secured.starter("run-4", memory).start()
    with closing(started.hold):
        assert not started.recreated_progress_topic
        secured.write(started, range(2, 4))
    assert secured.delivered() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("what", ["the data topic", "the progress topic", "the transactional ids"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept producer", "new producer"])
@pytest.mark.thorough("each variant of one case", after=1)
@pytest.mark.long("each variant of one case", after=3)
def test_a_right_to_write_is_revoked_between_batches(what: str, secured: Secured, *, kept: bool) -> None:
    names = {"the data topic": secured.data, "the progress topic": secured.progress}
    secured.grant(secured.rights("run", creating=True))
    [write] = [
        each
        for each in secured.rights("run")
        if each.operation is AclOperation.WRITE and each.name == names.get(what, f"sinkpipeline/v1/{secured.name}/")
    ]
    secured.feed(range(4))
    started = secured.starter().start()
    worker = Worker()
    with closing(started.hold):
        secured.write(started, range(2), worker)
        secured.grant(describing(write))
        secured.revoke([write])
        begun = replace(started.progress.partitions[secured.at()], next=2, rows=2)
        going_on = replace(started, progress=replace(started.progress, partitions={secured.at(): begun}))

        refused = fails(lambda: secured.write(going_on, range(2, 4), worker if kept else None))

    assert tells(refused, write), refused
    assert secured.delivered() == ["0", "1"]
    assert secured.frontier() == {0: 2}

    secured.grant([write])
    again = secured.starter("run-2").start()
    with closing(again.hold):
        secured.write(again, range(2, 4))
    assert secured.delivered() == ["0", "1", "2", "3"]


def test_a_right_that_is_revoked_in_the_middle_of_a_transaction(secured: Secured) -> None:
    secured.create_topics()
    [write] = [each for each in secured.rights("run") if each.resource is ResourceType.TRANSACTIONAL_ID]
    secured.grant([*secured.rights("run"), *describing(write)])
    producer = TransactionalProducer(secured.connection, secured.id.control_id)
    producer.begin()
    producer.produce_record(secured.data, "key", b"never")
    producer._producer.flush(DEADLINE_S)
    secured.revoke([write])

    refused = fails(producer.commit)
    producer.close()

    assert tells(refused, write), refused
    secured.grant([write])
    with closing(TransactionalProducer(secured.connection, secured.id.control_id)) as again:
        again.write(secured.data, [("key", b"once")])
    assert secured.delivered() == ["once"]


def test_a_topic_of_a_pattern_that_is_hidden_stops_the_sink(secured: Secured) -> None:
    other = topics.unique("hidden")
    pattern = {"topics": (), "pattern": f"{re.escape(secured.source)}|{other}"}
    topics.create_topic(secured.servers, other)
    seen = Right(ResourceType.TOPIC, other, AclOperation.READ)
    secured.grant([*secured.rights("run", creating=True), seen])
    secured.starter(source=pattern).start().hold.close()
    secured.revoke([seen])

    refused = fails(lambda: closing(secured.starter("run-2", source=pattern).start().hold).close())

    assert f"Describe on topic {other}" in refused.message


def test_each_cluster_has_a_principal_of_its_own(secured: Secured) -> None:
    reader = topics.unique("reader")
    secured.kafka.add_user(reader, PASSWORD)
    secured.kafka.grant(f"User:{reader}", secured.rights("run", cluster="source"))
    secured.grant(secured.rights("run", creating=True, cluster="sink"))
    source = secured.connect(reader)
    secured.feed(range(2))

    settings = secured.settings(source={"connection": source})
    starter = SinkStarter(ports=ports(settings, Admin(source), Admin(secured.connection)))
    started = starter.start()
    with closing(started.hold):
        secured.write(started, range(2))

    assert secured.delivered() == ["0", "1"]


@pytest.mark.thorough("the rights that suffice are shown beside it")
def test_following_the_progress_needs_no_right_on_groups(secured: Secured) -> None:
    """The client looks for the group's coordinator from time to time; that it may not is no reason to stop."""
    secured.grant(secured.rights("run", creating=True))
    secured.feed(range(2))
    started = secured.starter().start()
    settings = secured.settings()
    with (
        closing(started.hold),
        closing(
            ProgressFollower(secured.connection, secured.progress, settings.group_id, secured.id, started.progress.end)
        ) as follower,
    ):
        follower.poll(2.0)  # the refusal comes within one
        secured.write(started, range(2))

        assert follower.poll(5.0).partitions[secured.at()].next == 2
