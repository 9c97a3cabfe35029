"""The options of commands that kinds of targets contribute."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Annotated, Any

import typer

from ebbtide.core.errors import BadInput
from ebbtide.targets.kinds import all_kinds, all_options
from ebbtide.targets.target import Option, Options

Command = Callable[..., None]
GIVEN = "given"
"""The parameter of a command that gets the targets' options."""


def target_help() -> str:
    """Return how targets are written."""
    usages = [kind.usage for kind in all_kinds()]
    return f"{', '.join(usages[:-1])} or {usages[-1]}." if len(usages) > 1 else "".join(usages)


def with_target_options(*, explains: bool = False) -> Callable[[Command], Command]:
    """
    Add the options of all kinds of targets to a command, or those that `ebb explain` understands.

    The command receives the values that were given as one mapping.
    """
    return with_options(all_options(explains=explains))


def with_options(options: Sequence[Option]) -> Callable[[Command], Command]:
    """Add options to a command, which receives their values as one mapping."""
    return partial(_extended, options=options)


def _extended(command: Command, options: Sequence[Option]) -> Command:
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def call(*values: Any, **named: Any) -> None:
        found = {option.name: named.pop(option.name) for option in options}
        command(*values, **named, **{GIVEN: _checked(options, found)})

    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in signature.parameters.items()
        if name != GIVEN
    ]
    parameters = [*own, *(_parameter(option) for option in options)]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # as inspect reads it
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameter(option: Option) -> inspect.Parameter:
    choices = f"[{'|'.join(option.choices)}]" if option.choices else None
    metavar = option.metavar or choices
    is_argument = not option.flags[0].startswith("-")
    declared = (
        typer.Argument(help=option.help, metavar=metavar)
        if is_argument
        else typer.Option(*option.flags, help=option.help, metavar=metavar)
    )
    kind: Any = bool if option.is_flag else str if option.required else str | None
    default: Any = inspect.Parameter.empty if option.required else False if option.is_flag else option.default
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared]
    )


def _checked(options: Sequence[Option], found: Options) -> Options:
    """Return the options that were given; refuse values that are not among the choices."""
    for option in options:
        value = found[option.name]
        if option.choices and value is not None and value not in option.choices:
            raise BadInput(
                f"{option.flags[0]} is {value!r}", fix=f"choose one of {', '.join(option.choices)}"
            )
    return {name: value for name, value in found.items() if value not in (None, False)}
