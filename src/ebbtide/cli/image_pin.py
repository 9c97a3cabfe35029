"""`ebb image pin`: an image must not go before a date, or never."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson
from ebbtide.cli.image_marking import Ref, change_image
from ebbtide.core.instant import NEVER, format_second, parse_instant
from ebbtide.targets.oci.records.marking import pinning

app = typer.Typer(add_completion=False)


@app.command()
def pin(
    context: typer.Context,
    ref: Ref,
    until: Annotated[
        str | None, typer.Option(help="Until this time; without it the image is never deleted.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pin an image: until the date, or for ever, it refuses to be deleted."""
    date = parse_instant(until) if until else NEVER
    what = "pin for ever" if date == NEVER else f"pin until {format_second(date)}"
    change_image(context.obj, ref, pinning(date), what, as_json=as_json)
