"""`ebb init`: set up a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, say
from ebbtide.config import FILE
from ebbtide.errors import AlreadyExists, BadInput

app = typer.Typer()

TEMPLATE = """# Ebbtide's configuration. Every setting has a default; environment variables such as
# EBBTIDE_SPARK__MASTER override what stands here.

root = ".ebbtide"                # plans, outcomes, the default databases; on a cluster a shared path

[spark]
# master = "spark://host:7077"   # the default, local[*], runs on this machine
# driver_memory = "2g"

[breaker]
max_delete_fraction = 0.5        # a plan above this needs --override-breaker
# max_delete_bytes = 1_000_000_000_000

[deletes]
# rate_per_prefix = 3500         # objects a second and prefix; the default for S3

[uncommitted]
# grace_hours = 24               # how old an unreferenced object must be before it can go
# clean_every = 7                # one run in so many lists everything

[registry]
# running = "pods.json"          # where every purge of a registry learns what runs; it must be there
# oldest_scan_hours = 24         # what ran longer ago says nothing about what runs now

[store]
# endpoint = "http://127.0.0.1:8333"
# region = "us-east-1"
"""


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to set up.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Set up a folder: write ebbtide.toml with every setting explained, and the state root."""
    file = folder / FILE
    if file.exists():
        raise AlreadyExists(f"{file} is already there", fix="edit it, or choose another folder")
    try:
        (folder / ".ebbtide").mkdir(parents=True, exist_ok=True)
        file.write_text(TEMPLATE, encoding="utf-8")
    except OSError as broken:
        raise BadInput(f"{folder} cannot be written: {broken.strerror}", fix="choose another") from None
    if as_json:
        print_json({"config": str(file), "root": str(folder / ".ebbtide")})
        return
    say(f"wrote {file}\nnext: ebb lake create REPO FOLDER_OR_S3_URL")
