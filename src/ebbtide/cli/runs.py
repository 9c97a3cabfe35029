"""`ebb runs`: which runs there were and how they ended."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, say, table
from ebbtide.cli.state import State
from ebbtide.report.format import count, human_bytes
from ebbtide.rules.instant import format_instant

app = typer.Typer()


@app.command()
def runs(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(help="Only runs on this target (lake:REPO).")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, oldest first, with their state and size."""
    state: State = context.obj
    found = [run for run in state.ledger.runs() if target is None or run.target == target]
    if as_json:
        print_json(found)
        return
    if not found:
        say("no runs yet; make a plan with 'ebb plan lake:REPO'")
        return
    rows = [
        (
            run.run_id,
            run.target,
            run.collector,
            run.state,
            format_instant(run.made_at),
            count(run.due_objects),
            human_bytes(run.due_bytes),
            run.error,
        )
        for run in found
    ]
    table(
        "Runs",
        ("run", "target", "kind", "state", "planned at", "objects", "bytes", "note"),
        rows,
        numbers=(0, 5, 6),
    )
