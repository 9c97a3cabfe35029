"""Groups of commands that import a command only when it is called: listing runs must not load Spark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from ebbtide.cli.state import State


Commands = Mapping[str, "tuple[str | Commands | Callable[[], Any], str]"]
"""Commands by name: their module in ebbtide.cli, a group, or a function that makes them; and their help."""


def lazy_group(commands: Commands, **settings: Any) -> typer.Typer:
    """
    Make a group of commands that are imported when they are called.

    A module has a Typer named `app`. If that has a command or group of the same name, it is the command;
    otherwise the app itself is.
    """

    class Group(TyperGroup):
        """Has only the names and the help of its commands until one is called."""

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Replace the stub of the called command, which only carries its help, by the real one."""
            name, stub, rest = super().resolve_command(ctx, args)
            if stub is None:
                return name, stub, rest
            command = _command(stub.name or "", *commands[stub.name or ""])
            # The state is made when the root's own callback runs, which is after this.
            _announce_first(command, lambda: ctx.find_root().obj)
            return name, command, rest

    app = typer.Typer(
        cls=Group, no_args_is_help=True, add_completion=False, rich_markup_mode=None, **settings
    )
    for name, (_, explained) in commands.items():
        app.command(name, help=explained)(lambda: None)
    return app


def _command(name: str, source: str | Commands | Callable[[], Any], explained: str) -> Any:
    """Return a command of a module, or a group of commands that are still to be imported."""
    if callable(source):
        return source()
    if not isinstance(source, str):
        group = lazy_group(source, help=explained)
        group.callback()(lambda: None)
        return typer.main.get_command(group)
    module = importlib.import_module(f"ebbtide.cli.{source}")
    # Help is plain text: as markup, the brackets of oci://HOST[/REPO] are a mistake.
    module.app.rich_markup_mode = None
    found = typer.main.get_command(module.app)
    return found.commands.get(name, found) if isinstance(found, TyperGroup) else found


def _announce_first(command: Any, state: Callable[[], State]) -> None:
    """Make a command, or all commands of a group, print the warnings about its clock first."""
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
