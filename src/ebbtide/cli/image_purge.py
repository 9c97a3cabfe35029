"""`ebb image purge`: the daily job (8.0), which plans and applies, first for images and then for the bin."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ebbtide.cli.apply import check_applicable, run_apply
from ebbtide.cli.console import AsJson, Master, print_json, safe, say
from ebbtide.cli.image_plan import RunningImages, plan_image_bin, plan_purge
from ebbtide.cli.plan import show_summary
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.manifest import Manifest
from ebbtide.engine.apply import Applied
from ebbtide.targets.kinds import words_of

app = typer.Typer(add_completion=False)


@app.command()
def purge(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER")],
    running: RunningImages = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for a daily job.")] = False,
    override_breaker: Annotated[
        bool, typer.Option("--override-breaker", help="Purge more than the limits allow.")
    ] = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Move what has expired into the recycle bin, and delete what has expired there."""
    state: State = context.obj
    done = []
    for of_bin in (False, True):
        manifest = (
            plan_image_bin(state, target, master)
            if of_bin
            else plan_purge(state, target, running, master, as_json=as_json)
        )
        if not as_json:
            show_summary(manifest)
        applied = apply_made(
            state, manifest, yes=yes, override_breaker=override_breaker, master=master, quiet=as_json
        )
        outcomes = {} if applied is None else applied.outcomes
        done.append({"run_id": manifest.run_id, "collector": manifest.collector, "outcomes": outcomes})
    if as_json:
        print_json(done)


def apply_made(
    state: State,
    manifest: Manifest,
    *,
    yes: bool,
    override_breaker: bool,
    master: str | None,
    quiet: bool,
) -> Applied | None:
    """Apply a plan that was just made and shown; None if there is nothing to do."""
    if not manifest.summary.due.objects:
        return None
    options = state.apply_options(override_breaker=override_breaker)
    check_applicable(state, manifest, options)
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput(
                "the purge has to be confirmed",
                why=f"plan {manifest.run_id} is made and was not applied",
                fix=f"see 'ebb plan show {manifest.run_id}', then 'ebb apply {manifest.run_id} --yes'",
            )
        typer.confirm(
            f"In {manifest.target} {words_of(manifest).deeds(manifest.summary.by_collector)}?", abort=True
        )
    applied = run_apply(state, manifest, options, master)
    if not quiet:
        done = ", ".join(f"{tally.objects} {name}" for name, tally in applied.outcomes.items())
        say(f"run {applied.run_id}: {safe(done)}")
    return applied
