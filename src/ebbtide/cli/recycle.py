"""`ebb recycle`: what lies in the recycle bin of a target, for how long things stay there, emptying it."""

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
from ebbtide.core.errors import BadInput, EbbtideError, PartlyApplied
from ebbtide.core.format import human_bytes, plural
from ebbtide.core.instant import format_second
from ebbtide.engine.bin import Confirm, Emptied, RecycleBin
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
    """Let all runs on a target set aside what they would delete; plans made before are stale then."""
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
    """List what lies in the bin, by run or item by item; exits 3 if a part of it cannot be understood."""
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
    """Print what lies in a bin, and end with an error if a part of it cannot be understood."""
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

    It is a plan like any other, made and applied at once; to confirm it overrides the breaker. The bin of a
    registry is emptied without a plan. What has reached the end of its own days goes with 'ebb plan TARGET
    --bin'.
    """
    state: State = context.obj
    opened = open_bin(state, target)
    confirm = asking(opened.item, target, yes=yes)
    emptied = opened.empty(older_than, confirm)
    if emptied is not None:
        show_emptied(opened, emptied, as_json=as_json)
        return
    manifest = run_plan(state, ExpiredItems(opened, older_than or 0), master, state.clock())
    due = manifest.summary.due
    if due.objects:
        confirm(due.objects, due.bytes)
    applied = run_apply(state, manifest, state.apply_options(override_breaker=True), master)
    show_applied(state, applied, manifest, as_json=as_json)


def asking(item: str, target: str, *, yes: bool) -> Confirm:
    """Make what asks whether items of a bin may be deleted for good."""

    def ask(number: int, size: int) -> None:
        what = f"{plural(number, item)} (up to {human_bytes(size)})"
        confirm(
            f"Delete {what} in the recycle bin of {target} for good?",
            what=f"deleting {what} for good has to be confirmed",
            why="it cannot be undone",
            fix="look with 'ebb recycle ls', then empty with --yes",
            yes=yes,
            on_stderr=True,
        )

    return ask


def show_emptied(opened: RecycleBin, emptied: Emptied, *, as_json: bool) -> None:
    """Print what was deleted, and end with an error if that is not everything."""
    gone, failed = emptied.gone, emptied.failed
    if as_json:
        print_json({"deleted": gone, "failed": failed})
    else:
        say(f"deleted {plural(len(gone), opened.item)} from the recycle bin")
    if failed:
        raise PartlyApplied(
            f"not all of {plural(len(gone) + len(failed), opened.item)} could be deleted from the bin",
            fix="correct the causes below, and empty the bin again",
            details=list(failed),
        )
    if emptied.damage:
        raise opened.damaged(emptied.damage)
