"""`ebb lake delete`: forget a repository; its objects are left to a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ebbtide.cli.console import AsJson, print_json, safe, say, say_next, table
from ebbtide.cli.state import State
from ebbtide.core.errors import BadInput
from ebbtide.core.instant import format_second
from ebbtide.targets.lake.catalog.model import Repository, RetiredRepository


def delete(
    context: typer.Context,
    repo: Annotated[str, typer.Argument(help="The repository.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a repository: its branches, tags, commits and rules. Its objects wait for a run."""
    state: State = context.obj
    _confirm(state.catalog.repository(repo), yes=yes)
    gone = state.catalog.delete_repository(repo)
    if as_json:
        print_json(gone)
        return
    say(f"deleted {safe(gone.name)}; its objects are still at {safe(gone.namespace)}")
    say_next(state.command("plan", f"lake:{gone.name}", "--deleted"))


def show_deleted(found: Sequence[RetiredRepository], *, as_json: bool) -> None:
    """List the repositories that were deleted and are not collected yet."""
    if as_json:
        print_json(found)
    else:
        rows = [(gone.name, gone.namespace, format_second(gone.deleted)) for gone in found]
        table("Deleted repositories", ("name", "namespace", "deleted"), rows)


def _confirm(repo: Repository, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(
            f"the deletion of {repo.name} has to be confirmed",
            why="its branches, tags and commits are forgotten for good, and standard input is no terminal",
            fix="delete it with --yes",
        )
    typer.confirm(f"Forget all branches, tags and commits of {repo.name} for good?", abort=True)
