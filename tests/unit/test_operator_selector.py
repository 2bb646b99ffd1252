"""Which pipelines are an operator's own."""

from __future__ import annotations

import pytest

from sinkpipeline_operator.kube.selector import Selector


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("", {"shard": "a"}, True),
        ("shard=a", {"shard": "a"}, True),
        ("shard==a", {"shard": "b"}, False),
        ("shard=a", {}, False),
        ("shard!=a", {}, True),
        ("shard!=a", {"shard": "b"}, True),
        ("shard!=a", {"shard": "a"}, False),
        ("example.com/shard", {"example.com/shard": ""}, True),
        ("shard", {}, False),
        ("!shard", {}, True),
        ("!shard", {"shard": "a"}, False),
        ("shard=", {"shard": ""}, True),
        ("shard=a, team!=b ,!test", {"shard": "a", "team": "c"}, True),
        ("shard=a,team!=b,!test", {"shard": "a", "test": "yes"}, False),
    ],
)
def test_labels(text: str, labels: dict[str, str], *, matches: bool) -> None:
    selector = Selector.parse(text)
    assert selector.matches(labels) is matches
    assert Selector.parse(str(selector)) == selector


@pytest.mark.parametrize(
    "text", ["shard in (a,b)", "=a", "!shard=a", "a=b=c", "shard=a,", "a b", "Bad/KEY/x", "shard=-"]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no requirement: write KEY=VALUE"):
        Selector.parse(text)


@pytest.mark.parametrize("labels", [{}, {"shard": "a"}, {"shard": "b"}, {"shard": ""}, {"team": "a"}])
def test_of_two_that_exclude_each_other_exactly_one_has_a_pipeline(labels: dict[str, str]) -> None:
    assert [Selector.parse(text).matches(labels) for text in ("shard=a", "shard!=a")].count(True) == 1
