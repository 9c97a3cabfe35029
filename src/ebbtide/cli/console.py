"""Printing: tables and lines for people, JSON for programs, progress on stderr; no colour off a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from ebbtide.report.format import printable
from ebbtide.rules.instant import format_instant
from ebbtide.tables.progress import OnProgress, no_progress

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Now = Annotated[str | None, typer.Option("--now", help="Take it to be this time (ISO 8601).")]
Master = Annotated[str | None, typer.Option("--master", help="Spark master, e.g. spark://host:7077.")]


def out() -> Console:
    """Give the console for results; off a terminal lines are as long as they need to be."""
    # Without emoji: `team/app:one: pinned` has a tag in it, and no picture.
    console = Console(highlight=False, emoji=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, emoji=False, width=240, no_color=True)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def say(text: str = "") -> None:
    """Print a line; markup is ours, so values must be escaped with :func:`safe`."""
    out().print(text, soft_wrap=True)


def safe(text: object) -> str:
    """Make a value printable: no terminal controls, no markup."""
    return escape(printable(str(text)))


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()
) -> None:
    """Print a table; columns in `numbers` are right-aligned."""
    grid = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for index, name in enumerate(columns):
        grid.add_column(name, justify="right" if index in numbers else "left", overflow="fold", style=None)
    for row in rows:
        grid.add_row(*(safe(cell) for cell in row))
    out().print(grid)
    out().print()


@contextmanager
def progress() -> Iterator[OnProgress]:
    """Show bars on stderr while Spark works; off a terminal show nothing."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        known: dict[str, TaskID] = {}

        def report(step: str, done: int, total: int) -> None:
            if step not in known:
                known[step] = bars.add_task(step, total=None)
            bars.update(known[step], completed=done, total=total or None)

        yield report


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    return str(value)
