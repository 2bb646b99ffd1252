"""What the code says to a person, reason by reason, read out of its source."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sinkpipeline.core.errors import Reason

ROOT: Final = Path(__file__).parents[3]
_APP = ROOT / "spark_app" / "sinkpipeline"
_OPERATOR = ROOT / "operator" / "sinkpipeline_operator"
_OF_A_PERSON = ("plugin", "kube")
"""What is told to whoever has typed a command: no status prints it."""
_OF_A_DRIVER = ("cells", "changes", "core", "kafka", "nats", "postgresql", "redis_streams", "sinks", "spark")
"""What a driver, or an operator, may say; the command line is a person's own."""

WITH_A_COMMAND = frozenset(
    {
        Reason.DATA_TOPIC_LOST,
        Reason.DATA_TOPIC_REMOVED,
        Reason.SOURCE_RECREATED,
        Reason.SOURCE_DATA_LOST,
        Reason.SOURCE_TOPIC_MISSING,
        Reason.PROGRESS_CORRUPT,
        Reason.PROGRESS_REGRESSED,
        Reason.PROGRESS_LOST,
        Reason.IDENTITY_IN_USE,
        Reason.CIRCUIT_OPEN,
    }
)
"""Reasons whose remedy is something that one types: each is typed as it is printed, by tests/kube/test_remedies."""

IN_WORDS = frozenset(
    {
        Reason.MANIFEST_INVALID,
        Reason.NOT_SERVED,
        Reason.EXPRESSION_INVALID,
        Reason.SECRET_NOT_FOUND,
        Reason.SECRET_INVALID,
        Reason.AUTHENTICATION_FAILED,
        Reason.AUTHORIZATION_FAILED,
        Reason.DATA_TOPIC_NOT_EMPTY,
        Reason.POSITIONS_REFUSED,
        Reason.TOPIC_CREATION_FAILED,
        Reason.TOPIC_IDS_UNAVAILABLE,
        Reason.PROGRESS_TOPIC_INVALID,
        Reason.PROGRESS_VERSION_UNKNOWN,
        Reason.RECORD_UNDECODABLE,
        Reason.RECORD_REFUSED,
        Reason.DEAD_LETTER_FAILED,
        Reason.KAFKA_REFUSED,
        Reason.SINK_REFUSED,
        Reason.BROKER_UNREACHABLE,
        Reason.SINK_ROLLED_BACK,
        Reason.SINK_UNDER_REPLICATED,
        Reason.SINK_UNREACHABLE,
        Reason.SINK_FULL,
        Reason.SINK_UNDER_REPLICATED,
        Reason.SOURCE_SLOW,
        Reason.SOURCE_ROLLED_BACK,
        Reason.SOURCE_UNREACHABLE,
        Reason.SOURCE_UNSUITABLE,
        Reason.SLOT_BUSY,
        Reason.SLOT_LOST,
        Reason.STAGE_FAILED,
        Reason.PUBLICATION_MISSING,
        Reason.TRANSACTION_TOO_LARGE,
        Reason.SCHEMA_REGISTRY_UNREACHABLE,
        Reason.CONFIG_MAP_NOT_FOUND,
        Reason.LOOKUP_INVALID,
        Reason.LOOKUP_NOT_UNIQUE,
        Reason.SCHEMA_NOT_FOUND,
        Reason.SCHEMA_UNSUPPORTED,
        Reason.SCHEMA_REFUSED,
        Reason.TOO_MANY_SCHEMAS,
        Reason.PROGRESS_UNREADABLE,
        Reason.DEAD_LETTERS_UNREADABLE,
        Reason.FENCED_REPEATEDLY,
        Reason.TRANSACTION_FAILED,
        Reason.KAFKA_ERROR,
        Reason.TOPICS_CHANGED,
        Reason.BATCH_FAILED,
        Reason.SPARK_FAILED,
        Reason.INTERNAL_ERROR,
        Reason.SUPERSEDED,
    }
)
"""Reasons whose remedy is in somebody's own world: nothing that is printed is to be typed."""

OF_NO_STATUS = frozenset(
    {
        # Of an action, or of the command.
        Reason.USAGE_INVALID,
        Reason.NOTHING_TO_RESET,
        Reason.FRONTIER_MOVED,
        # Of a run from a file.
        Reason.LOG_FILE_INVALID,
        Reason.STATUS_FILE_INVALID,
    }
)
"""Reasons that no pipeline of a cluster can have."""


@dataclass(frozen=True)
class Typed:
    """How often the operator's code prints a command, and who types it as it is printed."""

    places: int
    by: str
    """A test: `<file>::<function>`."""


BY_THE_OPERATOR: Final[Mapping[str, Typed]] = {
    "kubectl -n x describe pod x": Typed(
        1, "tests/kube/test_operator_waiting.py::test_each_thing_that_a_start_waits_for_is_told"
    ),
    "kubectl -n x delete pod x --force": Typed(
        1, "tests/kube/test_operator_waiting.py::test_a_pod_that_does_not_end_is_told_and_ended_as_it_is_printed"
    ),
    "kubectl -n x logs x": Typed(
        2, "tests/kube/test_operator_waiting.py::test_executors_that_do_not_come_are_told_without_a_pod_of_theirs"
    ),
    "kubectl -n x describe job x": Typed(
        2, "tests/kube/test_actions.py::test_where_the_job_of_an_action_is_looked_at_is_typed_as_it_is_printed"
    ),
    "kubectl -n x create -f -": Typed(
        1, "tests/kube/test_actions.py::test_the_way_out_of_a_lost_data_topic_is_typed_as_it_is_printed"
    ),
    "kubectl -n x patch sinkpipelineaction x --type=merge -p 'x'": Typed(
        1, "tests/kube/test_actions.py::test_the_way_out_of_a_lost_data_topic_is_typed_as_it_is_printed"
    ),
    "kubectl -n x annotate --overwrite sinkpipeline x ": Typed(
        1, "tests/kube/test_remedies.py::test_an_owner_is_adopted_as_it_is_printed"
    ),
    "kubectl -n x patch sinkpipeline x --type=merge -p 'x'": Typed(
        1, "tests/kube/test_remedies.py::test_a_circuit_is_closed_as_it_is_printed"
    ),
    "kubectl -n x wait sinkpipeline x x && x": Typed(
        1, "tests/kube/test_remedies.py::test_a_circuit_is_closed_as_it_is_printed"
    ),
    "kubectl -n x get sinkpipeline x -o jsonpath='{.status.sinks}'": Typed(
        1, "tests/kube/test_remedies.py::test_what_was_delivered_or_not_is_looked_at_as_it_is_printed"
    ),
    "kubectl -n x exec x-driver -- sinkpipeline dlq list x": Typed(
        1, "tests/cluster/test_as_users_run_it.py::test_what_a_person_decides_is_done_as_it_is_printed"
    ),
    "kubectl -n x annotate --overwrite sinkpipeline x x=true": Typed(
        1,
        "tests/kube/test_operator.py::test_a_stored_spec_that_is_refused_today_can_be_deleted_as_the_status_says",
    ),
}
"""Commands that only the operator's own code prints, in a status or an event."""

_COMMAND: Final = re.compile(r"(?:(?<=`)kubectl|kubectl -n) [^`]*")


def commands_of_the_operator() -> Counter[str]:
    """In how many places each is printed."""
    found = Counter[str]()
    for path in sorted(_OPERATOR.rglob("*.py")):
        if path.relative_to(_OPERATOR).parts[0] not in _OF_A_PERSON:
            for text in _whole_texts(ast.parse(path.read_text())):
                found.update(_COMMAND.findall(text))
    return found


def _whole_texts(tree: ast.AST) -> Iterator[str]:
    """Of what is said: no docstrings, and no pieces of a longer text."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            yield _text(node, {})
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield from _whole_texts(node)


def types_something(test: str) -> bool:
    """Whether there is a test of that name, and it types a command."""
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    body = next((each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name), None)
    calls = (node for node in ast.walk(body or ast.Module([], [])) if isinstance(node, ast.Call))
    return any(isinstance(each.func, ast.Attribute) and each.func.attr == "type" for each in calls)


def texts() -> Iterator[tuple[str, str]]:
    """(path, text) of every piece of text that the code may say."""
    for path, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                yield path, _text(node, {})


def remedies() -> Iterator[tuple[Reason, str]]:
    """Reason and remedy of every error that is made where both can be read."""
    for _, tree in _modules():
        constants = _named(tree.body)
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            named = constants | _named(scope.body)
            for node in ast.walk(scope):
                if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "SinkPipelineError"):
                    continue
                reason = node.args[0] if node.args else None
                if isinstance(reason, ast.Attribute) and reason.attr in Reason.__members__ and len(node.args) == 3:
                    yield Reason[reason.attr], _text(node.args[2], named)


def _named(body: list[ast.stmt]) -> dict[str, str]:
    """The texts that are assigned there to a name."""
    return {
        target.id: _text(each.value, {})
        for each in body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in _OF_A_DRIVER:
        for path in sorted((_APP / folder).rglob("*.py")):
            yield str(path), ast.parse(path.read_text())


def _text(node: ast.AST, named: dict[str, str]) -> str:
    """What is known of it: a value that is put in reads as `x`."""
    match node:
        case ast.Constant(value=str(text)):
            found = [text]
        case ast.JoinedStr(values=parts) | ast.BoolOp(values=parts):
            found = [_text(each, named) for each in parts]
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            found = [_text(left, named), _text(right, named)]
        case ast.Name(id=name):
            found = [named.get(name, "x")]
        case _:
            found = ["x"]
    return "".join(found)
