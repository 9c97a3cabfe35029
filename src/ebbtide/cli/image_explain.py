"""`ebb image explain`: why an image and its names go or stay."""

from __future__ import annotations

from datetime import datetime

import typer

from ebbtide.cli.console import AsJson, Now, print_json
from ebbtide.cli.explain import show_explanation
from ebbtide.cli.image_marking import Ref
from ebbtide.cli.image_plan import RunningImages
from ebbtide.cli.state import State, instant
from ebbtide.targets.oci.client.image_ref import image_ref
from ebbtide.targets.oci.purge.explaining import Explained
from ebbtide.targets.oci.purge.explanation import explained_ref, explanation

app = typer.Typer(add_completion=False)


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
    found = explanation(explained_image(state, ref, running, instant(now, state.clock)))
    if as_json:
        print_json(found.plain)
    else:
        show_explanation(found)


def explained_image(state: State, ref: str, running: str | None, now: datetime) -> Explained:
    """Explain the image of a whole reference."""
    image = image_ref(ref)
    registry = state.registry(image.registry)
    return explained_ref(registry.shop, image, registry.order(now, running), now)
