"""Options that several commands have: which cluster and namespace, as kubectl takes them, and what shells complete.

What talks to the API server is imported when a command runs: a shell asks for completions at each press of a key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from sinkpipeline_operator.plugin.work import Work

MOMENT = "a time such as 2026-11-22T08:00:00Z, or how long ago: 90m"

Look = Callable[["Work", click.Context], list[str]]


def _work(context: click.Context) -> Work:
    """By the options of the command, else by those before it."""
    from sinkpipeline_operator.plugin.work import Work  # noqa: PLC0415 - see above

    outer, own = context.find_root().params, context.params
    return Work(*(own.get(each) or outer.get(each) for each in ("kubeconfig", "context_name", "namespace")))


def complete_by(look: Look) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = look(_work(context), context)
        except Exception:  # noqa: BLE001 - in the middle of a line nobody wants to read of it
            return []
        return [CompletionItem(each) for each in found if each.startswith(incomplete)]

    return complete


def _contexts(_work: Work, context: click.Context) -> list[str]:
    from sinkpipeline_operator.kube.person import contexts  # noqa: PLC0415 - see above

    return contexts(context.params.get("kubeconfig") or context.find_root().params.get("kubeconfig"))


def reach(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--kubeconfig", type=click.Path(dir_okay=False), help="As for kubectl."),
        click.option(
            "--context",
            "context_name",
            shell_complete=complete_by(_contexts),
            help="The context of the kubeconfig to use.",
        ),
        click.option(
            "-n",
            "--namespace",
            shell_complete=complete_by(lambda work, _: work.namespaces()),
            help="By default the context's.",
        ),
    ):
        command = option(command)
    return command


def reaching(command: Callable[..., None]) -> Callable[..., None]:
    """The command is given its `Work` for the options that say which cluster."""

    @reach
    @click.pass_context
    @functools.wraps(command)
    def reached(context: click.Context, /, **given: Any) -> None:
        more = {key: value for key, value in given.items() if key not in ("kubeconfig", "context_name", "namespace")}
        command(_work(context), **more)

    return reached


NAME = click.argument("name", metavar="PIPELINE", shell_complete=complete_by(lambda work, _: work.names()))
SINK = click.option(
    "--sink",
    required=True,
    shell_complete=complete_by(lambda work, context: work.sinks(context.params["name"])),
    help="The sink's name.",
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="For programs: json.")
YES = click.option("-y", "--yes", is_flag=True, help="Don't ask.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
WAIT = click.option("--wait", is_flag=True, help="Wait until it is done.")
TIMEOUT = click.option("--timeout", type=click.FloatRange(0), default=600.0, show_default=True, help="Seconds to wait.")
WATCH = click.option("-w", "--watch", is_flag=True, help="Show it again every two seconds, with rates.")
