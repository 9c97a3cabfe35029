"""`ebb bucket where`: where the versions of a key went."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say
from ebbtide.cli.state import State
from ebbtide.core.errors import NotFound
from ebbtide.core.format import human_bytes
from ebbtide.core.instant import format_second, parse_instant
from ebbtide.targets.s3.names import bucket_name
from ebbtide.targets.s3.transition.moves import Move, Moves, Stage

_SHOWN = ("version", "location", "url", "stage", "size", "etag", "modified", "at", "rules", "run")

app = typer.Typer(add_completion=False)


@app.command()
def where(
    context: typer.Context,
    bucket: Annotated[str, typer.Argument(help="The bucket, as BUCKET or s3://BUCKET.")],
    key: Annotated[str, typer.Argument(help="The key that the object had there.")],
    as_json: AsJson = False,
) -> None:
    """Say to which location the versions of a key were moved, when, and by which rule."""
    state: State = context.obj
    name = bucket_name(bucket)
    found = Moves(state.root).where(name, key)
    if not found:
        raise NotFound(
            f"nothing is known of a move of {key!r} out of {name}",
            why="no run under this state root moved it to a location",
            fix="check the spelling; an object that was not moved is still in its bucket",
        )
    if as_json:
        print_json([_row(move) for move in found])
        return
    for move in found:
        _show(move)


def _row(move: Move) -> dict[str, Any]:
    return {"bucket": move.bucket, "key": move.key, **{name: getattr(move, name) for name in _SHOWN}}


def _show(move: Move) -> None:
    """Print one move."""
    say(f"[bold]{safe(move.url)}[/bold]  {human_bytes(move.size)}")
    rules = ", ".join(move.rules) or "no named rule"
    done = "moved" if move.stage is Stage.MOVED else "copied"
    run = "" if move.run is None else f" (run {move.run})"
    say(f"  location {safe(move.location)}: {done} at {_second(move.at)} by {safe(rules)}{run}")
    say(f"  version {safe(move.version)}, written {_second(move.modified)}")
    if move.stage is not Stage.MOVED:
        say("  the original may still be in the bucket: the run that copied it has not finished")


def _second(recorded: str) -> str:
    return format_second(parse_instant(recorded))
