from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkpipeline.core.manifest import Duration, parse_duration
from sinkpipeline.core.manifest.durations import MAX_MILLISECONDS, PATTERN


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0s", 0),
        ("0ms", 0),
        ("1ms", 1),
        ("500ms", 500),
        ("1s", 1000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1m30s", 90_000),
        ("1h2m3s4ms", 3_723_004),
        ("1s1s", 2000),
        ("1ms1h", 3_600_001),
        ("007s", 7000),
        ("8760h", MAX_MILLISECONDS),
    ],
)
def test_reads(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds
    assert Duration.parse(text) == Duration(milliseconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "s", "1 s", "1s ", "1s\n", "-1s", "+1s", "1.5s", "1d", "1S", "1us", "1h1m1s1ms1s", "\u0661s"),
        *("8760h1ms", "9" * 60 + "h", "9" * 5000 + "s"),
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"8760h|whole numbers"):
        parse_duration(text)


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=MAX_MILLISECONDS))
def test_text_and_back(milliseconds: int) -> None:
    text = str(Duration(milliseconds))
    assert re.fullmatch(PATTERN, text)
    assert parse_duration(text) == milliseconds


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(["ms", "s", "m", "h"])), min_size=1, max_size=4))
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    size = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
    total = sum(number * size[unit] for number, unit in parts)
    text = "".join(f"{number}{unit}" for number, unit in parts)
    if total <= MAX_MILLISECONDS:
        assert parse_duration(text) == total
    else:
        with pytest.raises(ValueError, match="8760h"):
            parse_duration(text)


@settings(deadline=None)
@given(st.text(alphabet="0123456789msh. -\n", max_size=12))
def test_the_parser_takes_what_the_pattern_takes(text: str) -> None:
    # The CRD's engine, unlike Python's, does not let `$` match before a final newline.
    matches = re.fullmatch(PATTERN.removeprefix("^").removesuffix("$"), text) is not None
    try:
        parse_duration(text)
    except ValueError as error:
        assert not matches or "8760h" in str(error)  # noqa: PT017 - both outcomes are right, for different texts
    else:
        assert matches


def test_orders_by_length() -> None:
    assert Duration.parse("5s") < Duration.parse("1m") < Duration.parse("1h")
    assert Duration.parse("1500ms").seconds == 1.5
