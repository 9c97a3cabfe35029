"""`ebb image ls`: the images of a registry, as the last scan has seen them."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, safe, say
from ebbtide.cli.state import State
from ebbtide.core.instant import format_instant, format_second
from ebbtide.targets.oci.client.address import RegistryUrl, parse_address
from ebbtide.targets.oci.model import Tag
from ebbtide.targets.oci.purge.known import known
from ebbtide.targets.oci.purge.removed import Place, removed_images

app = typer.Typer(add_completion=False)


@app.command()
def ls(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER")],
    as_json: AsJson = False,
) -> None:
    """
    List tags with their policies and dates; with --json one a line.

    They are listed as the last scan saw them; what went since is marked.
    """
    state: State = context.obj
    shop = state.registry_shop(target)
    address = parse_address(target)
    found = known(state.image_records, state.root, shop.uid, target)
    removed = removed_images(found, state.root, state.ledger)
    shown = 0
    for repository, digest, tag in found.tags(address.repository if isinstance(address, RegistryUrl) else ""):
        shown += 1
        place = removed.place(repository, digest, tag.name)
        if as_json:
            print(json.dumps(_plain(repository, digest, tag) | {"state": str(place)}, ensure_ascii=False))
        else:
            gone = "" if place is Place.PRESENT else f"  [yellow]{place}[/yellow]"
            say(
                f"{safe(repository)}:[bold]{safe(tag.name)}[/bold]  {digest[:19]}{gone}  {safe(_terms(tag))}"
                f"  [dim]{_since(tag)}[/dim]"
            )
    if not as_json:
        say(f"[dim]{shown} tags, as seen at {format_second(found.scanned_at)}[/dim]")


def _plain(repository: str, digest: str, tag: Tag) -> dict[str, Any]:
    assigned = tag.assigned
    return {
        "repository": repository,
        "tag": tag.name,
        "digest": digest,
        "moved_at": None if tag.moved_at is None else format_instant(tag.moved_at),
        "seen_at": None if tag.seen_at is None else format_instant(tag.seen_at),
        "policy": assigned.policy,
        "expires_at": None if assigned.expires_at is None else format_instant(assigned.expires_at),
        "can_delete_prior": assigned.can_delete_prior,
        "recycle": assigned.recycle,
    }


def _terms(tag: Tag) -> str:
    assigned = tag.assigned
    if assigned.is_empty:
        return "follows its image"
    date = "never" if assigned.expires_at is None else format_second(assigned.expires_at)
    pin = ", pinned" if assigned.can_delete_prior is False else ""
    return f"{assigned.policy or '(no policy)'} until {date}{pin}"


def _since(tag: Tag) -> str:
    if tag.moved_at is not None:
        return f"moved {format_second(tag.moved_at)}"
    return "" if tag.seen_at is None else f"first seen {format_second(tag.seen_at)}"
