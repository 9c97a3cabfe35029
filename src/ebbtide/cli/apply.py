"""`ebb apply`: apply a plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

import typer

from ebbtide.cli.console import (
    PLAN_HELP,
    AsJson,
    Master,
    confirm,
    print_json,
    progress,
    safe,
    say,
    say_next,
    table,
)
from ebbtide.cli.pipeline import check_ready
from ebbtide.cli.state import State
from ebbtide.core.display import Words
from ebbtide.core.format import count, human_bytes, plural
from ebbtide.core.manifest import Manifest
from ebbtide.engine.apply import Applied, ApplyOptions, check, check_format
from ebbtide.engine.apply import apply as apply_plan
from ebbtide.engine.newest_run import check_newest_run
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.workload import items_to_apply
from ebbtide.state.runs import RunState
from ebbtide.targets.kinds import words_of

app = typer.Typer(add_completion=False)


@app.command()
def apply(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(help=PLAN_HELP)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    override_breaker: Annotated[
        bool, typer.Option("--override-breaker", help="Apply a plan that is larger than the limits.")
    ] = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Apply a plan, after checking again that it is still valid."""
    state: State = context.obj
    manifest = run_folder(state.root, state.run_id(plan)).read_manifest()
    check_newest_run(state.root, state.ledger)
    run = state.ledger.run(manifest.run_id)
    options = state.apply_options(override_breaker=override_breaker)
    if run.state is not RunState.SUCCEEDED:
        check_format(manifest, run.state)
        check_applicable(state, manifest, options)
        _confirm(manifest, yes=yes)
    applied = run_apply(state, manifest, options, master)
    show_applied(state, applied, manifest, as_json=as_json)


def show_applied(
    state: State,
    applied: Applied,
    manifest: Manifest,
    *,
    as_json: bool,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Print what a run did; for programs also `more`."""
    remarks = state.target(manifest.target).collector_of(manifest).remarks(manifest)
    if as_json:
        said = {"run_id": applied.run_id, "outcomes": applied.outcomes, "freed": applied.freed}
        said |= {"hidden": applied.hidden} if applied.hidden.objects else {}
        said |= {"set_aside": applied.set_aside} if manifest.recycling or applied.set_aside.objects else {}
        print_json(said | remarks.plain | dict(more))
        return
    _show(applied, words_of(manifest), manifest)
    for line in remarks.lines:
        say(safe(line))
    say_next(state.command("report", applied.run_id))


def run_apply(state: State, manifest: Manifest, options: ApplyOptions, master: str | None) -> Applied:
    """Apply a plan; Spark is started for its size."""
    collector = state.target(manifest.target).collector_of(manifest)
    start = partial(state.spark, master, items_to_apply(manifest))
    with progress() as report:
        return apply_plan(start, state.context, collector, manifest, options=options, on_progress=report)


def check_applicable(state: State, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse a plan that must not be applied, before Spark starts and before asking for confirmation."""
    collector = state.target(manifest.target).collector_of(manifest)
    check(state.context, collector, manifest, options)
    check_ready(state, collector)


def _confirm(manifest: Manifest, *, yes: bool) -> None:
    due = manifest.summary.due
    if yes or not due.objects:
        return
    words = words_of(manifest)
    if words.actions:
        what = words.deeds(manifest.summary.by_action)
        question = f"In {manifest.target} {what} ({human_bytes(due.bytes)})?"
    else:
        what = f"{plural(due.objects, 'object')} ({human_bytes(due.bytes)})"
        question = f"Delete {what} of {manifest.target} for good?"
        if manifest.recycling:
            question = f"Set aside {what} of {manifest.target} for {plural(manifest.recycling.days, 'day')}?"
    confirm(
        question,
        what="the deletion has to be confirmed",
        why="apply asks before it changes anything",
        fix="look at the plan with 'ebb plan show', then apply with --yes",
        yes=yes,
    )


def _show(applied: Applied, words: Words, manifest: Manifest) -> None:
    if applied.already_applied:
        say(f"run {applied.run_id} was applied before; nothing to do")
    rows = [(t.label, count(t.objects), human_bytes(t.bytes)) for t in applied.outcomes.values()]
    table(f"Outcomes of run {applied.run_id}", ("outcome", f"{words.item}s", "bytes"), rows, numbers=(1, 2))
    freed, aside = applied.freed, applied.set_aside
    has_bin = manifest.recycling or aside.objects
    if has_bin:
        # The bin of a registry has its own policy, so the plan does not say for how long.
        days = f" for {plural(manifest.recycling.days, 'day')}" if manifest.recycling else ""
        say(
            f"[bold]set aside {human_bytes(aside.bytes)}[/bold] in {words.items(aside.objects)}{days};"
            f" to undo: ebb restore {applied.run_id}"
        )
    if applied.hidden.objects:
        hid = f"{words.items(applied.hidden.objects)}, {human_bytes(applied.hidden.bytes)}"
        say(f"hid {hid}: a delete marker frees nothing")
    if freed.objects or not has_bin:
        did = "freed" if words.frees_apart else words.did.lower()
        say(f"[bold]{did} {human_bytes(freed.bytes)}[/bold] in {words.items(freed.objects)}")
    if changed := applied.outcomes.get("changed"):
        why = "something refers to them now" if words.has_references else "they are not as they were planned"
        say(f"left alone, because {why}: {words.items(changed.objects)}")
