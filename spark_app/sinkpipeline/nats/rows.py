"""A row as a message, and why it can be none. What a server would refuse with its whole batch is found out before."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.records import Row
from sinkpipeline.nats.client import Message
from sinkpipeline.nats.stream import StreamInfo
from sinkpipeline.nats.subjects import matches, why_no_subject

OFFSET = "Sinkpipeline-Offset"
"""Of the source record that a row was made of; with a + behind it where more rows of it follow."""
MORE = "+"

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_RESERVED = ("nats-", "sinkpipeline-")
"""By them a header tells the server or us what to do."""
_OWN_BYTES = 160
"""More than the headers that a batch adds to a row."""
_MOST_HEADERS = 65_535
"""Bytes, of one message."""


@dataclass(frozen=True)
class RowPlace:
    """Where rows go, and what they must keep to there."""

    stream: StreamInfo
    subject: str | None
    """Of a row that names none."""
    progress: str
    """Below which no row may be."""
    max_payload: int
    """Of the server: one message with its headers."""

    @property
    def most_bytes(self) -> int:
        return min(self.max_payload, self.stream.most_bytes or self.max_payload)

    def message(self, row: Row, more: int = 0) -> Message | Verdict:
        """`key` is the subject; the verdict is why it can't be written. `more`: bytes of headers that it gets too."""
        value, key, _, _, headers = row
        subject = self._subject(key)
        if isinstance(subject, Verdict):
            return subject
        found: dict[str, str] = {}
        size = _OWN_BYTES + more
        for name, content in headers or ():
            text = _text(content)
            wrong = _why_no_header(name, text, found)
            if wrong is not None or text is None:
                return Verdict(ErrorClass.INVALID_HEADER, wrong or "the value of a header is not UTF-8")
            found[name] = text
            size += len(name) + len(text.encode()) + 4
        if size > _MOST_HEADERS:
            return Verdict(
                ErrorClass.RECORD_TOO_LARGE, f"its headers have about {size} bytes, and a message {_MOST_HEADERS}"
            )
        payload = value or b""
        size += len(payload)
        if size > self.most_bytes:
            whose = "the stream" if self.stream.most_bytes == self.most_bytes else "the server"
            return Verdict(
                ErrorClass.RECORD_TOO_LARGE,
                f"it has about {size} bytes with its headers, and {whose} takes {self.most_bytes}",
            )
        return Message(subject, payload, found)

    def _subject(self, key: bytes | None) -> str | Verdict:
        try:
            subject = self.subject if key is None else key.decode()
        except UnicodeDecodeError:
            return Verdict(ErrorClass.SUBJECT_INVALID, "the subject is not UTF-8")
        if subject is None:
            return Verdict(ErrorClass.SUBJECT_INVALID, "select.subject gives null, and the sink has no subject")
        wrong = why_no_subject(subject)
        if wrong is None and matches(f"{self.progress}.>", subject):
            wrong = "is one of the progress"
        if wrong is None and not self.stream.takes(subject):
            wrong = "is none that the stream takes"
        return subject if wrong is None else Verdict(ErrorClass.SUBJECT_INVALID, f"the subject {wrong}")


def _text(content: str | bytes | None) -> str | None:
    if content is None:
        return ""
    try:
        return content if isinstance(content, str) else content.decode()
    except UnicodeDecodeError:
        return None


def _why_no_header(name: str, text: str | None, before: dict[str, str]) -> str | None:
    if not _NAME.fullmatch(name):
        return "the name of a header has a character that NATS takes in none"
    if name.lower().startswith(_RESERVED) and name != OFFSET:
        return "the name of a header begins with Nats- or Sinkpipeline-, which mean something to the server or to us"
    if name in before:
        return "a header is there twice"
    if text is not None and ("\r" in text or "\n" in text):
        return "the value of a header has a line break"
    return None
