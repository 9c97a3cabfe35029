"""`ebb restore`: bring back what a run set aside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say
from ebbtide.cli.image_recycle import restore_image
from ebbtide.cli.state import State, is_bucket, is_registry, lake_target
from ebbtide.core.decision import RESTORE
from ebbtide.core.errors import BadInput, NotFound, PartlyApplied, StoreError
from ebbtide.core.format import human_bytes, plural
from ebbtide.core.instant import format_second
from ebbtide.core.manifest import Manifest
from ebbtide.engine.bins import Bin, BinItem, FolderGone
from ebbtide.engine.layout import run_folder
from ebbtide.engine.restoring import RestoreChoice, Restored, chosen_labels
from ebbtide.storage.store import check_key
from ebbtide.targets.lake.recycling import lake_bin
from ebbtide.targets.lake.restoring import restore_lake, wanted_items
from ebbtide.targets.s3.restoring import bucket_bin, restore_bucket, wanted_keys

app = typer.Typer(add_completion=False)


@app.command()
def restore(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(help="A run's number, or lake:REPO, s3://BUCKET, oci://HOST/REPO:TAG.")
    ],
    items: Annotated[
        list[str] | None, typer.Argument(help="Single items, by key or address; none is all of the run.")
    ] = None,
    folder: Annotated[
        str | None, typer.Option("--from", help="One folder of the bin, as 'ebb recycle ls' names it.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Copy them into this folder instead, and leave them in the bin."),
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
    if is_registry(what):
        _restore_image(context, what, items, to, as_json=as_json)
        return
    if folder is not None and (what.isdigit() or what == "latest"):
        raise BadInput("--from goes with a target, not with a run", fix="leave it out")
    run = _run_of_registry(state, what)
    if run is not None:
        _restore_images(context, run, items, as_json=as_json)
        return
    target, choice = _choice(state, what, tuple(items or ()), folder)
    if to is not None:
        _copy_out(*_wanted(state, target, choice), to, as_json=as_json)
        return
    _show(target, _restored(state, target, replace(choice, days=days), what), as_json=as_json)


def _restored(state: State, target: str, choice: RestoreChoice, what: str) -> Restored:
    """Restore; of a run whose folder is gone say that nothing came back."""
    try:
        if is_bucket(target):
            return restore_bucket(state.bucket_shop(target), choice)
        return restore_lake(state.shop, lake_target(target), choice)
    except FolderGone as gone:
        if not (what.isdigit() or what == "latest"):
            raise
        raise PartlyApplied(
            f"nothing of run {state.run_id(what)} was restored",
            why=f"{gone.what}: {gone.why}",
            fix=gone.fix,
        ) from None


def _wanted(state: State, target: str, choice: RestoreChoice) -> tuple[Bin, Iterator[BinItem]]:
    """Find what is meant in a target's bin."""
    if is_bucket(target):
        contents = bucket_bin(state.bucket_shop(target))
        return contents, wanted_keys(contents, chosen_labels(contents, choice), choice)
    contents = lake_bin(state.catalog, lake_target(target))
    return contents, wanted_items(state.shop, contents, chosen_labels(contents, choice), choice)


def _choice(state: State, what: str, items: tuple[str, ...], folder: str | None) -> tuple[str, RestoreChoice]:
    """Read what is to come back: of a run in this ledger, or of a target's bin."""
    if not (what.isdigit() or what == "latest"):
        if not items and folder is None:
            raise BadInput(
                f"nothing of {what} is named",
                why="to bring back everything that ever went is hardly what is meant",
                fix="name a run (ebb restore 7), items, or a folder of the bin with --from",
            )
        return what, RestoreChoice(folder, items)
    manifest = _manifest(state, what)
    if manifest.recycling is None:
        raise NotFound(
            f"run {manifest.run_id} on {manifest.target} sets nothing aside",
            why="what it deletes is gone for good",
            fix="let runs set aside first what they delete: ebb recycle set TARGET --days 14",
        )
    return manifest.target, RestoreChoice(manifest.recycling.folder, items)


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


def _run_of_registry(state: State, what: str) -> Manifest | None:
    """Give the plan of a run if it is about a registry, whose bin knows for itself what a run set aside."""
    if not (what.isdigit() or what == "latest"):
        return None
    manifest = _manifest(state, what)
    return manifest if is_registry(manifest.target) else None


def _restore_images(
    context: typer.Context, manifest: Manifest, items: list[str] | None, *, as_json: bool
) -> None:
    if items:
        raise BadInput("an image is named by its whole reference", fix="ebb restore oci://HOST/REPO:TAG")
    restore_image(context, manifest.target, to=None, all_of=manifest.run_id, alone=False, as_json=as_json)


def _restore_image(
    context: typer.Context, ref: str, items: list[str] | None, to: Path | None, *, as_json: bool
) -> None:
    if items:
        raise BadInput("an image is named by its whole reference", fix="ebb restore oci://HOST/REPO:TAG")
    restore_image(context, ref, to=str(to) if to else None, all_of=None, alone=False, as_json=as_json)


def _copy_out(contents: Bin, items: Iterator[BinItem], to: Path, *, as_json: bool) -> None:
    """Copy items to a folder of this machine, each under its address; what is there is not overwritten."""
    copied = 0
    for item in items:
        check_key(item.address)
        # A key may begin with a slash, and then it must not lead away from the folder.
        place = to / item.address.lstrip("/")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                file.write(contents.store.read(contents.place_of(item.folder, item.address)))
        except OSError as broken:
            raise StoreError(
                f"{place} cannot be written: {broken.strerror}",
                why=f"{plural(copied, 'object')} were copied before; all are in the bin still",
                fix="choose another folder",
            ) from None
        copied += 1
    if as_json:
        print_json({"copied": copied, "to": str(to)})
    else:
        say(f"copied {plural(copied, 'object')} to {safe(to)}; the bin has them still")


def _show(target: str, done: Restored, *, as_json: bool) -> None:
    if as_json:
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
        what = f"{plural(back.objects, 'object')}[/bold], {human_bytes(back.bytes)}"
        say(f"[bold]restored {what} (run {done.run_id})")
        if done.held_until is not None:
            say(f"held until {format_second(done.held_until)}: no run takes them before that")
        elif back.objects:
            say("nothing is held: the next plan may take them again")
        if back.objects:
            say(f"to keep them longer, change the policy (ebb explain {safe(target)} KEY says why they went)")
    _check_all_back(done)


def _check_all_back(done: Restored) -> None:
    """Exit with code 4 if nothing came back, or not everything, and give the reason of each item."""
    if done.left:
        fix = "restore again after correcting the cause; --to FOLDER copies an item whose place is taken"
        raise PartlyApplied(
            f"{plural(done.left, 'object')} could not be restored",
            why="what is still in the bin stays there",
            fix=fix,
            details=list(done.troubles),
        )
    if not done.back.objects:
        raise PartlyApplied(
            "nothing was restored",
            why="the bin has nothing of it: it was restored or emptied before",
            fix="see 'ebb recycle ls' for what the bin has",
        )
