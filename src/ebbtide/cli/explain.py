"""`ebb explain`: why an object goes or stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ebbtide.cli.bucket_explain import explain_in_bucket
from ebbtide.cli.bucket_plan import BucketChoice, RulesFile, RulesFrom
from ebbtide.cli.console import AsJson, Master, Now, print_json, safe, say, table
from ebbtide.cli.image_explain import explain_in_registry
from ebbtide.cli.state import State, instant, is_bucket, is_registry, lake_target
from ebbtide.errors import NotFound
from ebbtide.lake.burials import RunGraveyard
from ebbtide.lake.explaining import Explanation, explain, explain_garbage
from ebbtide.lake.metadata.world import world_of
from ebbtide.lake.rulebook import every_rule
from ebbtide.report.format import human_bytes
from ebbtide.rules.instant import format_instant
from ebbtide.tables.failures import own_errors

app = typer.Typer()


@app.command("explain")
def explain_object(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="lake:REPO, s3://BUCKET or oci://HOST")],
    item: Annotated[
        str,
        typer.Argument(help="A key; in a lake also an address; in a registry REPO:TAG or REPO@DIGEST."),
    ],
    now: Now = None,
    rules_from: RulesFrom = None,
    rules_file: RulesFile = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """
    Say why an object goes or stays.

    In a lake: every reference to it, and when each lapses. In a bucket: what the rules make of each of its
    versions and uploads, as they are now, and what runs have done to those that were there. In a registry:
    what the policies make of an image and its names, as of the last scan.
    """
    state: State = context.obj
    if is_registry(target):
        explain_in_registry(state, target, item, now, as_json=as_json)
        return
    if is_bucket(target):
        choice = BucketChoice(rules_from, rules_file)
        explain_in_bucket(state, target, item, choice, instant(now, state.clock), as_json=as_json)
        return
    name = lake_target(target)
    rules = every_rule(state.catalog, name)
    store = state.catalog.store(name).spec
    snapshot = state.catalog.snapshot(name)
    world = world_of(snapshot, store, rules.policy, instant(now, state.clock), rules.retention)
    with state.spark(master) as spark, own_errors():
        found = explain(spark, world, item)
    if not found:
        grace = state.sweep_rules(branch=None, clean=False).grace
        garbage = explain_garbage(state.catalog, name, item, grace)
        found = [garbage] if garbage else []
    if not found:
        raise NotFound(
            f"nothing in {target} references {item!r}",
            why="no branch, tag, commit or staging area names it",
            fix="check the spelling with 'ebb lake ls'",
        )
    graveyard = RunGraveyard(state.root, state.ledger, state.settings.store.options())
    explained = [replace(e, burial=graveyard.lookup(name, e.address)) for e in found]
    if as_json:
        print_json(explained)
        return
    for explanation in explained:
        show_explanation(explanation)


def show_explanation(e: Explanation) -> None:
    """Print one explanation."""
    say(f"[bold]{safe(e.address)}[/bold]  {human_bytes(e.size)}")
    if e.burial:
        b = e.burial
        how = f"set aside until {format_instant(b.until)}" if b.until else "for good"
        back = f"; ebb restore {b.run_id} {safe(e.address)}" if b.until else ""
        done = "took" if b.until else "deleted"
        say(
            f"  GONE since {format_instant(b.since)}: run {b.run_id} {done} it by"
            f" {safe(', '.join(b.rules))}; {how}{back}"
        )
    say(f"  {safe(_verdict(e))}")
    if not e.references:
        return
    rows = [
        (
            r.key,
            ", ".join(r.reached),
            format_instant(r.created),
            format_instant(r.lapse),
            ", ".join(r.rules) or "no rule",
        )
        for r in e.references
    ]
    table("", ("key", "reached", "written", "lapses", "rules"), rows)
    terms = [(t.key, t.keeper, format_instant(t.until)) for t in e.terms]
    if terms:
        table("By retention", ("key", "kept", "until"), terms)


def _verdict(e: Explanation) -> str:
    """Say in one sentence whether an object goes or stays, and why."""
    until = format_instant(e.deadline)
    if e.verdict == "garbage":
        return f"GARBAGE: nothing references it; a run with --uncommitted may delete it from {until} on"
    if e.verdict == "due":
        return f"DUE since {until}: every reference has lapsed"
    if e.verdict == "untouched":
        return "KEPT: no lifecycle rule concerns any of its references"
    longest = e.references[0]
    return f"HELD: {longest.why}: {longest.key} {longest.reached[0]} (until {until})"
