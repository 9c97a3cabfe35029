"""`ebb simulate`: what a policy would do to a small world written by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ebbtide.cli.console import AsJson, Master, Now, print_json, table
from ebbtide.cli.state import State, instant
from ebbtide.errors import BadInput
from ebbtide.lake.simulation import simulate
from ebbtide.lake.world_document import world_document
from ebbtide.rules.documents import format_of, parse_document
from ebbtide.tables.failures import own_errors

app = typer.Typer(no_args_is_help=True, help="Run the pipeline on a small world written by hand.")


@app.callback()
def _group() -> None:
    """Simulate one of the front doors."""


@app.command("lake")
def lake(
    context: typer.Context,
    world: Annotated[str, typer.Argument(help="A world in JSON, YAML or TOML; '-' reads standard input.")],
    now: Now = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Run the lifecycle pipeline on a world: its policy table, commits, and what goes and stays."""
    state: State = context.obj
    document = world_document(read_document(world))
    moment = instant(now, state.clock)
    with state.spark(master) as spark, own_errors():
        plain = simulate(spark, [(document, moment)])[0].to_plain()
    if as_json:
        print_json(plain)
    else:
        _show(plain)


def read_document(name: str) -> Any:
    """Read a JSON, YAML or TOML file, or JSON from standard input."""
    if name == "-":
        return parse_document(sys.stdin.read(), "json", name="standard input")
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as broken:
        raise BadInput(f"{name} cannot be read: {broken.strerror}", fix="check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not text", fix="save it as UTF-8") from None
    return parse_document(text, format_of(name), name=name)


def _show(plain: dict[str, Any]) -> None:
    for title, key in (
        ("Policy table", "policy_table"),
        ("Current rules", "current_rules"),
        ("Potential commits", "potential_commits"),
        ("Due", "due"),
        ("Held", "held"),
    ):
        rows = plain[key]
        columns = list(rows[0]) if rows else ["(nothing)"]
        table(title, columns, [[_cell(row[column]) for column in columns] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else str(value)
