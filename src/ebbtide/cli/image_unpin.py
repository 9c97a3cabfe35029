"""`ebb image unpin`: an image may be deleted again, and its policy counts from now."""

from __future__ import annotations

import typer

from ebbtide.cli.console import AsJson
from ebbtide.cli.image_marking import Ref, change_image
from ebbtide.targets.oci.records.marking import unpinning

app = typer.Typer(add_completion=False)


@app.command()
def unpin(context: typer.Context, ref: Ref, as_json: AsJson = False) -> None:
    """Take a pin away. The policy is assigned again from now, so that nothing goes at once."""
    change_image(context.obj, ref, unpinning, "unpin", as_json=as_json)
