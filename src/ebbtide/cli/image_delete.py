"""`ebb image delete`: delete images by name, or all that are older than so much, unless something holds."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import islice
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, Master, Now, print_json, safe, say
from ebbtide.cli.image_purge import apply_made
from ebbtide.cli.plan import show_summary
from ebbtide.cli.registry_plan import RegistryChoice, RunningImages, make_registry_plan
from ebbtide.cli.state import State, is_registry
from ebbtide.engine.layout import run_folder
from ebbtide.engine.reading import stream_decisions
from ebbtide.errors import BadInput, SafetyStop
from ebbtide.ledger.actors import current_user
from ebbtide.plan.decision import Decision
from ebbtide.plan.manifest import Manifest
from ebbtide.registry.client.image_ref import image_ref
from ebbtide.registry.model import Decision as Judged
from ebbtide.registry.purge.wanted import Named, Wanted
from ebbtide.registry.records.model import Role

app = typer.Typer()
_AGE = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
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
        typer.Option("--older-than", help="All tags that have not moved for so long: 30d, 12h, 2w."),
    ] = None,
    repository: Annotated[str, typer.Option(help="Only in repositories that match (--older-than).")] = "*",
    tag: Annotated[str, typer.Option(help="Only tags that match as a whole (--older-than).")] = ".*",
    untagged: Annotated[
        bool, typer.Option("--untagged", help="Also manifests without a tag (--older-than).")
    ] = False,
    running: RunningImages = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    override_breaker: Annotated[
        bool, typer.Option("--override-breaker", help="Delete more than the limits allow.")
    ] = False,
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """
    Delete images now (through the recycle bin, if their policy says so).

    What is pinned, runs, or is needed by an image that stays is refused; unpin it first.
    """
    state: State = context.obj
    state.now_override = now or state.now_override
    address, wanted = _wanted(target, older_than, repository, tag, untagged=untagged)
    shop = state.registry_shop(address)
    what = f"delete {target}" if older_than is None else f"delete what is older than {older_than}"
    shop.records.require(shop.uid, Role.IMAGE_WRITER, current_user(), what)
    manifest = make_registry_plan(state, address, RegistryChoice(running), master, wanted)
    refused = _refused(state, manifest)
    for name, why in refused.items():
        shop.records.note_refusal(shop.uid, current_user(), name, what, why)
    if refused and not manifest.summary.due.objects:
        name, why = next(iter(refused.items()))
        fix = "unpin it, or remove what needs it, if it may really go"
        raise SafetyStop(f"{name} must not be deleted", why=why, fix=fix)
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


def _wanted(
    target: str, older_than: str | None, repository: str, tag: str, *, untagged: bool
) -> tuple[str, Wanted]:
    """Read what is to be deleted: where, and what."""
    if older_than is None:
        if (repository, tag, untagged) != ("*", ".*", False):
            raise BadInput(
                "--repository, --tag and --untagged say which old images are meant", fix="add --older-than"
            )
        image = image_ref(target)
        named = Named(image.repository, image.tag, image.digest)
        return _place(image.registry, image.repository), Wanted((named,))
    if not is_registry(target):
        raise BadInput(
            f"{target!r} is no registry", fix="write oci://HOST, oci://HOST/REPO or oci-layout:FOLDER"
        )
    found = _AGE.fullmatch(older_than)
    if found is None:
        raise BadInput(f"{older_than!r} is no age", fix="write 30d, 12h or 2w")
    age = timedelta(hours=int(found[1]) * _HOURS[found[2]])
    wanted = Wanted((), int(age.total_seconds()), repository, tag, untagged)
    wanted.check()
    return target, wanted


def _place(registry: str, repository: str) -> str:
    """Scan no more than the repository that is meant, where an address can say that."""
    return f"{registry}/{repository}" if registry.startswith("oci://") else registry


def _refused(state: State, manifest: Manifest) -> dict[str, str]:
    """Name the first of what was asked for and must stay, each with its reason."""
    rows = stream_decisions(run_folder(state.root, manifest.run_id), Decision.HELD)
    found = (row for row in rows if row["collector"] == Judged.REFUSE)
    return {row["paths"][0]: row["held_by"] or row["reason"] for row in islice(found, _MOST_SHOWN)}
