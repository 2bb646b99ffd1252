"""The one way in which the command prints text: whatever is in it, it does nothing to a terminal."""

from __future__ import annotations

import click

from sinkpipeline.core.printable import printable


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    click.echo(printable(text) + end, err=err, nl=False)  # noqa: TID251 - here only
