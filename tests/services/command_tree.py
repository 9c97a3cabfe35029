"""All commands of `ebb`, each with the words that call it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from ebbtide.cli.main import app


def all_commands() -> dict[str, Any]:
    """Give every command that does something, by its words without `ebb`."""
    return dict(_below(typer.main.get_command(app), []))


def _below(command: Any, words: list[str]) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, TyperGroup):
        yield " ".join(words), command
        return
    context = command.make_context("ebb", [], resilient_parsing=True)
    for name in command.commands:
        _, found, _ = command.resolve_command(context, [name])
        yield from _below(found, [*words, name])
