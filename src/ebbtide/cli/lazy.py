"""Groups of commands that import a command only when it is called: nobody waits for Spark to read a list."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup


def lazy_group(commands: Mapping[str, tuple[str, str]], **settings: Any) -> typer.Typer:
    """Make a group of commands, each by the module in ebbtide.cli that has its `app`, and its help."""

    class Group(TyperGroup):
        """Knows the names and the help of its commands, and no more until one is called."""

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Replace the stub of the called command, which only carries its help, by the real one."""
            name, stub, rest = super().resolve_command(ctx, args)
            if stub is None:
                return name, stub, rest
            module = importlib.import_module(f"ebbtide.cli.{commands[stub.name or ''][0]}")
            return name, typer.main.get_command(module.app), rest

    app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, **settings)
    for name, (_, explained) in commands.items():
        app.command(name, help=explained)(lambda: None)
    return app
