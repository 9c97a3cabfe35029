"""`ebb explain`: why an object goes or stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, Master, Now, print_json, safe, say, table
from ebbtide.cli.state import State, instant, lake_target
from ebbtide.errors import NotFound
from ebbtide.lake.burials import RunGraveyard
from ebbtide.lake.lifecycle.explaining import Explanation, explain
from ebbtide.lake.metadata.world import world_of
from ebbtide.lake.rulebook import stored_policy
from ebbtide.report.format import human_bytes
from ebbtide.rules.instant import format_instant
from ebbtide.tables.failures import own_errors

app = typer.Typer()


@app.command("explain")
def explain_object(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="lake:REPO")],
    item: Annotated[str, typer.Argument(help="A key, or a physical address.")],
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Say why an object goes or stays: every reference to it, and when each lapses."""
    state: State = context.obj
    name = lake_target(target)
    policy = stored_policy(state.catalog, name)
    store = state.catalog.store(name).spec
    world = world_of(state.catalog.snapshot(name), store, policy, instant(now, state.clock))
    with state.spark(master) as spark, own_errors():
        found = explain(spark, world, item)
    if not found:
        raise NotFound(
            f"nothing in {target} references {item!r}",
            why="no branch, tag, commit or staging area names it",
            fix="check the spelling with 'ebb lake ls'",
        )
    graveyard = RunGraveyard(state.root, state.ledger)
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
        say(
            f"  GONE since {format_instant(b.since)}: run {b.run_id} deleted it by"
            f" {safe(', '.join(b.rules))}; {'restorable' if b.restorable else 'for good'}"
        )
    longest = e.references[0]
    verdicts = {
        "due": f"DUE since {format_instant(e.deadline)}: every reference has lapsed",
        "held": f"HELD: {longest.why}: {longest.key} {longest.reached[0]}",
        "untouched": "KEPT: no rule concerns any of its references",
    }
    say(
        f"  {safe(verdicts[e.verdict])}"
        + ("" if e.verdict != "held" else f" (until {format_instant(e.deadline)})")
    )
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
