"""`ebb image purge`: the daily job (8.0), which plans and applies, first for images and then for the bin."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, Master, Now, print_json, progress, safe, say
from ebbtide.cli.plan import show_summary
from ebbtide.cli.registry_plan import RegistryChoice, RunningImages, make_registry_plan
from ebbtide.cli.state import State
from ebbtide.engine.applying import Applied
from ebbtide.errors import BadInput
from ebbtide.plan.manifest import Manifest
from ebbtide.registry.purge.job import apply_registry, check_registry
from ebbtide.report.words import deeds

app = typer.Typer()


@app.command()
def purge(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER")],
    running: RunningImages = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for a daily job.")] = False,
    override_breaker: Annotated[
        bool, typer.Option("--override-breaker", help="Purge more than the limits allow.")
    ] = False,
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Move what has expired into the recycle bin, and delete what has expired there."""
    state: State = context.obj
    state.now_override = now or state.now_override
    done = []
    for choice in (RegistryChoice(running), RegistryChoice(bin=True)):
        manifest = make_registry_plan(state, target, choice, master)
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
    shop = state.registry_shop(manifest.target)
    options = state.apply_options(override_breaker=override_breaker)
    check_registry(shop, manifest, options)
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput(
                "nobody is there to confirm",
                why=f"plan {manifest.run_id} is made, and nothing was deleted",
                fix=f"see 'ebb plan show {manifest.run_id}', then 'ebb apply {manifest.run_id} --yes'",
            )
        typer.confirm(f"In {manifest.target} {deeds(manifest.summary.by_collector)}?", abort=True)
    with state.spark(master) as spark, progress() as report:
        applied = apply_registry(spark, shop, manifest, options=options, on_progress=report)
    if not quiet:
        done = ", ".join(f"{tally.objects} {name}" for name, tally in applied.outcomes.items())
        say(f"run {applied.run_id}: {safe(done)}")
    return applied
