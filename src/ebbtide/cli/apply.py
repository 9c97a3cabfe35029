"""`ebb apply`: delete what a plan says."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ebbtide.bucket.job import apply_bucket, check_bucket
from ebbtide.cli.console import AsJson, Master, Now, print_json, progress, safe, say, table
from ebbtide.cli.state import State, is_bucket, is_registry
from ebbtide.engine.applying import Applied, ApplyOptions
from ebbtide.engine.layout import run_folder
from ebbtide.errors import BadInput
from ebbtide.lake.job import apply_lake, check_lake
from ebbtide.lake.retired.target import find_retired
from ebbtide.ledger.runs import RunState
from ebbtide.plan.decision import DELETED_REPOSITORY, EMPTY_BIN
from ebbtide.plan.manifest import Manifest
from ebbtide.registry.purge.job import apply_registry, check_registry
from ebbtide.report.format import count, human_bytes, plural
from ebbtide.report.words import Words, deeds, words_of

app = typer.Typer()


@app.command()
def apply(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(help="A run's number, or 'latest'.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    override_breaker: Annotated[
        bool, typer.Option("--override-breaker", help="Apply a plan that is larger than the limits.")
    ] = False,
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Do what a plan says, after checking again that it still holds."""
    state: State = context.obj
    state.now_override = now or state.now_override
    manifest = run_folder(state.root, state.run_id(plan)).read_manifest()
    run = state.ledger.run(manifest.run_id)
    options = state.apply_options(override_breaker=override_breaker)
    if run.state is not RunState.SUCCEEDED:
        _check(state, manifest, options)
        _confirm(manifest, yes=yes)
    with state.spark(master) as spark, progress() as report:
        if is_bucket(manifest.target):
            shop = state.bucket_shop(manifest.target)
            applied = apply_bucket(spark, shop, manifest, options=options, on_progress=report)
        elif is_registry(manifest.target):
            images = state.registry_shop(manifest.target)
            applied = apply_registry(spark, images, manifest, options=options, on_progress=report)
        else:
            applied = apply_lake(spark, state.shop, manifest, options=options, on_progress=report)
    free = _is_free(state, manifest)
    show_applied(applied, manifest, as_json=as_json, free=free)


def show_applied(applied: Applied, manifest: Manifest, *, as_json: bool, free: bool | None = None) -> None:
    """Print what a run did; `free` says of a deleted repository whether its namespace may be used again."""
    if as_json:
        said = {"run_id": applied.run_id, "outcomes": applied.outcomes, "freed": applied.freed}
        said |= {"set_aside": applied.set_aside} if manifest.recycling or applied.set_aside.objects else {}
        print_json(said if free is None else said | {"namespace_free": free})
        return
    _show(applied, words_of(manifest), manifest)
    if free is not None:
        _show_namespace(manifest, free=free)
    say(f"next: {safe(f'ebb report {applied.run_id}')}")


def _check(state: State, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse, before Spark starts and before anything is asked, a plan that must not be applied."""
    if is_bucket(manifest.target):
        check_bucket(state.bucket_shop(manifest.target), manifest, options)
    elif is_registry(manifest.target):
        check_registry(state.registry_shop(manifest.target), manifest, options)
    else:
        check_lake(state.shop, manifest, options)


def _is_free(state: State, manifest: Manifest) -> bool | None:
    """Tell whether the namespace of a deleted repository may be used again; None if it was not deleted."""
    if manifest.collector != DELETED_REPOSITORY:
        return None
    return find_retired(state.catalog, manifest.target_uid) is None


def _show_namespace(manifest: Manifest, *, free: bool) -> None:
    target, namespace = safe(manifest.target), safe(manifest.namespace)
    if free:
        say(f"nothing of {target} is left, and the namespace {namespace} is free")
    else:
        say(f"objects of {target} are left that were too young or came later; {namespace} is not free yet")
        say(f"plan again when they are old enough: ebb plan {target} --deleted")


def _confirm(manifest: Manifest, *, yes: bool) -> None:
    due = manifest.summary.due
    if yes or not due.objects:
        return
    if not sys.stdin.isatty():
        raise BadInput(
            "nobody is there to confirm the deletion",
            why="apply asks before it changes anything, and standard input is no terminal",
            fix="look at the plan with 'ebb plan show', then apply with --yes",
        )
    is_bin = manifest.collector == EMPTY_BIN
    if is_registry(manifest.target) or (is_bucket(manifest.target) and not is_bin):
        what = deeds(manifest.summary.by_collector)
        question = f"In {manifest.target} {what} ({human_bytes(due.bytes)})?"
    else:
        what = f"{plural(due.objects, 'object')} ({human_bytes(due.bytes)})"
        question = f"Delete {what} of {manifest.target} for good?"
        if manifest.recycling:
            question = f"Set aside {what} of {manifest.target} for {plural(manifest.recycling.days, 'day')}?"
    typer.confirm(question, abort=True)


def _show(applied: Applied, words: Words, manifest: Manifest) -> None:
    if applied.already_applied:
        say(f"run {applied.run_id} was applied before; nothing to do")
    rows = [(t.label, count(t.objects), human_bytes(t.bytes)) for t in applied.outcomes.values()]
    table(f"Outcomes of run {applied.run_id}", ("outcome", f"{words.item}s", "bytes"), rows, numbers=(1, 2))
    freed, aside = applied.freed, applied.set_aside
    has_bin = manifest.recycling or aside.objects
    if has_bin:
        # A registry's bin has a policy of its own, so that a plan does not say for how long.
        days = f" for {plural(manifest.recycling.days, 'day')}" if manifest.recycling else ""
        say(
            f"[bold]set aside {human_bytes(aside.bytes)}[/bold] in {words.items(aside.objects)}{days};"
            f" to undo: ebb restore {applied.run_id}"
        )
    if freed.objects or not has_bin:
        say(f"[bold]{words.did.lower()} {human_bytes(freed.bytes)}[/bold] in {words.items(freed.objects)}")
    if changed := applied.outcomes.get("changed"):
        why = "something came to need them" if words.has_branches else "they are not as they were planned"
        say(f"left alone, because {why}: {words.items(changed.objects)}")
