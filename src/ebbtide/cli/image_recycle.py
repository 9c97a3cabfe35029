"""`ebb image recycle`: the recycle bin of a registry, by the commands and options that image users know."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.console import AsJson
from ebbtide.cli.recycle import OlderThan, Yes, empty_bin, open_bin, show_listing
from ebbtide.cli.restore import show_restored
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.engine.bin import RestoreChoice
from ebbtide.engine.restore import restore
from ebbtide.targets.kinds import kind_of

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The recycle bin of a registry.")

Where = Annotated[str, typer.Argument(help="oci://HOST[/REPO] or oci-layout:FOLDER[//REPO].")]


@app.command("list")
def list_bin(context: typer.Context, where: Where, as_json: AsJson = False) -> None:
    """List the images in the bin; exits 3 if an entry there cannot be understood."""
    show_listing(open_bin(context.obj, where), None, as_json=as_json)


@app.command("restore")
def restore_image(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="The image's old name: oci://HOST/REPO:TAG or @DIGEST.")],
    to: Annotated[str | None, typer.Option("--to", help="Give it this tag instead of its own.")] = None,
    all_of: Annotated[
        int | None, typer.Option("--all-of", help="Restore all that this run set aside; REF has no tag then.")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Leave its signatures in the bin.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring an image back, with its signatures; a tag that stands for another image now is left alone."""
    state: State = context.obj
    opened, items = kind_of(ref).open_bin(ref, state)
    if items and all_of is not None:
        raise BadInput(f"--all-of restores a whole run, and {ref} names an image", fix="leave out the tag")
    done = restore(opened, RestoreChoice(items=items, run=all_of, to=to, alone=alone))
    show_restored(opened, done, as_json=as_json)


@app.command("empty")
def empty(
    context: typer.Context,
    where: Where,
    older_than: OlderThan = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete images in the bin for good; exits 4 if some could not be deleted."""
    state: State = context.obj
    empty_bin(state, open_bin(state, where), where, older_than, None, yes=yes, as_json=as_json)
