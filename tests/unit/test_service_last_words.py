from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.cli.pod.command import run
from sinkpipeline.cli.pod.termination import TerminationLog
from sinkpipeline.cli.signals import stop_on_signal
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.last_words import LIMIT_BYTES, last_words
from sinkpipeline.core.resume import OpenCircuit, Resume, render
from support.app.command import manifest

STATES = ("Starting", "Running", "Suspended", "Retrying", "Failed")


def sink(
    name: str = "one", *, partitions: int = 3, state: str = "Running", text: str = "", classes: int = 1
) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "guarantee": "ExactlyOnce",
        "rowsDelivered": 110,
        "deadLettered": 2,
        "dropped": 0,
        "lost": 0,
        "deadLetters": [{"class": f"Class{n}", "stage": "decode", "count": n, "dropped": 0} for n in range(classes)],
        "frontier": [{"topic": "orders-raw", "topicId": "id-a", "next": [10**12 + n for n in range(partitions)]}],
        "lastProgressTime": "2023-11-14T22:13:20Z",
        "epoch": 0,
        "dataTopicId": "id-d",
        "progressTopicId": "id-p",
        "lag": 7,
        **({"error": {"reason": "DataTopicLost", "message": text, "remedy": text}} if text else {}),
    }


def spoken(reason: str, message: str, remedy: str, sinks: list[dict[str, Any]]) -> Any:
    words = last_words(reason, message, remedy, sinks)
    assert len(words) <= LIMIT_BYTES
    return json.loads(words)


def test_everything_is_said_where_it_fits() -> None:
    found = spoken("DataTopicLost", "it is gone", "reset", [sink(text="it is gone", state="Failed"), sink("two")])
    assert (found["reason"], found["message"], found["remedy"]) == ("DataTopicLost", "it is gone", "reset")
    expected = sink(text="it is gone", state="Failed")
    assert found["sinks"][0] == {key: expected[key] for key in expected if key not in ("lag", "guarantee")}
    assert found["sinks"][1]["frontier"] == sink()["frontier"]


def test_long_texts_are_cut_before_a_frontier_is_left_out() -> None:
    found = spoken("KafkaError", "é" * 5000, "r" * 5000, [sink(text="x" * 5000)])
    assert found["message"].startswith("éééé")
    assert found["message"].endswith("…")
    assert found["sinks"][0]["error"]["reason"] == "DataTopicLost"
    assert "frontier" in found["sinks"][0]


def test_counts_by_class_go_before_a_frontier() -> None:
    sinks = [sink("one", classes=30), sink("two", partitions=150)]
    found = spoken("Done", "m" * 900, "", sinks)
    assert ["deadLetters" in each for each in found["sinks"]] == [False, False]
    assert [each["frontier"] for each in found["sinks"]] == [each["frontier"] for each in sinks]
    assert found["message"] == "m" * 900, "nor is a text cut for what is gone anyway"
    told = spoken("Done", "m" * 2000, "", [sink("one", classes=30)])
    assert (len(told["sinks"][0]["deadLetters"]), len(told["message"])) == (30, 1024)


def test_the_largest_frontier_goes_first() -> None:
    found = spoken("Done", "", "", [sink("big", partitions=2000), sink("small"), sink("medium", partitions=50)])
    with_frontier = [each["name"] for each in found["sinks"] if "frontier" in each]
    assert with_frontier == ["small", "medium"]
    assert [each["rowsDelivered"] for each in found["sinks"]] == [110] * 3


def test_the_states_of_many_sinks_with_long_names() -> None:
    sinks = [sink(f"{n:0>63}", partitions=100, state="Failed", text="lost " * 200) for n in range(32)]
    found = spoken("DataTopicLost", "m" * 9999, "r" * 9999, sinks)
    assert [(each["name"], each["state"]) for each in found["sinks"]] == [(each["name"], "Failed") for each in sinks]
    assert len(found["message"]) >= 60


texts = st.text(max_size=3000) | st.just("\x00" * 3000) | st.just("\ud800" * 50) | st.just("🙂" * 2000)


@given(
    texts,
    texts,
    st.lists(
        st.builds(
            sink,
            st.text("abc-", min_size=1, max_size=63),
            partitions=st.integers(1, 300),
            state=st.sampled_from(STATES),
            text=texts,
            classes=st.integers(0, 64),
        ),
        max_size=32,
    ),
)
def test_it_is_always_whole_and_always_fits(message: str, remedy: str, sinks: list[dict[str, Any]]) -> None:
    found = spoken("InternalError", message, remedy, sinks)
    assert set(found) == {"reason", "message", "remedy", "sinks"}
    assert [each["state"] for each in found["sinks"]] == [each["state"] for each in sinks]


def test_the_file_is_overwritten_in_place(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("x" * 9000)
    inode = path.stat().st_ino

    TerminationLog(path).failed(SinkPipelineError(Reason.DATA_TOPIC_LOST, "m", "r"))

    assert json.loads(path.read_text()) == {"reason": "DataTopicLost", "message": "m", "remedy": "r", "sinks": []}
    assert path.stat().st_ino == inode


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    TerminationLog(tmp_path / "none" / "termination-log").done(stopped=True)
    assert "can't be written" in caplog.text


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "config.yaml").write_text("kind: SinkPipeline\n")
    return [
        *("--config", str(tmp_path / "config.yaml"), "--listen", "127.0.0.1:0"),
        *("--token-file", str(tmp_path / "token"), "--termination-log", str(tmp_path / "words")),
        *("--owner-cluster", "c-1", "--config-hash", "h-1", "--master", "local[1]"),
    ]


def test_a_bad_manifest_has_last_words(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    found = json.loads((tmp_path / "words").read_text())
    assert found["reason"] == "ManifestInvalid"
    assert found["message"]
    assert capsys.readouterr().err.splitlines()[-1].startswith("ManifestInvalid: ")


def test_an_empty_token_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "token").write_text("\n")
    assert run(arguments) == 3
    assert json.loads((tmp_path / "words").read_text())["reason"] == "SecretInvalid"


def test_an_uncaught_exception_has_last_words(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("sinkpipeline.cli.pod.command.read_manifest", fail)

    assert run(arguments) == 1
    found = json.loads((tmp_path / "words").read_text())
    assert (found["reason"], found["message"]) == ("InternalError", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize("wrong", ["here", "host:", ":80", "host:99999", "::1:80", "[::1]80"])
def test_an_address_that_is_none(arguments: list[str], wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments[arguments.index("--listen") + 1] = wrong
    assert run(arguments) == 2
    assert "is not HOST:PORT" in capsys.readouterr().err


def test_a_second_signal_ends_at_once_but_not_wordless(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, said, ended = threading.Event(), list[str](), list[int]()
    monkeypatch.setattr(os, "_exit", ended.append)
    with stop_on_signal(stop, at_once=lambda: said.append("words")):
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        assert (said, ended) == ([], [])
        signal.raise_signal(signal.SIGTERM)
        assert (said, ended) == (["words"], [1])


def test_with_every_circuit_open_nothing_is_started(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker is asked, and no Spark is started: there is none of either here."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(manifest("127.0.0.1:1", "pipe", ["t"])))
    circuit = OpenCircuit(opened_at=1_700_000_000_000, config_hash="h-1", message="5 failures", remedy="look")
    resume = Resume(identity="test.pipe", circuits={"pipe": circuit})
    (tmp_path / "resume.json").write_text(json.dumps(render(resume)))

    assert run([*arguments, "--resume", str(tmp_path / "resume.json")]) == 3

    words = json.loads((tmp_path / "words").read_text())
    assert (words["reason"], words["message"], words["remedy"]) == ("CircuitOpen", "5 failures", "look")
    assert [(each["name"], each["state"]) for each in words["sinks"]] == [("pipe", "Failed")]
    assert words["sinks"][0]["circuit"] == {"openedAt": "2023-11-14T22:13:20Z", "configHash": "h-1"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 2}', '{"v": 1, "identity": "test.other", "sinks": []}'])
def test_a_resume_document_that_cannot_be_read_is_refused(tmp_path: Path, arguments: list[str], text: str) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(manifest("127.0.0.1:1", "pipe", ["t"])))
    (tmp_path / "resume.json").write_text(text)

    assert run([*arguments, "--resume", str(tmp_path / "resume.json")]) == 3

    assert json.loads((tmp_path / "words").read_text())["reason"] == "StatusFileInvalid"


def test_a_suspended_pipeline_is_done(tmp_path: Path, arguments: list[str]) -> None:
    document = manifest("127.0.0.1:1", "pipe", ["t"], suspend=True)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))

    assert run(arguments) == 0

    assert json.loads((tmp_path / "words").read_text())["reason"] == "Done"
