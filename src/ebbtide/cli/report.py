"""`ebb report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbtide.cli.console import PLAN_HELP, AsJson, print_json, say
from ebbtide.cli.state import State
from ebbtide.core.decision import Decision, Outcome
from ebbtide.core.errors import BadInput
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import outcome_tallies, sample_decisions, sample_outcomes
from ebbtide.report.page import ReportData, render

app = typer.Typer(add_completion=False)
SAMPLE = 50


@app.command()
def report(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help=PLAN_HELP)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write what a run would do, or did, as one self-contained HTML file."""
    state: State = context.obj
    run_id = state.run_id(run)
    file = output or Path(f"ebbtide-run-{run_id}.html")
    try:
        file.write_text(render(report_data(state, run_id)), encoding="utf-8")
    except OSError as broken:
        raise BadInput(f"{file} cannot be written: {broken.strerror}", fix="choose another file") from None
    if as_json:
        print_json({"run_id": run_id, "file": str(file)})
    else:
        say(f"wrote {file}")


def report_data(state: State, run_id: int) -> ReportData:
    """Gather what the page shows; counts come from the manifest, only samples are read."""
    folder = run_folder(state.root, run_id)
    unfinished = [outcome for outcome in Outcome if not outcome.is_final]
    return ReportData(
        manifest=folder.read_manifest(),
        state=str(state.ledger.run(run_id).state),
        outcomes=outcome_tallies(state.root, state.ledger, run_id),
        due_sample=sample_decisions(folder, Decision.DUE, SAMPLE),
        held_sample=sample_decisions(folder, Decision.HELD, SAMPLE),
        failed_sample=sample_outcomes(state.root, state.ledger, run_id, unfinished, SAMPLE),
        events=state.ledger.events(run_id),
    )
