"""`ebb runs`: list runs and how they ended."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, out, print_json, safe, say, table
from ebbtide.cli.state import State
from ebbtide.core.format import count, human_bytes
from ebbtide.core.instant import format_second
from ebbtide.state.runs import Run
from ebbtide.targets.kinds import kind_of

app = typer.Typer(add_completion=False)


@app.command()
def runs(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(help="Only runs on this target.")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, oldest first, with their state and size."""
    state: State = context.obj
    url = None if target is None else kind_of(target).url(target)
    found = state.ledger.runs(target=url)
    if as_json:
        print_json([asdict(run) | {"policy": state.ledger.policy(run.run_id)} for run in found])
        return
    if not found:
        say("no runs yet; make a plan with 'ebb plan lake:REPO'")
        return
    on_terminal = out().is_terminal
    rows = [
        (
            run.run_id,
            run.target,
            run.collector,
            run.state,
            format_second(run.made_at),
            count(run.due_objects),
            human_bytes(run.due_bytes),
            "; ".join(_notes(run, sentences=not on_terminal)),
        )
        for run in found
    ]
    table(
        "Runs",
        ("run", "target", "kind", "state", "planned at", "objects", "bytes", "note"),
        rows,
        numbers=(0, 5, 6),
    )
    # Sentences would leave no room for the names of targets.
    for run in found if on_terminal else ():
        if run.error:
            say(f"run {run.run_id}: {safe(run.error)}")


def _notes(run: Run, *, sentences: bool) -> list[str]:
    """Return the notes about a run."""
    return [*(["rehearsal"] if run.rehearsal else []), *([run.error] if sentences and run.error else [])]
