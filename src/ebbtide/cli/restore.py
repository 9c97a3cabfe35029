"""`ebb restore`: bring back what a run set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say
from ebbtide.cli.state import LATEST, State
from ebbtide.core.decision import RESTORE
from ebbtide.core.display import Explanation
from ebbtide.core.errors import BadInput, NotFound, PartlyApplied
from ebbtide.core.format import human_bytes, plural
from ebbtide.core.instant import format_second
from ebbtide.core.manifest import Manifest
from ebbtide.engine.bin import FolderGone, RecycleBin, RestoreChoice
from ebbtide.engine.restore import Restored, copy_out
from ebbtide.engine.restore import restore as restore_items
from ebbtide.engine.run_folder import run_folder
from ebbtide.targets.kinds import kind_of

app = typer.Typer(add_completion=False)


@app.command()
def restore(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            help="A run's number, or a target or item: lake:REPO, s3://BUCKET, oci://HOST/REPO:TAG."
        ),
    ],
    items: Annotated[
        list[str] | None, typer.Argument(help="Single items, by key or address; none is all of the run.")
    ] = None,
    folder: Annotated[
        str | None, typer.Option("--from", help="One folder of the bin, as 'ebb recycle ls' names it.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Copy them into this folder instead, and leave them in the bin; of an image, its new tag.",
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            min=0,
            max=36_500,
            help="For how many days no run takes them again.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """
    Bring back what a run set aside: all of it, or single items, to where they were.

    A place that has another content now is never overwritten: such an item stays in the bin, and --to copies
    it elsewhere. What is restored is held for as many days as the bin keeps items, or for --days.
    """
    state: State = context.obj
    named = tuple(items or ())
    is_run = what.isdigit() or what == LATEST
    if is_run:
        if folder is not None:
            raise BadInput("--from goes with a target, not with a run", fix="leave it out")
        plan = _manifest(state, what)
        opened, _ = kind_of(plan.target).open_bin(plan.target, state)
        choice = opened.choice_of(plan, named)
    else:
        opened, first = kind_of(what).open_bin(what, state)
        choice = RestoreChoice(folder, (*first, *named))
    if to is not None and opened.copies_out:
        _show_copied(copy_out(opened, choice, Path(to)), to, as_json=as_json)
        return
    try:
        done = restore_items(opened, replace(choice, days=days, to=to))
    except FolderGone as gone:
        if not is_run:
            raise
        raise PartlyApplied(
            f"nothing of run {state.run_id(what)} was restored",
            why=f"{gone.what}: {gone.why}",
            fix=gone.fix,
        ) from None
    show_restored(opened, done, as_json=as_json)


def _manifest(state: State, what: str) -> Manifest:
    """Read a run's plan; a restore is a run too, but has none."""
    number = state.run_id(what)
    if _is_restore(state, number):
        raise NotFound(
            f"run {number} is a restore itself",
            why="it brought items back, and set nothing aside",
            fix="name the run that set them aside (see 'ebb runs')",
        )
    return run_folder(state.root, number).read_manifest()


def _is_restore(state: State, number: int) -> bool:
    try:
        return state.ledger.run(number).collector == RESTORE
    except NotFound:
        return False


def _show_copied(copied: int, to: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"copied": copied, "to": to})
    else:
        say(f"copied {plural(copied, 'object')} to {safe(to)}; the bin has them still")


def show_restored(opened: RecycleBin, done: Restored, *, as_json: bool) -> None:
    """Print what was restored, and end with an error if something is left."""
    if not opened.records_restores:
        _show_notes(done.notes, as_json=as_json)
    elif as_json:
        print_json(
            {
                "run_id": done.run_id,
                "outcomes": done.outcomes,
                "held_until": done.held_until,
                "troubles": done.troubles,
            }
        )
    else:
        back = done.back
        what = f"{plural(back.objects, opened.item)}[/bold], {human_bytes(back.bytes)}"
        say(f"[bold]restored {what} (run {done.run_id})")
        if done.held_until is not None:
            say(f"held until {format_second(done.held_until)}: no run takes them before that")
        elif back.objects:
            say("nothing is held: the next plan may take them again")
        if back.objects:
            explain = f"ebb explain {safe(opened.identity.url)} KEY"
            say(f"to keep them longer, change the policy ({explain} says why they went)")
    _check_all_back(opened, done)


def _show_notes(notes: Sequence[Explanation], *, as_json: bool) -> None:
    """Print what a target reports about items."""
    if as_json:
        print_json([note.plain for note in notes])
        return
    for note in notes:
        for line in note.blocks:
            say(safe(line))


def _check_all_back(opened: RecycleBin, done: Restored) -> None:
    """Exit with code 4 if nothing came back, or not everything, and give the reason of each item."""
    if done.left or done.troubles:
        what = plural(done.left, opened.item) if done.left else "a part"
        raise PartlyApplied(
            f"{what} could not be restored",
            why="items that are still in the bin stay there",
            fix=f"restore again after correcting the cause; {opened.elsewhere}",
            details=list(done.troubles),
        )
    if not done.back.objects:
        raise PartlyApplied(
            "nothing was restored",
            why="the bin has nothing of it: it was restored or emptied before",
            fix="see 'ebb recycle ls' for what the bin has",
        )
