"""ConfigMaps of run configurations that somebody has put another one in the place of."""

from __future__ import annotations

import pytest

from sinkpipeline_operator.child import configs
from sinkpipeline_operator.child.builder import HASH_LABEL
from sinkpipeline_operator.child.runconfig import RunConfig


@pytest.mark.parametrize("text", ["", "{", "[" * 200_000, "null"], ids=["empty", "cut off", "a nest", "nothing"])
def test_what_is_no_configuration_is_none(text: str) -> None:
    found = configs.read(
        {
            "metadata": {
                "name": "c",
                "uid": "u",
                "labels": {HASH_LABEL: "h"},
                "annotations": {configs.REFUSED_ANNOTATION: text},
            },
            "data": {configs.FILE: text},
        }
    )
    assert found is not None
    assert found.refusal is None
    assert found.pipeline("uid") is None
    assert not found.is_of(RunConfig(document={}, hash="h"))
