"""Groups of commands that import a command only when it is called: nobody waits for Spark to read a list."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from ebbtide.cli.state import State


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
            # Help is plain text: as markup, the brackets of oci://HOST[/REPO] are a mistake.
            module.app.rich_markup_mode = None
            command = typer.main.get_command(module.app)
            # The state is made when the root's own callback runs, which is after this.
            _announce_first(command, lambda: ctx.find_root().obj)
            return name, command, rest

    app = typer.Typer(
        cls=Group, no_args_is_help=True, add_completion=False, rich_markup_mode=None, **settings
    )
    for name, (_, explained) in commands.items():
        app.command(name, help=explained)(lambda: None)
    return app


def _announce_first(command: Any, state: Callable[[], State]) -> None:
    """Let a command, or all of a group, say first what there is to know of its clock."""
    if isinstance(command, TyperGroup):
        for one in command.commands.values():
            _announce_first(one, state)
    elif command.callback is not None:
        takes_now = any(param.name == "now" for param in command.params)
        command.callback = _announced(command.callback, state, takes_now=takes_now)


def _announced(
    callback: Callable[..., Any], state: Callable[[], State], *, takes_now: bool
) -> Callable[..., Any]:
    @wraps(callback)
    def call(*values: Any, **named: Any) -> Any:
        state().announce(takes_now=takes_now)
        return callback(*values, **named)

    return call
