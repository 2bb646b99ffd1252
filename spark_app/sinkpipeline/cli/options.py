"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

from sinkpipeline.cli.say import say

FILE = click.option(
    "-f",
    "--file",
    "manifest",
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="The SinkPipeline manifest, YAML or JSON; - for standard input.",
)
SECRETS = click.option(
    "--secrets-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Holds <secret>/<key> for every Secret that the manifest names.",
)
CONFIG_MAPS = click.option(
    "--config-maps-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Holds <name>/<key> for every ConfigMap that the manifest names.",
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


def check_jars(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """As URIs: Spark takes a path for one, and a # or a % in it for more than a letter."""
    import zipfile  # noqa: PLC0415 - completion is without it sooner

    paths = []
    for name in (each.strip() for given in value for each in given.split(",")):
        path = Path(name)
        if not path.is_file():
            raise click.BadParameter(f"{name or 'an empty name'} is no file of this machine")
        if not zipfile.is_zipfile(path):
            raise click.BadParameter(f"{name} is no jar")
        paths.append(path)
    return tuple(dict.fromkeys(path.absolute().as_uri() for path in paths))


JARS = click.option(
    "--jars",
    multiple=True,
    metavar="JAR,JAR",
    callback=check_jars,
    help="Jars with classes that the manifest names, as spec.spark.functions does; commas between several.",
)


def help_without_command(context: click.Context) -> None:
    """Of a group: who gives no command wants to know which there are."""
    if context.invoked_subcommand is None:
        say(context.get_help())
