"""`ebb image explain`: why an image and its names go or stay."""

from __future__ import annotations

from datetime import datetime

import typer

from ebbtide.cli.console import AsJson, Now, print_json, safe, say, table
from ebbtide.cli.image_marking import Ref
from ebbtide.cli.registry_plan import RunningImages, purge_order
from ebbtide.cli.state import State
from ebbtide.registry.client.address import registry_address
from ebbtide.registry.client.image_ref import image_ref
from ebbtide.registry.lines import plain_judgement
from ebbtide.registry.model import Judgement
from ebbtide.registry.purge.explaining import Explained, explain_image
from ebbtide.registry.purge.known import known
from ebbtide.report.format import human_bytes
from ebbtide.rules.instant import format_instant

app = typer.Typer()


@app.command()
def explain(
    context: typer.Context,
    ref: Ref,
    running: RunningImages = None,
    now: Now = None,
    as_json: AsJson = False,
) -> None:
    """Say why an image and its names go or stay, and which rules are about them, as of the last scan."""
    state: State = context.obj
    state.now_override = now or state.now_override
    _tell(explained_ref(state, ref, running), as_json=as_json)


def explain_in_registry(state: State, target: str, name: str, now: str | None, *, as_json: bool) -> None:
    """Explain the image of this name in a registry, for `ebb explain`."""
    state.now_override = now or state.now_override
    registry = registry_address(target)
    slashes = "/" if registry.startswith("oci://") else "//"
    _tell(explained_ref(state, f"{registry}{slashes}{name}", None), as_json=as_json)


def _tell(explained: Explained, *, as_json: bool) -> None:
    if as_json:
        plain = [plain_judgement(one) for one in explained.judgements]
        print_json({"judgements": plain, "rules": explained.rules})
        return
    show_explained(explained)


def explained_ref(state: State, ref: str, running: str | None) -> Explained:
    """Explain the image of a name."""
    image = image_ref(ref)
    shop = state.registry_shop(image.registry)
    found = known(state.image_records, state.root, shop.uid, image.registry)
    order = purge_order(state, image.registry, running)
    images = found.images(image.repository)
    return explain_image(images, image.name, image.digest, image.tag, order, state.clock())


def show_explained(explained: Explained) -> None:
    """Print what becomes of an image, name by name."""
    image = explained.image
    say(f"[bold]{safe(image.repository)}@{image.digest}[/bold]  {human_bytes(image.size or 0)}")
    rows = [
        (_name(one), one.decision, one.policy, _date(one.deadline), "; ".join(one.held_by))
        for one in explained.judgements
    ]
    table("", ("", "decision", "policy", "deadline", "held by"), rows)
    for rule in explained.rules:
        say(f"  {safe(rule)}")


def _name(judgement: Judgement) -> str:
    return f"tag {judgement.tag}" if judgement.tag else "manifest"


def _date(moment: datetime | None) -> str:
    return "" if moment is None else format_instant(moment)
