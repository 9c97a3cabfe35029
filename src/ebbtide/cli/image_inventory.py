"""`ebb image ls`, `show`, `explain` and `listen`: what is known about images. None of them starts Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, Now, print_json, print_json_line, safe, say
from ebbtide.cli.explain import show_explanation
from ebbtide.cli.image_access import plain_entry
from ebbtide.cli.image_marks import Ref
from ebbtide.cli.registry import open_registry
from ebbtide.cli.state import State, instant
from ebbtide.core.instant import format_instant, format_second
from ebbtide.targets.oci.client.address import RegistryUrl, image_ref, parse_address
from ebbtide.targets.oci.inventory.events import Event as Told
from ebbtide.targets.oci.inventory.events import Listener
from ebbtide.targets.oci.kind import image_records, registry_context
from ebbtide.targets.oci.model import Image, Tag
from ebbtide.targets.oci.purge.explanation import ExplainedImage, explained_ref, explanation, plain_item
from ebbtide.targets.oci.purge.last_scan import ImagePlace, last_scan, removed_images
from ebbtide.targets.oci.purge.marks import FOUND_RUNNING
from ebbtide.targets.oci.records.model import Action, Event

app = typer.Typer(add_completion=False)

RunningImages = Annotated[
    str | None,
    typer.Option(
        "--running",
        help="What runs: a file (kubectl get pods -A -o json, or a list) or a cluster, https://HOST (oci:).",
    ),
]


@app.command()
def ls(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER")],
    as_json: AsJson = False,
) -> None:
    """
    List tags with their policies and dates; with --json one per line.

    They are listed as of the last scan; images that were removed since are marked.
    """
    state: State = context.obj
    target_context = registry_context(state, target)
    address = parse_address(target)
    found = last_scan(image_records(state), state.root, target_context.uid, target)
    removed = removed_images(found, state.root, state.ledger)
    shown = 0
    for repository, digest, tag in found.tags(address.repository if isinstance(address, RegistryUrl) else ""):
        shown += 1
        place = removed.place(repository, digest, tag.name)
        if as_json:
            print(json.dumps(_plain(repository, digest, tag) | {"state": str(place)}, ensure_ascii=False))
        else:
            gone = "" if place is ImagePlace.PRESENT else f"  [yellow]{place}[/yellow]"
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


@app.command()
def explain(
    context: typer.Context,
    ref: Ref,
    running: RunningImages = None,
    now: Now = None,
    as_json: AsJson = False,
) -> None:
    """Explain why an image and its names are kept or deleted, and by which rules, as of the last scan."""
    state: State = context.obj
    found = explanation(explained_image(state, ref, running, instant(now, state.clock)))
    if as_json:
        print_json(found.plain)
    else:
        show_explanation(found)


def explained_image(state: State, ref: str, running: str | None, now: datetime) -> ExplainedImage:
    """Explain the image of a full reference."""
    image = image_ref(ref)
    registry = open_registry(state, image.registry)
    return explained_ref(registry.context, image, registry.purge_policy(now, running), now)


_MOST_ENTRIES = 10


@app.command()
def show(context: typer.Context, ref: Ref, now: Now = None, as_json: AsJson = False) -> None:
    """Show what is known about an image: its times, its assigned policy, and its log entries."""
    state: State = context.obj
    explained = explained_image(state, ref, None, instant(now, state.clock))
    image = image_ref(ref)
    uid = registry_context(state, image.registry).uid
    entries = list(islice(image_records(state).log(uid, subject=image.name), _MOST_ENTRIES))
    seen = next((entry.at for entry in entries if entry.what == FOUND_RUNNING), None)
    if as_json:
        plain = [plain_item(one) for one in explained.items]
        log = [plain_entry(entry) for entry in entries]
        known = plain_image(explained.image) | {"last_seen_running": seen}
        print_json({**known, "judgements": plain, "log": log})
        return
    for name, value in plain_image(explained.image).items():
        if value not in (None, [], ""):
            text = format_second(value) if isinstance(value, datetime) else value
            say(f"  {name.replace('_', ' ')}: {safe(text)}")
    if seen is not None:
        say(f"  last seen running: {format_second(seen)}")
    show_explanation(explanation(explained))
    for entry in entries:
        refused = f" [yellow]refused: {safe(entry.refused)}[/yellow]" if entry.refused else ""
        say(f"  [dim]{format_second(entry.at)}[/dim] {safe(entry.by)}: {safe(entry.what)}{refused}")


def plain_image(image: Image) -> dict[str, Any]:
    """Return what is known about an image as plain data."""
    return {
        "repository": image.repository,
        "digest": image.digest,
        "media_type": image.media_type,
        "size": image.size,
        "tags": [tag.name for tag in image.tags],
        "children": list(image.children),
        "subject": image.subject,
        "pushed_at": image.pushed_at,
        "seen_at": image.seen_at,
        "untagged_since": image.untagged_since,
        "quarantine": None if image.quarantine is None else str(image.quarantine.state),
        "quarantine_since": None if image.quarantine is None else image.quarantine.since,
    }


TOKEN = "EBBTIDE_REGISTRY_LISTEN_TOKEN"  # noqa: S105 - the name of a variable, not a secret


@app.command()
def listen(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="The registry that notifies: oci://HOST")],
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 5060,
    as_json: AsJson = False,
) -> None:
    """
    Listen for notifications until interrupted; enter the address in the registry's configuration.

    With EBBTIDE_REGISTRY_LISTEN_TOKEN set, only requests with this token are accepted.
    With --json the address, every event and every refusal is one line.
    """
    state: State = context.obj
    target_context = registry_context(state, target)

    def store(events: Sequence[Told]) -> None:
        target_context.records.add_events(
            target_context.uid,
            [Event(Action(one.action), one.repository, one.tag, one.digest, one.at) for one in events],
        )
        if as_json:
            for event in events:
                print_json_line({"event": event})

    def complain(words: str) -> None:
        if as_json:
            print_json_line({"refused": words})
        else:
            say(f"[yellow]not taken:[/yellow] {safe(words)}")

    listener = Listener(
        store,
        host=host,
        port=port,
        token=os.environ.get(TOKEN, ""),
        on_trouble=complain,
    )
    if as_json:
        print_json_line({"listening": listener.url, "target": target})
    else:
        say(f"listening at {safe(listener.url)} for {safe(target)}; end with Ctrl-C")
    try:
        listener.serve()
    finally:
        listener.close()
