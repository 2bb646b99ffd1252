"""What is printed for a pipeline of a cluster can be typed there: nothing of the command, which reads a file."""

from __future__ import annotations

import re

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline_operator.child import remedies
from sinkpipeline_operator.kube.client import Ref
from support.kube import remedied

PIPELINE = Ref("shop", "orders")
OF_THE_COMMAND = re.compile(r"`sinkpipeline |--status-file|--secrets-dir|--to |adopt-owner: ")


def in_cluster(text: str) -> str:
    return remedies.in_cluster(text, PIPELINE, "copy")


def _without_exec(text: str) -> str:
    """Within the driver's pod there is a file."""
    return re.sub(r"`kubectl -n \S+ exec [^`]*`", "", text)


def test_every_reason_has_its_place() -> None:
    places = [remedied.WITH_A_COMMAND, remedied.IN_WORDS, remedied.OF_NO_STATUS]
    assert sum(map(len, places)) == len(Reason), "a new reason: say here what its remedy is, and type it in tests/kube"
    assert frozenset().union(*places) == frozenset(Reason)


def test_what_is_to_be_typed_is_typed_by_a_test() -> None:
    typed = {reason for reason, remedy in remedied.remedies() if "`kubectl" in _without_exec(in_cluster(remedy))}
    typed |= {reason for reason, remedy in remedied.remedies() if "`echo" in in_cluster(remedy)}
    # Of an action: a driver that is superseded is told nothing to type.
    assert typed - remedied.OF_NO_STATUS - {Reason.SUPERSEDED} <= remedied.WITH_A_COMMAND


def test_what_the_operator_itself_prints_is_typed_by_a_test() -> None:
    printed = {command: typed.places for command, typed in remedied.BY_THE_OPERATOR.items()}
    assert remedied.commands_of_the_operator() == printed, (
        "a new command: say here which test types it as it is printed"
    )
    assert [typed.by for typed in remedied.BY_THE_OPERATOR.values() if not remedied.types_something(typed.by)] == []


def test_no_remedy_on_a_cluster_is_of_the_command() -> None:
    found = [remedy for reason, remedy in remedied.remedies() if reason is not Reason.USAGE_INVALID]
    assert [remedy for remedy in found if OF_THE_COMMAND.search(_without_exec(in_cluster(remedy)))] == []


def test_no_command_is_named_that_nobody_translates() -> None:
    named = {text for _, text in remedied.texts() if "`sinkpipeline " in text and "\n" not in text.strip()}
    assert {text for text in named if "`sinkpipeline " in in_cluster(text)} == set()


RESET = (
    'say where to go on with `echo \'{"apiVersion":"sinkpipeline.io/v1alpha1","kind":"SinkPipelineAction",'
    '"metadata":{"generateName":"reset-"},"spec":{"pipeline":"orders","sink":"copy","action":"Reset",'
    '"to":"earliest"}}\' | kubectl -n shop create -f -`, and confirm what it shows'
)
ADOPT = "type `kubectl -n shop annotate --overwrite sinkpipeline orders sinkpipeline.io/adopt-owner=file/shop/orders`"
ADOPT += f", then `{remedies.restart(PIPELINE)}`"


@pytest.mark.parametrize(
    ("remedy", "printed"),
    [
        ("say where to go on with `sinkpipeline reset`", RESET),
        ("annotate it with sinkpipeline.io/adopt-owner: file/shop/orders, and change restartNonce", ADOPT),
        ("create it", "create it"),
    ],
)
def test_what_is_printed(remedy: str, printed: str) -> None:
    assert in_cluster(remedy) == printed


def test_what_bars_a_removal_is_told_with_a_way_out_that_needs_no_other_spec() -> None:
    missing = SinkPipelineError(Reason.SECRET_NOT_FOUND, "Secret s does not exist", "create it")
    for trouble, has_kafka, fact in (
        (missing, True, "Secret s does not exist"),
        (None, True, "the manifest can't be read"),
        (None, False, "the operator has no access to Kafka"),
    ):
        error = remedies.removal_barred(PIPELINE, trouble, has_kafka=has_kafka)
        assert error.message == f"{fact}, so no topic can be removed"
        assert "create it" not in error.remedy, "a namespace that is being deleted would refuse it"
        assert "annotate --overwrite sinkpipeline orders sinkpipeline.io/keep-topics=true`" in error.remedy
