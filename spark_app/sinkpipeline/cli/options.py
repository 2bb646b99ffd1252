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


def help_without_command(context: click.Context) -> None:
    """Of a group: who gives no command wants to know which there are."""
    if context.invoked_subcommand is None:
        say(context.get_help())
