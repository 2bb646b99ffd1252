"""The one dialect of `topicPattern`: what Rust, RE2, Python and Java read alike, of names of topics.

A pattern is a row of tokens, so that the resource's definition can say the same by one regular expression (`DIALECT`).
It is translated into a plain form, without escapes, flags and negations, and matched by the engine that pydantic
brings: its time is linear in the name, whatever the pattern is. No other engine is ever given a pattern: Spark
subscribes to the names that were found.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter

MAX_PATTERN = 1024
MAX_GROUPS = 100
"""Rust's engine nests 250 of them at most."""
MAX_COUNTED = 10
"""Each `{99}` makes 99 states of one: these bound what a name costs."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_WORD = frozenset(_LETTERS + _LETTERS.upper() + _DIGITS + "_")
_ALPHABET = _WORD | {".", "-"}
"""The characters of topic names: `.` and negations are read as those of these."""
_CLASSES = {"d": frozenset(_DIGITS), "w": _WORD, "D": _ALPHABET - frozenset(_DIGITS), "W": _ALPHABET - _WORD}
_NO_NAME_HAS = "!"
"""What a class is written as that no character fits: engines refuse an empty one."""

_LITERAL = r"[A-Za-z0-9_-]"
_ESCAPE = r"\\[._dwDW-]"
_ITEM = rf"(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9._]|{_ESCAPE})"
_SET = rf"\[\^?(?:-|-?{_ITEM}+-?)\]"
_NUMBER = r"(?:0|[1-9][0-9]?)"
_COUNTED = rf"\{{{_NUMBER}(?:,{_NUMBER}?)?\}}"
_ATOM = rf"(?:{_LITERAL}|\.|{_ESCAPE}|{_SET})(?:(?:[*+?]|{_COUNTED})[?]?)?"
_TOKEN = rf"(?:\^|\$|\||\((?:\?:)?|\)(?:[*+?][?]?)?|{_ATOM})"
_FOLDED = r"(?i)"

DIALECT = rf"^(?:\(\?i\))?{_TOKEN}*$"
"""Which patterns are of the dialect, but for what `PatternError` calls unclosed, reversed or too many."""
FEW_GROUPS = rf"^[^(]*(?:\([^(]*){{0,{MAX_GROUPS}}}$"
FEW_COUNTED = rf"^[^{{]*(?:\{{[^{{]*){{0,{MAX_COUNTED}}}$"

_SCANNER = re.compile(_TOKEN)
_ITEMS = re.compile(rf"{_ITEM}|-")
_REFUSED = (
    (r"\(\?P?<[A-Za-z_]|\(\?P", "a named group"),
    (r"\(\?<?[=!]", "a look-around"),
    (r"\(\?", "a flag or an extension; only (?: groups, and (?i) at the very beginning, are read"),
    (r"\\[1-9]", "a back-reference"),
    (r"\\[pP]", "a class of Unicode"),
    (r"\\", r"an escape; read are \. \- \_ \d \w \D \W"),
    (r"[*+?]", "a quantifier with nothing before it that it could repeat, or a possessive one"),
    (r"\{", "a counted repetition of a group, of nothing, or of more than 99"),
    (r"\[", "a set; read are characters of topic names and ranges of letters or digits, with - first, last or escaped"),
    (r"", "a character that no name of a topic has"),
)


class PatternError(ValueError):
    """A pattern outside the dialect; its text says, after "has", what is wrong."""


def check(pattern: str) -> None:
    """Raises PatternError."""
    _plain(pattern)


def matches(pattern: str, topic: str) -> bool:
    """Whether the pattern reads the whole name.

    Raises:
        PatternError
    """
    return _engine(pattern).validator.isinstance_python(topic)


@functools.lru_cache(maxsize=256)
def _engine(pattern: str) -> TypeAdapter[str]:
    return TypeAdapter(Annotated[str, StringConstraints(strict=True, pattern=f"^(?:{_plain(pattern)})$")])


def _plain(pattern: str) -> str:
    """The pattern in the words that every engine has: characters, sets of them, groups, alternatives, repetitions."""
    if not 1 <= len(pattern) <= MAX_PATTERN:
        raise PatternError(f"{len(pattern)} characters, where 1 to {MAX_PATTERN} are read")
    for sign, most, what in (("(", MAX_GROUPS, "groups"), ("{", MAX_COUNTED, "counted repetitions")):
        if pattern.count(sign) > most:
            raise PatternError(f"{pattern.count(sign)} {what}, where at most {most} are read")
    folded = pattern.startswith(_FOLDED)
    plain, opened = [], 0
    for token in _tokens(pattern, len(_FOLDED) if folded else 0):
        opened += token.startswith("(") - token.startswith(")")
        if opened < 0:
            raise PatternError('a ")" without its "("')
        plain.append(_translated(token, folded=folded))
    if opened:
        raise PatternError('a "(" without its ")"')
    return "".join(plain)


def _tokens(pattern: str, at: int) -> Iterator[str]:
    while at < len(pattern):
        found = _SCANNER.match(pattern, at)
        if found is None:
            at -= pattern[at] == "?" and pattern[at - 1 : at] == "("
            what = next(what for sign, what in _REFUSED if re.match(sign, pattern[at:]))
            raise PatternError(f'at "{pattern[at : at + 8]}" {what}')
        yield found[0]
        at = found.end()


def _translated(token: str, *, folded: bool) -> str:
    if token[0] in "^$|":
        return token
    if token[0] == "(":
        return "(?:"
    if token[0] == ")":
        return token.removesuffix("?") if len(token) > len(")?") else token
    one = re.match(rf"{_SET}|\\.|.", token)
    assert one is not None
    return _written(_characters(one[0], folded=folded)) + _repeated(token[one.end() :])


def _repeated(quantifier: str) -> str:
    """Without its laziness, which changes nothing where a whole name is matched."""
    counted = re.match(r"\{(\d+),(\d+)\}", quantifier)
    if counted is not None and int(counted[1]) > int(counted[2]):
        raise PatternError(f'the repetition "{quantifier}", whose first number is the larger one')
    return quantifier if len(quantifier) <= 1 else quantifier.removesuffix("?")


def _characters(atom: str, *, folded: bool = False) -> frozenset[str]:
    if atom == ".":
        return _ALPHABET
    if atom[0] != "[":
        return _of_item(atom, folded=folded)
    negated = atom[1] == "^"
    items = _ITEMS.findall(atom[2:-1] if negated else atom[1:-1])
    within = frozenset(each for item in items for each in _of_item(item, folded=folded))
    return _ALPHABET - within if negated else within


def _of_item(item: str, *, folded: bool) -> frozenset[str]:
    if item[0] == "\\":
        return _CLASSES.get(item[1], frozenset(item[1]))
    first, last = item[0], item[-1]
    if first > last:
        raise PatternError(f'the range "{item}", whose first character is the later one')
    within = frozenset(map(chr, range(ord(first), ord(last) + 1))) & _ALPHABET
    return within if not folded else frozenset(each for one in within for each in (one.lower(), one.upper()))


def _written(characters: frozenset[str]) -> str:
    inside = "".join(sorted(characters - {"-"})) + ("-" if "-" in characters else "")
    return f"[{inside or _NO_NAME_HAS}]"
