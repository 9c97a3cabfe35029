"""`ebb recycle`: what lies in the recycle bin of a target, for how long things stay there, emptying it."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from ebbtide.cli.apply import run_apply, show_applied
from ebbtide.cli.console import AsJson, Master, print_json, safe, say, table
from ebbtide.cli.image_recycle import empty as empty_image_bin
from ebbtide.cli.image_recycle import list_bin as list_image_bin
from ebbtide.cli.pipeline import run_plan
from ebbtide.cli.state import State, is_bucket, is_registry, lake_target
from ebbtide.core.errors import BadInput, EbbtideError, MetadataError
from ebbtide.core.format import count, human_bytes, plural
from ebbtide.core.instant import format_second
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.core.recycling import Label
from ebbtide.engine.bins import Bin
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.targets.lake.recycling import lake_bin
from ebbtide.targets.s3.collector import no_bin_when_suspended
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.restoring import bucket_bin

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The recycle bin: what runs set aside in place of deleting it.",
)

Target = Annotated[str, typer.Argument(help="lake:REPO, s3://BUCKET or oci://HOST[/REPO].")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
OlderThan = Annotated[
    int | None,
    typer.Option("--older-than", min=0, max=36_500, help="Only what has been there for so many days."),
]
_COLUMNS = ("run", "folder", "found by", "set aside", "kept until", "objects", "bytes")


@app.command("set")
def set_days(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="lake:REPO or s3://BUCKET.")],
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36_500, help="Set aside for so many days.")
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
    if is_registry(target):
        raise BadInput(
            "of a registry its policies say what is recycled",
            fix="assign a policy with 'recycle' (see 'ebb image policy')",
        )
    if is_bucket(target):
        shop = state.bucket_shop(target)
        if days is not None and open_bucket(shop.spec).versioning() == Versioning.SUSPENDED:
            raise no_bin_when_suspended(target)
        uid = shop.uid
    else:
        uid = state.catalog.repository(lake_target(target)).uid
    state.ledger.set_recycling(target, uid, days)
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
    state: State = context.obj
    if is_registry(target):
        list_image_bin(context, target, as_json=as_json)
        return
    contents = _bin(state, target)
    damage: list[EbbtideError] = []
    labels = [label for label in contents.labels(damage.append) if run in (None, label.run)]
    if items:
        for label in labels:
            _print_items(contents, label, as_json=as_json)
    else:
        _print_runs(state, target, contents, labels, as_json=as_json)
    if damage:
        raise MetadataError(
            f"{plural(len(damage), 'folder')} of the recycle bin cannot be understood",
            why="all others were looked at; these are left alone by everything",
            fix="look at the folder's items/ in the store; remove it by hand when you need it no more",
            details=[str(broken.what) for broken in damage],
        )


def _print_runs(state: State, target: str, contents: Bin, labels: list[Label], *, as_json: bool) -> None:
    days = state.ledger.recycling_days(contents.target_uid)
    found = [(label, _sum(contents, label)) for label in labels]
    if as_json:
        runs = [_plain(label) | {"objects": total.objects, "bytes": total.bytes} for label, total in found]
        print_json({"target": target, "recycle_days": days, "runs": runs})
        return
    rows = [
        (
            label.run,
            label.folder,
            label.collector,
            format_second(label.set_aside),
            format_second(label.expires),
            count(total.objects),
            human_bytes(total.bytes),
        )
        for label, total in found
    ]
    table("Recycle bin", _COLUMNS, rows, numbers=(0, 5, 6))
    objects, size = sum(t.objects for _, t in found), sum(t.bytes for _, t in found)
    kept = (
        f"runs set aside for {plural(days, 'day')}"
        if days
        else "runs delete at once, unless a policy says else"
    )
    say(f"{plural(objects, 'object')}, {human_bytes(size)}; {kept}")


def _print_items(contents: Bin, label: Label, *, as_json: bool) -> None:
    until = format_second(label.expires)
    for item in contents.items(label):
        if as_json:
            plain = {"run": item.run, "address": item.address, "size": item.size, "until": until}
            print(json.dumps(plain, ensure_ascii=False))
        else:
            say(f"{item.run:>6}  {until:20}  {human_bytes(item.size):>10}  {safe(item.address)}")


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
    Delete for good what lies in the bin, or what has been there for so many days.

    It is a plan like any other, made and applied at once; to confirm it overrides the breaker. What has
    reached the end of its own days goes with 'ebb plan TARGET --bin'.
    """
    state: State = context.obj
    if is_registry(target):
        empty_image_bin(context, target, older_than=older_than, yes=yes, as_json=as_json)
        return
    collector = state.target(target).bin_collector(older_than or 0)
    manifest = run_plan(state, collector, master, state.clock())
    _confirm(manifest, yes=yes)
    options = state.apply_options(override_breaker=True)
    applied = run_apply(state, manifest, options, master)
    show_applied(state, applied, manifest, as_json=as_json)


def _confirm(manifest: Manifest, *, yes: bool) -> None:
    due = manifest.summary.due
    if yes or not due.objects:
        return
    what = f"{plural(due.objects, 'object')} ({human_bytes(due.bytes)})"
    if not sys.stdin.isatty():
        raise BadInput(
            f"deleting {what} for good has to be confirmed",
            why="standard input is no terminal",
            fix="look with 'ebb recycle ls', then empty with --yes",
        )
    typer.confirm(f"Delete {what} in the recycle bin of {manifest.target} for good?", abort=True)


def _bin(state: State, target: str) -> Bin:
    if is_bucket(target):
        return bucket_bin(state.bucket_shop(target))
    return lake_bin(state.catalog, lake_target(target))


def _sum(contents: Bin, label: Label) -> Tally:
    objects = size = 0
    for item in contents.items(label):
        objects, size = objects + 1, size + item.size
    return Tally(label.folder, objects, size)


def _plain(label: Label) -> dict[str, Any]:
    return {name: getattr(label, name) for name in label.__dataclass_fields__} | {"expires": label.expires}
