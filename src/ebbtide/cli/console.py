"""Output: tables and lines for people, JSON for programs, progress on stderr, and confirmation."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ebbtide.config import NOW_VARIABLE
from ebbtide.core.errors import BadInput
from ebbtide.core.format import printable, shorten
from ebbtide.core.instant import format_instant
from ebbtide.engine.spark.progress import OnProgress, no_progress

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Now = Annotated[
    str | None,
    typer.Option("--now", envvar=NOW_VARIABLE, help="Decide as of this time (ISO 8601)."),
]
"""For commands that plan or answer; commands that change or record something use the machine's clock."""
_GAP = "  "
_NARROWEST = 8
_TIME = re.compile(r"\d{4}-\d\d-\d\d|never$|$")
PLAN_HELP = "A run's number, 'latest', or TARGET:latest."
Master = Annotated[str | None, typer.Option("--master", help="Spark master, e.g. spark://host:7077.")]


def out() -> Console:
    """Return the console for results; without a terminal there is no colour."""
    # Without emoji: `team/app:one: pinned` contains a tag, not an emoji.
    console = Console(highlight=False, emoji=False)
    return console if console.is_terminal else Console(highlight=False, emoji=False, no_color=True)


_marks: dict[str, Any] = {}
"""Keys that are added to every object that a command prints as JSON."""


def mark_output(*, rehearsal: bool) -> None:
    """Mark all JSON objects of this command as a rehearsal, or remove the mark."""
    _marks.clear()
    if rehearsal:
        _marks["rehearsal"] = True


def print_json(value: Any) -> None:
    """Print a value as JSON; in a rehearsal an object says so."""
    if isinstance(value, dict):
        value = value | _marks
    print(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def print_json_line(value: Any) -> None:
    """Print a value as JSON on one line and flush it, for programs that read a stream."""
    print(json.dumps(value, ensure_ascii=False, default=_plain), flush=True)


def say(text: str = "") -> None:
    """Print a line; markup is ours, so values must be escaped with :func:`safe`."""
    out().print(text, soft_wrap=True)


def say_next(command: str) -> None:
    """Print the next command on a line of its own, so that it can be pasted."""
    say(f"next: {safe(command)}")


def safe(text: object) -> str:
    """Make a value printable: no terminal controls, no markup."""
    return escape(printable(str(text)))


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()
) -> None:
    """
    Print a table; columns in `numbers` are right-aligned.

    On a terminal it fits: long names are cut in their middle, and an empty column is left out. Otherwise
    every cell is complete, and a number of bytes has no unit, because the title of its column names it.
    """
    console = out()
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if title:
        say(f"[bold]{safe(title)}[/bold]")
    if console.is_terminal:
        _print_fitted(columns, cells, numbers, console.width)
    else:
        whole = [[c.removesuffix(" B") if i in numbers else c for i, c in enumerate(row)] for row in cells]
        _print_lines([columns, *whole], _widths([columns, *whole]), numbers)
    say()


def _print_fitted(
    columns: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[int], room: int
) -> None:
    kept = [i for i in range(len(columns)) if not cells or any(row[i] for row in cells)]
    lines = [[row[i] for i in kept] for row in (columns, *cells)]
    right = [place for place, i in enumerate(kept) if i in numbers]
    times = [place for place, i in enumerate(kept) if cells and all(_TIME.match(row[i]) for row in cells)]
    _print_lines(lines, fitting(_widths(lines), room, [*right, *times]), right)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*lines, strict=True)]


def _print_lines(lines: Sequence[Sequence[str]], widths: Sequence[int], numbers: Sequence[int]) -> None:
    for line in lines:
        say(escape(_line(line, widths, numbers)))


def fitting(widths: Sequence[int], room: int, rigid: Sequence[int] = ()) -> list[int]:
    """
    Make columns narrower until they fit, the widest first; rigid ones stay as they are.

    >>> fitting([30, 60, 5], 80, rigid=[2])
    [30, 41, 5]
    """
    found = list(widths)
    elastic = [index for index in range(len(found)) if index not in rigid]
    while sum(found) + len(_GAP) * (len(found) - 1) > room and elastic:
        widest = max(elastic, key=lambda index: found[index])
        if found[widest] <= _NARROWEST:
            break
        found[widest] -= 1
    return found


class RowStream:
    """Rows that are printed one by one under a header: cut to fit a terminal, or complete between tabs."""

    def __init__(self, *columns: tuple[str, int], numbers: Sequence[int] = ()) -> None:
        """Take each column's name and its width on a terminal; -2 means two shares of the remaining width."""
        self._console, self._numbers = out(), numbers
        widths = [width for _, width in columns]
        taken = sum(width for width in widths if width > 0) + len(_GAP) * (len(widths) - 1)
        shares, left = -sum(width for width in widths if width < 0), self._console.width - taken
        self._widths = [width if width > 0 else max(1, left * -width // shares) for width in widths]
        self.row(*(name for name, _ in columns))

    def row(self, *cells: object) -> None:
        """Print one row."""
        texts = [printable(str(cell)) for cell in cells]
        if self._console.is_terminal:
            say(escape(_line(texts, self._widths, self._numbers)))
        else:
            print("\t".join(t.removesuffix(" B") if i in self._numbers else t for i, t in enumerate(texts)))


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[int]) -> str:
    fitted = [cell if index in numbers else shorten(cell, widths[index]) for index, cell in enumerate(cells)]
    padded = [
        " " * (width - cell_len(cell)) + cell if index in numbers else cell + " " * (width - cell_len(cell))
        for index, (cell, width) in enumerate(zip(fitted, widths, strict=True))
    ]
    return _GAP.join(padded).rstrip()


def confirm(
    question: str,
    *,
    why: str,
    yes: bool,
    what: str = "this has to be confirmed",
    fix: str = "add --yes if this is meant",
    on_stderr: bool = False,
) -> None:
    """Ask before a change, unless `yes` is given; if standard input is not a terminal, raise BadInput."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(what, why=f"{why}; standard input is not a terminal", fix=fix)
    typer.confirm(question, abort=True, err=on_stderr)


@contextmanager
def progress() -> Iterator[OnProgress]:
    """Show bars on stderr from the first report on; without a terminal show nothing."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=Console(stderr=True), transient=True)
    known: dict[str, TaskID] = {}

    def report(step: str, done: int, total: int) -> None:
        # Not before: stderr belongs to Spark while it starts.
        bars.start()
        if step not in known:
            known[step] = bars.add_task(step, total=None)
        bars.update(known[step], completed=done, total=total or None)

    try:
        yield report
    finally:
        bars.stop()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    return str(value)
