"""Whatever a driver, Kubeflow's operator, a kubelet or an older API server has written: the operator goes on.

It raises nothing but what the API server said, no status is written that can't be gone on from, and a person can stop
the driver. `make hunt-operator` goes on with new seeds.
"""

from __future__ import annotations

import copy
import itertools
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from sinkpipeline.core import resume
from sinkpipeline.core.status import timestamp
from sinkpipeline_operator.kube.client import PIPELINE, ApiFailed, ApiRefused, Ref
from sinkpipeline_operator.observe.switchboard import Line
from support.kube.hostile import Hostile, Object
from support.runs.hunting import asked

RUNS = 50
"""Of each case, with one seed."""
LOOKS = 12
"""So many lead to the end of whatever is on its way."""
SPEC: Object = {
    "source": {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["in"]}},
    "sinks": [{"name": "out", "kafka": {"topic": {"name": "out"}}}],
}
OF_A_DATABASE: Object = {
    "postgresql": {
        "servers": "pg:5432",
        "database": "shop",
        "auth": {"username": "cdc"},
        "publication": {"name": "shop"},
        "startingPosition": "Now",
        "slot": {"name": "sinkpipeline_orders"},
        "changes": {"bootstrapServers": "kafka:9092", "topic": {"name": "in"}},
    }
}
SINK: Object = {
    "name": "out",
    "state": "Running",
    "guarantee": "ExactlyOnce",
    "rowsDelivered": 1,
    "deadLettered": 1,
    "dropped": 0,
    "lost": 0,
    "deadLetters": [{"class": "MalformedJson", "stage": "decode", "count": 1, "dropped": 0}],
    "frontier": [{"topic": "in", "topicId": "x", "next": [1, 2]}],
    "lastProgressTime": "2026-01-01T00:00:00Z",
    "lag": 3,
    "heldBack": 1,
    "openTransaction": {"message": "it is open", "remedy": "end it"},
    "epoch": 0,
    "dataTopicId": "d",
    "progressTopicId": "p",
    "circuit": {"openedAt": "2026-01-01T00:00:00Z", "configHash": "h"},
    "error": {"reason": "SparkFailed", "message": "the fact", "remedy": "the remedy"},
    "proved": True,
    "stillSince": "2026-01-01T00:00:00Z",
}
CONDITION = {"status": "True", "reason": "So", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
SOURCE: Object = {
    "state": "Running",
    "slot": "sinkpipeline_orders",
    "position": "0/3279E770",
    "index": 4,
    "changes": 7,
    "deadLettered": 1,
    "dropped": 1,
    "serverEnd": "0/3279E7B0",
    "lagBytes": 64,
    "lagSeconds": 3,
    "retainedBytes": 4096,
    "safeBytes": 8192,
    "timeline": 1,
    "atRisk": "it holds much",
    "snapshot": {"phase": "Reading", "epoch": 0, "table": "a.b", "tablesDone": 0, "tables": 1, "rows": 5},
    "incrementalSnapshot": {"table": "a.b", "tablesWaiting": 1, "rows": 5, "waitsFor": "it"},
    "circuit": {"openedAt": "2026-01-01T00:00:00Z", "configHash": "h"},
    "error": {"reason": "SourceUnreachable", "message": "the fact", "remedy": "the remedy"},
}
ANSWER: Object = {
    "identity": "shop.orders",
    "run": "r",
    "now": "2026-01-01T00:00:00Z",
    "supervising": True,
    "conditions": [{"type": kind, **CONDITION} for kind in ("TopicsReady", "ExactlyOnce")],
    "executors": {"registered": 1, "wanted": 2, "noneSince": "2026-01-01T00:00:00Z"},
    "source": SOURCE,
    "sinks": [SINK],
}
WORDS: Object = {
    "reason": "SparkFailed",
    "message": "the fact",
    "remedy": "the remedy",
    "source": SOURCE,
    "sinks": [SINK],
}
RUNNING: Object = {
    "applicationState": {"state": "RUNNING", "errorMessage": ""},
    "driverInfo": {"podName": "orders-driver"},
    "executionAttempts": 1,
}
STARTED: Object = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
WAITING: Object = {"waiting": {"reason": "ContainerCreating", "message": "it is"}}

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(
        ["", "has blanks", "\ud800", "\0", "0", "²", "--5", "Failed", "2026-02-30T00:00:00Z", "x" * 40_000]
    )
)
junk = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "reason", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, each in items:
        yield (*at, key)
        yield from places(each, (*at, key))


@st.composite
def mutated(draw: st.DrawFn, document: Object) -> Object:
    """With something else in some of its places, or nothing, or the same thing twice."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        found = list(places(changed))
        if not found:
            break
        path = draw(st.sampled_from(found))
        within = changed
        for key in path[:-1]:
            within = within[key]
        match draw(st.sampled_from(["replace", "replace", "delete", "double"])):
            case "delete":
                del within[path[-1]]
            case "double" if isinstance(within, list):
                within.append(copy.deepcopy(within[path[-1]]))
            case _:
                within[path[-1]] = draw(junk)
    return changed


texts = st.text(max_size=5) | st.sampled_from(
    ["", "has blanks", "\0", "²", "--5", "FAILED", "COMPLETED", "SUBMISSION_FAILED", "NEW_WORD", "x" * 40_000]
)


@st.composite
def retold(draw: st.DrawFn, document: Object) -> Object:
    """With another value of the same type in one of its places, or nothing: the API server sees to the types."""
    changed = copy.deepcopy(document)
    path = draw(st.sampled_from(list(places(changed))))
    within = changed
    for key in path[:-1]:
        within = within[key]
    here = within[path[-1]]
    if isinstance(here, dict) or draw(st.booleans()):
        del within[path[-1]]
    else:
        within[path[-1]] = draw(texts if isinstance(here, str) else st.integers(0, 2**31 - 1))
    return changed


bodies = mutated(ANSWER).map(lambda answer: json.dumps(answer).encode(errors="surrogatepass")) | st.binary(max_size=20)

bodies_of_a_stage = mutated({"source": SOURCE}).map(
    lambda part: json.dumps({**ANSWER, **part}).encode(errors="surrogatepass")
)

words = mutated(WORDS).map(json.dumps) | st.text(max_size=20)
words_of_a_stage = mutated({"source": SOURCE}).map(lambda part: json.dumps({**WORDS, **part}))


def made(name: str = "orders", **spec: Any) -> Hostile:
    hostile = Hostile(name)
    resource = {
        "apiVersion": PIPELINE.api_version,
        "kind": PIPELINE.kind,
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {**copy.deepcopy(SPEC), **spec},
    }
    hostile.api.put(PIPELINE, resource)
    return hostile


_seconds = itertools.count(1)


def good(line: Line) -> bytes:
    """A driver that lives: its clock goes on."""
    now = timestamp(next(_seconds) * 1000)
    sink = {key: value for key, value in SINK.items() if key not in ("error", "circuit", "stillSince")}
    executors = {"registered": 1, "wanted": 2}
    absent = ("error", "circuit", "atRisk", "snapshot", "incrementalSnapshot")
    source = {key: value for key, value in SOURCE.items() if key not in absent}
    told = {**ANSWER, "now": now, "configHash": line.config_hash, "executors": executors, "sinks": [sink]}
    told["source"] = source
    return json.dumps(told).encode()


def running(name: str = "orders", **spec: Any) -> Hostile:
    hostile = made(name, **spec)
    hostile.says = good
    until(hostile, "Running")
    return hostile


def until(hostile: Hostile, wanted: str) -> None:
    for _ in range(LOOKS):
        hostile.look()
        if phase(hostile) == wanted:
            return
        hostile.run_child(RUNNING, STARTED)
    raise AssertionError(hostile.status)


def phase(hostile: Hostile) -> Any:
    return hostile.status.get("phase")


def suspend(hostile: Hostile, *, off: bool = False) -> None:
    resource = hostile.resource
    spec = resource.get("spec")
    spec = {**(spec if isinstance(spec, dict) else {}), "suspend": not off}
    generation = resource["metadata"]["generation"] + 1
    hostile.api.put(
        PIPELINE, {**resource, "spec": spec, "metadata": {**resource["metadata"], "generation": generation}}
    )


def obeys(hostile: Hostile) -> None:
    """Whatever is said meanwhile."""
    suspend(hostile)
    for _ in range(LOOKS):
        hostile.look()
        if hostile.child is None and phase(hostile) == "Suspended":
            return
    raise AssertionError(hostile.status)


def remembers(hostile: Hostile) -> None:
    """What the next driver would go on from."""
    found = resume.from_status(hostile.status, "shop.orders", adopt=None)
    assert resume.render(found)["sinks"], hostile.status


def _of_this_configuration(body: bytes, line: Line) -> bytes:
    return body.replace(b'"identity"', f'"configHash": "{line.config_hash}", "identity"'.encode())


def answers(said: list[bytes]) -> None:
    _answers(running(), said)


def answers_of_a_stage(said: list[bytes]) -> None:
    _answers(running(source=OF_A_DATABASE), said)


def _answers(hostile: Hostile, said: list[bytes]) -> None:
    for body in said:
        hostile.says = partial(_of_this_configuration, body)
        for _ in range(4):
            assert hostile.look() == ""
            remembers(hostile)
    obeys(hostile)


def last_words(said: str, code: int, ended: bool) -> None:
    _last_words(running(), said, code, ended=ended)


def last_words_of_a_stage(said: str, code: int, ended: bool) -> None:
    _last_words(running(source=OF_A_DATABASE), said, code, ended=ended)


def _last_words(hostile: Hostile, said: str, code: int, *, ended: bool) -> None:
    before = hostile.child
    assert before is not None
    status = RUNNING if not ended else {**RUNNING, "applicationState": {"state": "FAILED", "errorMessage": "it failed"}}
    hostile.run_child(status, {"terminated": {"exitCode": code, "reason": "Error", "message": said}})
    for _ in range(LOOKS):
        assert hostile.look() == ""
    remembers(hostile)
    assert hostile.status["restarts"]["total"] == 1
    assert hostile.child is None or hostile.child["metadata"]["uid"] != before["metadata"]["uid"]
    obeys(hostile)


def states_of_the_child(state: Object, container: Object) -> None:
    hostile = running()
    hostile.run_child(state, container)
    for _ in range(4):
        assert hostile.look() == ""
    remembers(hostile)
    obeys(hostile)


def stored_specs(stored: Object, name: str) -> None:
    """An older CRD has let it in; what ran before can be stopped."""
    hostile = running()
    hostile.api.put(PIPELINE, {**hostile.resource, **({"spec": {}} | stored)})
    for _ in range(3):
        assert hostile.look() == ""
    obeys(hostile)

    hostile = made(name)
    hostile.api.put(PIPELINE, {**hostile.resource, **({"spec": {}} | stored)})
    for _ in range(3):
        assert hostile.look() == ""
    assert hostile.status


VERBS = ("list", "apply", "create", "delete", "status", "patch", "get")
PLURALS = ("sinkpipelines", "sparkapplications", "configmaps", "secrets", "pods")
ERRORS = (ApiRefused(403, "a policy denied the request"), ApiRefused(422, "is invalid"), ApiFailed(500, "etcd is away"))
NEEDED_TO_STOP = {("delete", "sparkapplications"), ("status", "sinkpipelines")} | {
    (verb, plural) for verb in ("get", "list") for plural in PLURALS
}
refusals = st.dictionaries(
    st.tuples(st.sampled_from(VERBS), st.sampled_from(PLURALS)), st.sampled_from(ERRORS), min_size=1, max_size=3
)


def what_the_api_server_refuses(refused: Any, runs: bool, stops: bool) -> None:
    hostile = running() if runs else made()
    hostile.says = good
    if stops:
        hostile.api.objects.pop(("secrets", Ref("shop", "orders-driver-token")), None)
        suspend(hostile)
    hostile.api.refused = refused
    for _ in range(LOOKS):
        ended = hostile.look()
        hostile.run_child(RUNNING, STARTED)
        if ended == "ApiRefused" and ("get", "sinkpipelines") not in refused:
            assert {"AdmissionRefused", "ObjectRefused"} & {*hostile.told}, "nobody is told"
    if stops and not {*refused} & NEEDED_TO_STOP:
        assert hostile.child is None, "what only a start needs holds up a stop"
    hostile.api.refused = {}
    suspend(hostile, off=True)
    until(hostile, "Running")
    obeys(hostile)


CASES: Mapping[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    "answers": (answers, (st.lists(bodies, min_size=1, max_size=3),)),
    "answers_of_a_stage": (
        answers_of_a_stage,
        (st.lists(bodies_of_a_stage | bodies, min_size=1, max_size=3),),
    ),
    "last_words": (last_words, (words, st.integers(0, 255), st.booleans())),
    "last_words_of_a_stage": (
        last_words_of_a_stage,
        (words_of_a_stage | words, st.integers(0, 255), st.booleans()),
    ),
    "states_of_the_child": (states_of_the_child, (retold(RUNNING), retold(WAITING))),
    "stored_specs": (stored_specs, (mutated({"spec": SPEC}), st.sampled_from(["orders", "a.b", "x" * 80]))),
    "what_the_api_server_refuses": (what_the_api_server_refuses, (refusals, st.booleans(), st.booleans())),
}


def run(case: str, runs: int, with_seed: int | None = None, *, small: bool = True) -> None:
    """Raises what was found; `with_seed`: always the same runs without one; `small`: made as small as can be."""
    check, strategies = CASES[case]
    phases = [Phase.generate, Phase.shrink] if small else [Phase.generate]
    ways = settings(
        max_examples=runs,
        deadline=None,
        database=None,
        derandomize=with_seed is None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    tried = given(*strategies)(check)
    ways(tried if with_seed is None else seed(with_seed)(tried))()


def main(arguments: Sequence[str] | None = None, say: Callable[[str], object] = print) -> int:
    asked_for = asked("hunt-operator", __doc__, arguments)
    logging.disable(logging.CRITICAL)
    for each in asked_for.seeds:
        for case in CASES:
            try:
                run(case, RUNS, each)
            except Exception:  # noqa: BLE001 - whatever it is, it should not have been raised
                say(f"{traceback.format_exc()}\nfound by {case} with seed {each}")
                return 1
        say(f"seed {each}: nothing")
        if asked_for.is_over:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
