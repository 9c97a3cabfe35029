"""`ebb state`: continue if the ledger and the state root do not belong together."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, confirm, print_json, safe, say
from ebbtide.cli.state import State
from ebbtide.engine.newest_run import accept_restored

app = typer.Typer(
    no_args_is_help=True, help="Continue after the ledger or the state root was restored alone."
)


@app.callback()
def group() -> None:
    """Continue after the ledger or the state root was restored alone."""


@app.command("accept")
def accept(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Accept a ledger or state root that is older than the other.

    Records that only the lost copy had stay lost. Plans made so far can no longer be applied.
    """
    state: State = context.obj
    confirm(
        "Removed items and holds that only the lost copy had will be forgotten. Continue?",
        why="items whose restore is forgotten may be deleted again",
        yes=yes,
    )
    number, found = accept_restored(state.root, state.ledger)
    if as_json:
        print_json({"run_id": number, "found": found})
        return
    say(f"accepted: {safe(found)}")
    say(f"recorded as run {number}; earlier plans cannot be applied, later ones have higher numbers")
