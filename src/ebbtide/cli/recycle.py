"""`ebb recycle`: show, configure and empty the recycle bin of a target."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from ebbtide.cli.apply import run_apply, show_applied
from ebbtide.cli.console import AsJson, Master, confirm, print_json, safe, say
from ebbtide.cli.pipeline import run_plan, show_table
from ebbtide.cli.state import State
from ebbtide.cli.target_options import target_help
from ebbtide.core.errors import BadInput, EbbtideError
from ebbtide.core.format import human_bytes, plural
from ebbtide.core.instant import format_second
from ebbtide.engine.bin import RecycleBin
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.targets.kinds import kind_of

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The recycle bin: what runs set aside in place of deleting it.",
)

Target = Annotated[str, typer.Argument(help=target_help())]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
OlderThan = Annotated[
    int | None,
    typer.Option(
        "--older-than", min=0, max=36_500, help="Only items that have been there for this many days."
    ),
]


@app.command("set")
def set_days(
    context: typer.Context,
    target: Target,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36_500, help="Set aside for this many days.")
    ] = None,
    off: Annotated[
        bool, typer.Option("--off", help="Delete at once again, unless a policy says else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let all runs on a target set items aside instead of deleting them; earlier plans become stale."""
    state: State = context.obj
    if (days is None) == (not off):
        raise BadInput("say either --days or --off", fix=f"ebb recycle set {target} --days 14")
    kind_of(target).check_bin_setting(target)
    opened = open_bin(state, target)
    opened.check_setting(days)
    state.ledger.set_recycling(opened.identity.url, opened.identity.uid, days)
    if as_json:
        print_json({"target": target, "recycle_days": days})
    elif days is None:
        say(f"runs on {safe(target)} delete at once, unless a rule of its policy says recycle")
    else:
        say(f"runs on {safe(target)} set aside for {plural(days, 'day')} what they would delete")


@app.command("ls")
def list_bin(
    context: typer.Context,
    target: Target,
    items: Annotated[bool, typer.Option("--items", help="Stream every item, not only runs.")] = False,
    run: Annotated[int | None, typer.Option("--run", help="Only what this run set aside.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the contents of the bin, by run or item by item; exits 3 if a part of it is damaged."""
    opened = open_bin(context.obj, target)
    if items:
        _print_items(opened, run, as_json=as_json)
    else:
        show_listing(opened, run, as_json=as_json)


def open_bin(state: State, target: str) -> RecycleBin:
    """Open the bin of a target; the name of an item is refused."""
    opened, items = kind_of(target).open_bin(target, state)
    if items:
        raise BadInput(f"{target} names an item", fix="name its target")
    return opened


def show_listing(opened: RecycleBin, run: int | None, *, as_json: bool) -> None:
    """Print the contents of a bin, and end with an error if a part of it is damaged."""
    found = opened.listing(run)
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if as_json:
        print_json(found.plain)
    else:
        show_table(found.table)
    if found.damage:
        raise opened.damaged(found.damage)


def _print_items(opened: RecycleBin, run: int | None, *, as_json: bool) -> None:
    damage: list[EbbtideError] = []
    for item, expires in opened.stream(run, damage.append):
        until = format_second(expires)
        if as_json:
            plain = {"run": item.run, "address": item.address, "size": item.size, "until": until}
            print(json.dumps(plain, ensure_ascii=False))
        else:
            say(f"{item.run:>6}  {until:20}  {human_bytes(item.size):>10}  {safe(item.address)}")
    if damage:
        raise opened.damaged(damage)


@app.command("empty")
def empty(
    context: typer.Context,
    target: Target,
    older_than: OlderThan = None,
    yes: Yes = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """
    Permanently delete the items in the bin, or those that have been there for this many days.

    It is a plan like any other, made and applied at once; to confirm it overrides the breaker. What has
    reached the end of its own days goes with 'ebb plan TARGET --bin'.
    """
    state: State = context.obj
    empty_bin(state, open_bin(state, target), target, older_than, master, yes=yes, as_json=as_json)


def empty_bin(
    state: State,
    opened: RecycleBin,
    target: str,
    older_than: int | None,
    master: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Plan, confirm and apply the deletion of the items that are old enough, and print the result."""
    opened.before_empty()
    manifest = run_plan(state, ExpiredItems(opened, older_than or 0), master, state.clock())
    due = manifest.summary.due
    if due.objects:
        _confirm_empty(
            f"{plural(due.objects, opened.item)} (up to {human_bytes(due.bytes)})", target, yes=yes
        )
    applied = run_apply(state, manifest, state.apply_options(override_breaker=True), master)
    show_applied(state, applied, manifest, as_json=as_json, more=opened.after_empty(manifest))
    opened.check_emptied(manifest)


def _confirm_empty(what: str, target: str, *, yes: bool) -> None:
    confirm(
        f"Delete {what} in the recycle bin of {target} for good?",
        what=f"deleting {what} for good has to be confirmed",
        why="it cannot be undone",
        fix="look with 'ebb recycle ls', then empty with --yes",
        yes=yes,
        on_stderr=True,
    )
