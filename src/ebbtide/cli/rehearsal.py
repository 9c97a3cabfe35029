"""`ebb rehearsal`: the clock of a root that was made for learning."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, say
from ebbtide.cli.state import State
from ebbtide.core.errors import NotFound
from ebbtide.core.instant import format_duration, format_second, parse_duration
from ebbtide.engine.rehearsal import Rehearsal, advance

app = typer.Typer(
    no_args_is_help=True, help="Advance the clock of a root that was made with 'ebb init --rehearsal'."
)


@app.command("advance")
def advance_clock(
    context: typer.Context,
    duration: Annotated[str, typer.Argument(help="How far: 40d, 12h, 90m.")],
    as_json: AsJson = False,
) -> None:
    """Advance the clock of a rehearsal, permanently; real roots use the machine's clock."""
    state: State = context.obj
    _show(state, advance(state.root, parse_duration(duration)), as_json=as_json)


@app.command("show")
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Show what time it is in the rehearsal, and how far that is ahead of the machine's clock."""
    state: State = context.obj
    if state.rehearsal is None:
        raise NotFound(
            f"{state.root} is not a rehearsal",
            why="a real root uses the machine's clock",
            fix="set up a folder to rehearse in: ebb init --rehearsal FOLDER",
        )
    _show(state, state.rehearsal, as_json=as_json)


def _show(state: State, found: Rehearsal, *, as_json: bool) -> None:
    now = format_second(state.clock())
    if as_json:
        print_json({"now": now, "ahead_seconds": int(found.ahead.total_seconds()), "begun": found.begun})
        return
    say(f"it is {now} in this rehearsal, {format_duration(found.ahead)} ahead of the machine's clock")
