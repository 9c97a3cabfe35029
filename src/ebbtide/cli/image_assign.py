"""`ebb image assign`: copy a policy's values onto a tag or manifest."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson
from ebbtide.cli.image_marking import Ref, change_image
from ebbtide.core.instant import format_second, parse_instant
from ebbtide.targets.oci.records.marking import assigning

app = typer.Typer(add_completion=False)


@app.command()
def assign(
    context: typer.Context,
    ref: Ref,
    policy: Annotated[str, typer.Argument(help="The policy; see 'ebb image policy ls'.")],
    until: Annotated[
        str | None, typer.Option(help="Expire at this time, and not when the policy says.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Assign a policy, or assign it again: its values as they are now, its date counted from now."""
    date = parse_instant(until) if until else None
    what = f"assign {policy}" + (f" until {format_second(date)}" if date else "")
    change_image(context.obj, ref, assigning(policy, date), what, as_json=as_json)
