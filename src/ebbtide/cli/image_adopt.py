"""`ebb image adopt`: make a registry known under its name, or as another one than was recorded there."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say
from ebbtide.cli.state import State
from ebbtide.state.actors import current_user

app = typer.Typer(add_completion=False)


@app.command()
def adopt(
    context: typer.Context,
    registry: Annotated[
        str, typer.Argument(help="The registry: oci://HOST or oci-layout:FOLDER.", metavar="REGISTRY")
    ],
    as_new: Annotated[
        bool,
        typer.Option(
            "--as-new", help="It is another registry than was recorded there, or a copy: begin new records."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """
    Make a registry known: it gets its marker, and its name is recorded.

    Needed where other registries have roles. What its policies do is confirmed by its first plan.
    """
    from ebbtide.targets.oci.purge.identity import adopt_as_new  # noqa: PLC0415 (it loads much)

    state: State = context.obj
    shop = state.registry_shop(registry)
    known = shop.records.identity(shop.name) is not None
    if as_new:
        adopt_as_new(shop, current_user())
    else:
        shop.records.check_may_adopt(shop.name, shop.uid, current_user())
        shop = state.identified_registry(registry, "adopt the registry", adopt=True)
    found = shop.records.identity(shop.name)
    marker = found.marker if found is not None else ""
    if as_json:
        print_json({"registry": shop.name, "marker": marker, "was_known": known})
        return
    word = "is known already" if known and not as_new else "was adopted"
    say(f"{safe(shop.name)} {word}" + (f"; its marker is {marker}" if marker else ", by its name alone"))
