"""`ebb explain`: why an item is kept or deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, Now, print_json, safe, say, table
from ebbtide.cli.state import State, instant
from ebbtide.cli.target_options import target_help, with_target_options
from ebbtide.core.display import Explanation, Heading, Table
from ebbtide.targets.kinds import check_options, kind_of
from ebbtide.targets.target import Options

app = typer.Typer(add_completion=False)


@app.command("explain")
@with_target_options(explains=True)
def explain_item(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help=target_help())],
    item: Annotated[
        str,
        typer.Argument(help="A key; in a lake also an address; in a registry REPO:TAG or REPO@DIGEST."),
    ],
    now: Now = None,
    as_json: AsJson = False,
    *,
    given: Options,
) -> None:
    """
    Explain why an item is kept or deleted.

    In a lake: every reference to it, and when each lapses. In a bucket: what the rules decide about each of
    its versions and uploads as they are now, and what runs have done to earlier ones. In a registry: what
    the policies decide about an image and its names, as of the last scan.
    """
    state: State = context.obj
    check_options(kind_of(target), target, given)
    found = state.target(target).explain(item, given, instant(now, state.clock))
    if as_json:
        print_json(found.plain)
    else:
        show_explanation(found)


def show_explanation(explanation: Explanation) -> None:
    """Print an explanation."""
    for block in explanation.blocks:
        if isinstance(block, Table):
            table(block.title, block.columns, block.rows, numbers=block.numbers)
        elif isinstance(block, Heading):
            say(f"[bold]{safe(block.name)}[/bold]  {safe(block.beside)}".rstrip())
        else:
            say(f"  {safe(block)}")
