"""The one way in which the plugin prints what the cluster says: whatever is in it, it does nothing to a terminal."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable

import click

from sinkpipeline.core.printable import printable


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    click.echo(printable(text) + end, err=err, nl=False)  # noqa: TID251 - here only


def say_log(pieces: Iterable[bytes]) -> None:
    """As they come: a piece may end within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for piece in pieces:
        _write(decoder.decode(piece))
    _write(decoder.decode(b"", final=True))


def _write(text: str) -> None:
    # UTF-8 whatever the locale is, as a log is.
    sys.stdout.buffer.write("\n".join(map(printable, text.split("\n"))).encode())
    sys.stdout.buffer.flush()
