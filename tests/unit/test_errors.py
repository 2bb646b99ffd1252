from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.errors import ExitCode, Reason, SinkPipelineError

NAMED_BY_THE_DESIGN = {
    "BrokerUnreachable",
    "CircuitOpen",
    "DataTopicLost",
    "IdentityInUse",
    "ProgressCorrupt",
    "ProgressLost",
    "ProgressRegressed",
    "ProgressTopicInvalid",
    "ProgressUnreadable",
    "SourceDataLost",
    "SourceRecreated",
    "Superseded",
    "TopicIdsUnavailable",
}

MANIFEST = {Reason.USAGE_INVALID, Reason.MANIFEST_INVALID, Reason.NOT_SERVED, Reason.EXPRESSION_INVALID}
TRANSIENT = {
    Reason.PROGRESS_UNREADABLE,
    Reason.DEAD_LETTERS_UNREADABLE,
    Reason.FENCED_REPEATEDLY,
    Reason.TRANSACTION_FAILED,
    *(
        OUTAGES := {
            Reason.BROKER_UNREACHABLE,
            Reason.SINK_UNREACHABLE,
            Reason.SINK_FULL,
            Reason.SINK_UNDER_REPLICATED,
            Reason.SINK_UNDER_REPLICATED,
            Reason.SOURCE_SLOW,
            Reason.SOURCE_UNREACHABLE,
            Reason.SLOT_BUSY,
            Reason.SCHEMA_REGISTRY_UNREACHABLE,
        }
    ),
    Reason.KAFKA_ERROR,
    Reason.TOPICS_CHANGED,
    Reason.BATCH_FAILED,
    Reason.STAGE_FAILED,
    Reason.SPARK_FAILED,
    Reason.INTERNAL_ERROR,
}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_an_exit_code_and_a_verdict_about_retries(reason: Reason) -> None:
    if reason in MANIFEST:
        expected = ExitCode.MANIFEST
    elif reason in TRANSIENT:
        expected = ExitCode.FAILED
    elif reason is Reason.SUPERSEDED:
        expected = ExitCode.SUPERSEDED
    else:
        expected = ExitCode.REFUSED
    assert reason.exit_code is expected
    assert reason.retry == (reason in TRANSIENT)
    assert reason.counted == (reason not in OUTAGES)
    assert not (reason.heals and reason.exit_code is not ExitCode.REFUSED), "only a refusal waits to be lifted"


def test_exit_codes_are_those_of_the_design() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0,
        "FAILED": 1,
        "MANIFEST": 2,
        "REFUSED": 3,
        "SUPERSEDED": 4,
    }


def test_reasons_are_camel_case_words_named_after_themselves() -> None:
    for reason in Reason:
        assert re.fullmatch(r"([A-Z][a-z]+)+", reason.value)
        assert reason.name == re.sub(r"(?<!^)(?=[A-Z])", "_", reason.value).upper()
    assert {reason.value for reason in Reason} >= NAMED_BY_THE_DESIGN


@given(st.sampled_from(Reason), st.text(), st.text())
def test_an_error_travels(reason: Reason, message: str, remedy: str) -> None:
    error = SinkPipelineError(reason, message, remedy)
    for back in (pickle.loads(pickle.dumps(error)), SinkPipelineError.from_dict(error.to_dict())):
        assert (back.reason, back.message, back.remedy) == (reason, message, remedy)
        assert str(back) == str(error) == f"{reason.value}: {message} ({remedy})"
