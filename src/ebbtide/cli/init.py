"""`ebb init`: set up a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, say, say_next
from ebbtide.cli.settings_text import toml_text
from ebbtide.config import FILE
from ebbtide.core.errors import AlreadyExists, BadInput
from ebbtide.core.instant import system_clock
from ebbtide.engine.rehearsal import begin_rehearsal, find_rehearsal

app = typer.Typer(add_completion=False)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to set up.")] = Path(),
    rehearsal: Annotated[
        bool,
        typer.Option(
            "--rehearsal", help="Make a root to learn with: local data only, and a clock to advance."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set up a folder: write ebbtide.toml with every setting explained, and the state root."""
    file, root = folder / FILE, folder / ".ebbtide"
    if file.exists():
        raise AlreadyExists(f"{file} is already there", fix="edit it, or choose another folder")
    if not rehearsal and find_rehearsal(root) is not None:
        raise AlreadyExists(
            f"{root} is a rehearsal, and it cannot become a real root",
            why="its records are not of real runs",
            fix="set up another folder, or add --rehearsal",
        )
    try:
        if rehearsal:
            begin_rehearsal(root, system_clock())
        root.mkdir(parents=True, exist_ok=True)
        file.write_text(toml_text(), encoding="utf-8")
    except OSError as broken:
        raise BadInput(f"{folder} cannot be written: {broken.strerror}", fix="choose another") from None
    if as_json:
        print_json({"config": str(file), "root": str(root), "rehearsal": rehearsal})
        return
    if rehearsal:
        say("this is a rehearsal: it reaches only local data, and 'ebb rehearsal advance 40d' lets time pass")
    say(f"wrote {file}")
    say_next("ebb lake create my-lake ./my-lake")
