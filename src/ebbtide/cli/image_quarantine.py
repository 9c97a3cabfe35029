"""`ebb image quarantine`: how far the check of an image has come."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson
from ebbtide.cli.image_marking import Ref, change_image
from ebbtide.core.errors import BadInput
from ebbtide.targets.oci.model import QuarantineState
from ebbtide.targets.oci.records.marking import quarantining

app = typer.Typer(add_completion=False)


@app.command()
def quarantine(
    context: typer.Context,
    ref: Ref,
    pending: Annotated[bool, typer.Option("--pending", help="It waits for its check: it is held.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="It failed: Quarantine Failed counts.")] = False,
    passed: Annotated[bool, typer.Option("--passed", help="It passed: what it had comes back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Mark the manifest that a name stands for: it waits for its check, failed it or passed it."""
    if [pending, failed, passed].count(True) != 1:
        raise BadInput("how far the check has come is not clear", fix="give --pending, --failed or --passed")
    state = QuarantineState.PENDING if pending else QuarantineState.FAILED if failed else None
    what = f"quarantine {state or 'passed'}"
    change_image(context.obj, ref, quarantining(state), what, as_json=as_json, manifest=True)
