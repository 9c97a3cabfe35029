"""`ebb image scan`, `purge` and `delete`: the runs on a registry that need Spark."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import islice
from typing import Annotated

import typer

from ebbtide.cli.apply import check_applicable, run_apply
from ebbtide.cli.console import AsJson, Master, confirm, print_json, progress, safe, say, say_next
from ebbtide.cli.image_inventory import RunningImages
from ebbtide.cli.pipeline import check_free, plan_or_ask, run_plan
from ebbtide.cli.plan import show_summary
from ebbtide.cli.registry import open_registry
from ebbtide.cli.state import State
from ebbtide.core.decision import Decision
from ebbtide.core.errors import BadInput, NotFound, SafetyStop
from ebbtide.core.format import count, plural
from ebbtide.core.manifest import Manifest
from ebbtide.engine.apply import Applied
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.run_folder import run_folder, scratch_folder
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.engine.spark.failures import own_errors
from ebbtide.state.locks import target_lock
from ebbtide.state.users import current_user
from ebbtide.targets.kinds import words_of
from ebbtide.targets.oci.client.address import image_ref, repository_url
from ebbtide.targets.oci.context import RegistryContext
from ebbtide.targets.oci.kind import registry_context
from ebbtide.targets.oci.model import ImageDecision as Judged
from ebbtide.targets.oci.purge.policy import DeleteRequest, RequestedImage
from ebbtide.targets.oci.purge.scans import RegistryScans
from ebbtide.targets.oci.records.model import Role

app = typer.Typer(add_completion=False)


@app.command()
def scan(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER")],
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Believe that what earlier scans have seen is gone.")
    ] = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Scan a registry and give new images their policies; nothing in the registry is changed."""
    state: State = context.obj
    target_context = registry_context(state, target)
    open_registry(state, target).check_ready()
    check_free(state, target_context.uid)
    with (
        target_lock(target_context.root, target_context.uid, f"ebb image scan {target}"),
        state.spark(master) as spark,
        progress() as report,
        scratch_folder(state.root) as folder,
        own_errors(),
    ):
        policies = target_context.records.policies(target_context.uid)
        done = RegistryScans(spark, target_context, report).scan(
            policies, folder.path, allow_empty=allow_empty
        )
    if as_json:
        names = ("repositories", "tags", "images", "read", "gone", "warnings", "at")
        print_json({name: getattr(done, name) for name in names})
        return
    tags, images = plural(done.tags, "tag"), plural(done.images, "manifest")
    say(f"scanned {tags} and {images} of {plural(done.repositories, 'repository', 'repositories')}")
    say(f"  {count(done.read)} manifests were new, {count(done.gone)} are gone")
    for warning in done.warnings:
        say(f"  [yellow]warning:[/yellow] {safe(warning)}")
    say_next(state.command("image", "ls", target))
    say_next(state.command("plan", target))


def plan_purge(
    state: State, target: str, running: str | None, master: str | None, *, as_json: bool
) -> Manifest:
    """Plan the expired images of a registry."""
    now, registry = state.clock(), open_registry(state, target)
    given = {} if running is None else {"running": running}
    return plan_or_ask(
        state, lambda options: registry.collector(options, now), given, master, now, as_json=as_json
    )


def plan_request(
    state: State, target: str, running: str | None, master: str | None, request: DeleteRequest
) -> Manifest:
    """Plan the deletion of the given images, and of nothing else."""
    now = state.clock()
    return run_plan(state, open_registry(state, target).purge(now, running, request), master, now)


def plan_image_bin(state: State, target: str, master: str | None) -> Manifest:
    """Plan what has expired in the bin of a registry."""
    return run_plan(state, ExpiredItems(open_registry(state, target).bin()), master, state.clock())


@app.command()
def purge(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER")],
    running: RunningImages = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for a daily job.")] = False,
    override_breaker: Annotated[
        bool, typer.Option("--override-breaker", help="Purge more than the limits allow.")
    ] = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Move expired images into the recycle bin, and delete images that have expired there."""
    state: State = context.obj
    done = []
    for of_bin in (False, True):
        manifest = (
            plan_image_bin(state, target, master)
            if of_bin
            else plan_purge(state, target, running, master, as_json=as_json)
        )
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
    options = state.apply_options(override_breaker=override_breaker)
    check_applicable(state, manifest, options)
    confirm(
        f"In {manifest.target} {words_of(manifest).deeds(manifest.summary.by_action)}?",
        what="the purge has to be confirmed",
        why=f"plan {manifest.run_id} is made and was not applied",
        fix=f"see 'ebb plan show {manifest.run_id}', then 'ebb apply {manifest.run_id} --yes'",
        yes=yes,
    )
    applied = run_apply(state, manifest, options, master)
    if not quiet:
        done = ", ".join(f"{tally.objects} {name}" for name, tally in applied.outcomes.items())
        say(f"run {applied.run_id}: {safe(done)}")
    return applied


_AGE = re.compile(r"([1-9][0-9]{0,9})([hdw])", re.ASCII)
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
_LONGEST_AGE = timedelta(days=36_500)
_MOST_SHOWN = 20


@app.command()
def delete(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="An image (oci://HOST/REPO:TAG or @DIGEST), or with --older-than oci://HOST[/REPO]."
        ),
    ],
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="All tags that have not moved for this long: 30d, 12h, 2w."),
    ] = None,
    repository: Annotated[str, typer.Option(help="Only in repositories that match (--older-than).")] = "*",
    tag: Annotated[str, typer.Option(help="Only tags that match as a whole (--older-than).")] = ".*",
    untagged: Annotated[
        bool, typer.Option("--untagged", help="Also manifests that lost their last tag that long ago.")
    ] = False,
    running: RunningImages = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    override_breaker: Annotated[
        bool, typer.Option("--override-breaker", help="Delete more than the limits allow.")
    ] = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """
    Delete images now (through the recycle bin, if their policy says so).

    Images that are pinned, running, or needed by an image that stays are refused; unpin them first.
    """
    state: State = context.obj
    address, request = _delete_request(target, older_than, repository, tag, untagged=untagged)
    target_context = registry_context(state, address)
    what = f"delete {target}" if older_than is None else f"delete what is older than {older_than}"
    target_context.records.require(target_context.uid, Role.IMAGE_WRITER, current_user(), what)
    _check_there(target_context, target, request)
    manifest = plan_request(state, address, running, master, request)
    refused = _refused(state, manifest)
    for name, why in refused.items():
        target_context.records.note_refusal(target_context.uid, current_user(), name, what, why)
    if refused and not manifest.summary.due.objects:
        name, why = next(iter(refused.items()))
        fix = "unpin it, or remove what needs it, if it may really go"
        raise SafetyStop(f"{name} must not be deleted", why=why, fix=fix)
    if request.named and not manifest.summary.due.objects:
        raise NotFound(
            f"{target} is not among the images that the scan found",
            why="it was deleted meanwhile, or it has no tag and the registry does not list such manifests",
            fix="scan the registry again with 'ebb image scan', or tag the manifest first",
        )
    if not as_json:
        show_summary(manifest)
        for name, why in refused.items():
            say(f"  [yellow]refused:[/yellow] {safe(name)}: {safe(why)}")
    applied = apply_made(
        state, manifest, yes=yes, override_breaker=override_breaker, master=master, quiet=as_json
    )
    if as_json:
        outcomes = {} if applied is None else applied.outcomes
        print_json({"run_id": manifest.run_id, "outcomes": outcomes, "refused": refused})


def _delete_request(
    target: str, older_than: str | None, repository: str, tag: str, *, untagged: bool
) -> tuple[str, DeleteRequest]:
    """Parse the arguments: the address to scan, and the images to delete."""
    if older_than is None:
        if (repository, tag, untagged) != ("*", ".*", False):
            raise BadInput("--repository, --tag and --untagged need --older-than", fix="add --older-than")
        image = image_ref(target)
        named = RequestedImage(image.repository, image.tag, image.digest)
        return repository_url(image.registry, image.repository), DeleteRequest((named,))
    if not target.startswith(("oci://", "oci-layout:")):
        raise BadInput(
            f"{target!r} is not a registry", fix="write oci://HOST, oci://HOST/REPO or oci-layout:FOLDER"
        )
    request = DeleteRequest((), int(_age(older_than).total_seconds()), repository, tag, untagged)
    request.check()
    return target, request


def _check_there(target_context: RegistryContext, target: str, request: DeleteRequest) -> None:
    """Raise NotFound, before Spark starts, if an image that was named does not exist."""
    with target_context.opened() as registry:
        for one in request.named:
            try:
                registry.resolve(one.repository, one.tag or one.digest)
            except NotFound:
                raise NotFound(
                    f"{target} does not exist",
                    why="the registry has no such tag or digest",
                    fix="see 'ebb image ls' for what exists, 'ebb image recycle list' for what is in the bin",
                ) from None


def _age(text: str) -> timedelta:
    """Parse an age such as 30d; raise BadInput for one that no image can have."""
    found = _AGE.fullmatch(text)
    hours = int(found[1]) * _HOURS[found[2]] if found else 0
    if not hours or hours > _LONGEST_AGE // timedelta(hours=1):
        raise BadInput(
            f"{text!r} is not an age",
            why="an age is a whole number of hours, days or weeks, from 1h to 36500d",
            fix="write 30d, 12h or 2w",
        )
    return timedelta(hours=hours)


def _refused(state: State, manifest: Manifest) -> dict[str, str]:
    """Return the first images that were asked for and must stay, each with its reason."""
    rows = stream_decisions(run_folder(state.root, manifest.run_id), Decision.HELD)
    found = (row for row in rows if row["action"] == Judged.REFUSE)
    return {row["names"][0]: row["holder"] or row["hold"] for row in islice(found, _MOST_SHOWN)}
