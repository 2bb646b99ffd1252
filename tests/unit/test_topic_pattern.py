"""The dialect of topicPattern: every engine has the same verdict, and finds the same topics."""

from __future__ import annotations

import re
import time
import warnings

import cel
import pytest
from hypothesis import HealthCheck, assume, example, given, settings

from sinkpipeline.core import topic_pattern
from sinkpipeline.core.topic_pattern import DIALECT, FEW_COUNTED, FEW_GROUPS, PatternError, check, matches
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.settings import SourceSettings
from support.resource.patterns import TOPICS, patterns


def in_the_definition(pattern: str) -> bool:
    """By the rules of the resource, which an API server evaluates."""
    rules = [f"p.matches(r'''{each}''')" for each in (DIALECT, FEW_GROUPS, FEW_COUNTED)]
    try:
        return all(cel.evaluate(each, {"p": pattern}) for each in (*rules, "''.matches(p) in [true, false]"))
    except (ValueError, RuntimeError, TypeError):
        return False


def of_the_model(pattern: str) -> bool:
    try:
        check(pattern)
    except PatternError:
        return False
    return True


@example("(a+)+b")
@example(r"orders-\pN")
@example("[[:digit:]]")
@example("(?i)[^a]")
@example("a)|(b")
@given(patterns)
def test_model_and_definition_have_one_verdict(pattern: str) -> None:
    assert of_the_model(pattern) == in_the_definition(pattern)


@example("(?i)[^a]")
@example(r"(?i)[A-z]|\W")
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(patterns)
def test_what_is_read_is_read_alike_by_backtracking_engines(pattern: str) -> None:
    """Python's own engine here; that of Java in tests/spark, that of Go in tests/kube."""
    assume(of_the_model(pattern))
    source = SourceSettings(connection=Connection(bootstrap_servers="a:1"), pattern=pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what may mean something else one day
        python = re.compile(pattern)
    assert [name for name in TOPICS if source.reads(name)] == [name for name in TOPICS if python.fullmatch(name)]


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", ".*.*.*.*.*.*.*b", "(a*)*(a*)*b", ".{0,99}" * 10 + "b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    begin = time.process_time()
    assert not any(matches(pattern, "a" * 200 + f"-{number}") for number in range(200))
    assert time.process_time() - begin < 2


def test_the_largest_patterns_are_taken() -> None:
    for pattern in ("[^a]{99}" * 10, "(" * 100 + "a" + ")?" * 100, "(.|b)*" * 100, "a" * 1024, "[a-c]" * 204):
        check(pattern)
        matches(pattern, "a")
        assert in_the_definition(pattern)


@pytest.mark.parametrize(
    ("pattern", "word"),
    {
        "(?<=a)b": "look-around",
        "(?<n>a)": "named group",
        r"(a)\1": "back-reference",
        r"\pL": "class of Unicode",
        r"\s": r"read are \. \- \_ \d \w \D \W",
        "(?m)a": "flag",
        "a++": "possessive",
        "(a){2}": "counted repetition of a group",
        "a{2,1}": "first number is the larger",
        "[z-a]": "first character is the later",
        "[a&&b]": "a set",
        "a/b": "no name of a topic has",
        "a)": '")" without',
        "(a": '"(" without',
        "(a)" * 101: "101 groups",
        "a{2}" * 11: "11 counted repetitions",
    }.items(),
)
def test_what_is_refused_is_told(pattern: str, word: str) -> None:
    with pytest.raises(PatternError, match=re.escape(word)):
        check(pattern)
    assert not in_the_definition(pattern)


def test_a_pattern_reads_whole_names() -> None:
    assert matches(r"orders|shop\.\w+-v[0-9]+", "shop.returns-v2")
    assert not matches("orders", "my-orders")
    assert not matches("orders", "orders-2")
    assert matches("(?i)ORDERS-[a-z]", "orders-Z")
    assert topic_pattern.matches("^orders-.*$", "orders-")
