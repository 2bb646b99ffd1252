"""`sinkpipeline dlq purge`: deletes the beginning of a dead-letter topic for good, after a preview."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from sinkpipeline.cli.dlq.contents import Contents, read_contents
from sinkpipeline.cli.dlq.selection import find_topic, letter_id, missing, moment, one_topic, sinks_of
from sinkpipeline.cli.say import say
from sinkpipeline.cli.tables import table, terminal_width
from sinkpipeline.core.errors import ExitCode
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.redrive import PENDING, Foreign, Letter
from sinkpipeline.core.targets import usage_invalid
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.settings import SinkSettings


@dataclass(frozen=True, kw_only=True)
class UpTo:
    """Which of its ways to say how far was taken."""

    before: tuple[str, ...] = ()
    until: str | None = None
    redriven: bool = False

    def check(self) -> None:
        """Raises SinkPipelineError: UsageInvalid."""
        if sum(map(bool, (self.before, self.until, self.redriven))) != 1:
            raise usage_invalid(
                "a purge needs one bound", "give one of --before-offset PARTITION:OFFSET, --until TIME and --redriven"
            )


def purge_letters(
    manifest: Path, secrets_dir: Path | None, sink: str | None, up_to: UpTo, *, yes: bool, dry_run: bool
) -> None:
    """The plan goes to stdout, everything else to stderr."""
    up_to.check()
    if not (yes or dry_run or sys.stdin.isatty()):
        raise usage_invalid(
            "standard input is no terminal, so nobody can be asked whether letters are to be deleted",
            "give --yes to delete them without asking, or --dry-run to see what would be deleted",
        )
    settings = one_topic(sinks_of(manifest, secrets_dir, sink))
    topic = find_topic(settings)
    if topic is None:
        say(missing(settings), err=True)
        return
    contents = read_contents(settings, topic, lenient=not up_to.redriven)
    bounds = bounds_of(contents, up_to)
    _show(contents, bounds)
    for line in told(contents, bounds):
        say(line, err=True)
    if not bounds or dry_run:
        say("nothing was deleted" + (" (--dry-run)" if dry_run else ""), err=True)
        return
    if not yes and not click.confirm(f"Delete these records of {topic.name}, for good?", err=True):
        say("nothing was deleted", err=True)
        sys.exit(ExitCode.FAILED)
    delete_records(settings, topic.name, bounds)
    say(f"deleted from {topic.name}", err=True)


def delete_records(settings: SinkSettings, topic: str, bounds: Mapping[int, int]) -> None:
    """`bounds`: the first offset that stays, by partition."""
    Admin(settings.connection).delete_records({SourcePartition(topic, at): offset for at, offset in bounds.items()})


def bounds_of(contents: Contents, up_to: UpTo) -> dict[int, int]:
    """The first offset that stays, by partition; without partitions of which nothing is deleted."""
    return {at: offset for at, offset in _bounds(contents, up_to).items() if offset > contents.extents[at].low}


def _bounds(contents: Contents, up_to: UpTo) -> dict[int, int]:
    """The first offset that stays, by partition."""
    stables = dict(enumerate(each.stable for each in contents.extents))
    if up_to.before:
        return _given(contents, up_to.before)
    staying: Iterator[Letter | Foreign]
    if up_to.until is not None:
        end = moment("--until", up_to.until)
        staying = (each for each in contents.letters if each.at >= end)
    else:
        # What nobody can read may be of a newer release, and pending.
        pending = (each for each in contents.letters if contents.state(each) == PENDING)
        staying = iter([*pending, *contents.foreign])
    for each in staying:
        stables[each.id.partition] = min(stables[each.id.partition], each.id.offset)
    return stables


def _given(contents: Contents, before: Sequence[str]) -> dict[int, int]:
    found: dict[int, int] = {}
    for text in before:
        id_ = letter_id(text)
        if id_.partition >= len(contents.extents):
            raise usage_invalid(f"{contents.topic.name} has no partition {id_.partition}", "look at its description")
        stable = contents.extents[id_.partition].stable
        if id_.offset > stable:
            raise usage_invalid(
                f"partition {id_.partition} of {contents.topic.name} ends at offset {stable}", f"give at most {stable}"
            )
        if id_.partition in found:
            raise usage_invalid(f"--before-offset names partition {id_.partition} twice", "say it once")
        found[id_.partition] = id_.offset
    return found


def _gone(contents: Contents, bounds: Mapping[int, int]) -> Iterator[Letter]:
    return (each for each in contents.letters if each.id.offset < bounds.get(each.id.partition, 0))


def _show(contents: Contents, bounds: Mapping[int, int]) -> None:
    names = ("partition", "from", "before", "letters", "pending")
    letters = list(_gone(contents, bounds))
    rows = []
    for at, before in sorted(bounds.items()):
        own = [each for each in letters if each.id.partition == at]
        pending = sum(contents.state(each) == PENDING for each in own)
        rows.append([str(number) for number in (at, contents.extents[at].low, before, len(own), pending)])
    say(table(names, rows, right=names, heads=1, width=terminal_width()))


def told(contents: Contents, bounds: Mapping[int, int]) -> Iterator[str]:
    """What a person should be warned of, one sentence a line."""
    pending = [each for each in _gone(contents, bounds) if contents.state(each) == PENDING]
    for sink, number in sorted(Counter(str(each.letter.sink) for each in pending).items()):
        yield f"warning: {number} PENDING letters of {sink} are deleted for good, and never delivered"
    foreign = sum(each.id.offset < bounds.get(each.id.partition, 0) for each in contents.foreign)
    if foreign:
        yield f"warning: {foreign} records that are no dead letters are deleted too"
