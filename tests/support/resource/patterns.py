"""Patterns of topic names as people and fuzzers write them, and names to be read by them."""

from __future__ import annotations

from hypothesis import strategies as st

TOPICS = ("orders", "orders-7", "ORDERS", "a", "A", "aa", "ab", "b", "z9", "0", "_", "-", "a.b", "a-b", "Z_")

_PIECES = st.sampled_from(
    [
        *r"abzAZ09-_.\|()[]{}*+?^$&~:,iPsm<>=!#é/ ",
        *(
            "\n",
            "(?:",
            "(?i)",
            "(?i:",
            "(?=",
            "(?P<n>",
            "(?>",
            "[a-z]",
            "[^a]",
            "[-a]",
            "[a-]",
            "[A-z]",
            "[z-a]",
            "[^-]",
        ),
        *(
            r"[\w.-]",
            r"[\d-z]",
            "[a&&b]",
            "[[:digit:]]",
            r"[^\w]",
            r"\d",
            r"\w",
            r"\D",
            r"\W",
            r"\s",
            r"\b",
            r"\.",
            r"\-",
        ),
        *(
            r"\_",
            r"\1",
            r"\pN",
            r"\p{L}",
            r"\Q",
            r"\x41",
            "{2}",
            "{0}",
            "{1,2}",
            "{2,1}",
            "{,2}",
            "{01}",
            "{99}",
            "{100}",
        ),
        *("*?", "??", "a+", "(a+)+", "){2}", ")?", "(a|b)", "|*"),
    ]
)
patterns = st.lists(_PIECES, min_size=1, max_size=8).map("".join)
