"""`ebb image show`: what is known of one image: its clocks, what was assigned, what the log says."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

import typer

from ebbtide.cli.console import AsJson, Now, print_json, safe, say
from ebbtide.cli.explain import show_explanation
from ebbtide.cli.image_explain import explained_image
from ebbtide.cli.image_log import plain_entry
from ebbtide.cli.image_marking import Ref
from ebbtide.cli.state import State, instant
from ebbtide.core.instant import format_second
from ebbtide.targets.oci.client.image_ref import image_ref
from ebbtide.targets.oci.model import Image
from ebbtide.targets.oci.purge.explanation import explanation, plain_answer
from ebbtide.targets.oci.purge.renewing import FOUND_RUNNING

app = typer.Typer(add_completion=False)
_MOST_ENTRIES = 10


@app.command()
def show(context: typer.Context, ref: Ref, now: Now = None, as_json: AsJson = False) -> None:
    """Show what is known of an image: its clocks, what was assigned to it, and what the log says of it."""
    state: State = context.obj
    explained = explained_image(state, ref, None, instant(now, state.clock))
    image = image_ref(ref)
    uid = state.registry_shop(image.registry).uid
    entries = list(islice(state.image_records.log(uid, subject=image.name), _MOST_ENTRIES))
    seen = next((entry.at for entry in entries if entry.what == FOUND_RUNNING), None)
    if as_json:
        plain = [plain_answer(one) for one in explained.answers]
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
    """Give what is known of an image as plain data."""
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
