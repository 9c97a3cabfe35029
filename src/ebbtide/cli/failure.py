"""How a failed command ends: a message for people, or one JSON object after --json, and an exit code."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import typer

from ebbtide.cli.interruption import describe, exit_code
from ebbtide.core.errors import EbbtideError
from ebbtide.core.interruption import interruption_behind

DETAILED = "--detailed-exitcode"
_ONLY_PLANS = (
    "--now is for planning only (ebb plan, simulate, explain, bucket forecast);"
    " what changes or records something goes by the machine's clock"
)


@dataclass(frozen=True)
class Failure:
    """What was found, why that stopped the command, and what to do."""

    what: str
    why: str = ""
    fix: str = ""
    details: tuple[str, ...] = ()
    exit_code: int = 1
    label: str = "error: "
    """What stands before it in text; an interruption is no error."""


def fail(error: BaseException, arguments: Sequence[str]) -> int:
    """Print on stderr why a command with these arguments failed, and give its exit code."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    failure = _failure(error)
    if DETAILED in options and failure.exit_code < 128:
        usual = f"the exit code is {failure.exit_code} without {DETAILED}"
        failure = replace(failure, details=(*failure.details, usual), exit_code=1)
    if "--json" in options:
        found = asdict(failure)
        del found["label"]
        print(json.dumps({"error": found}, ensure_ascii=False), file=sys.stderr)
    else:
        _print(failure)
    return failure.exit_code


def _print(failure: Failure) -> None:
    print(f"{failure.label}{failure.what}", file=sys.stderr)
    if failure.why:
        print(f"  why: {failure.why}", file=sys.stderr)
    if failure.fix:
        print(f"  what to do: {failure.fix}", file=sys.stderr)
    for line in failure.details:
        print(f"  - {line}", file=sys.stderr)


def _failure(error: BaseException) -> Failure:
    if isinstance(error, EbbtideError):
        return Failure(error.what or str(error), error.why, error.fix, error.details, error.exit_code)
    if stopped := interruption_behind(error):
        return Failure(describe(stopped), exit_code=exit_code(stopped), label="")
    if isinstance(error, typer.Abort):
        return Failure("not confirmed; nothing was changed", label="")
    if isinstance(error, typer.TyperException):
        return _misuse(error)
    return _defect(error)


def _misuse(wrong: typer.TyperException) -> Failure:
    """Describe a command that was called wrongly, and name its own help, as far as it was recognised."""
    context = getattr(wrong, "ctx", None)
    command = "ebb" if context is None else str(context.command_path)
    words = str(wrong.format_message()) if hasattr(wrong, "format_message") else str(wrong)
    if type(wrong).__name__ == "NoArgsIsHelpError":
        # The library has printed the help; its message is empty.
        words = f"'{command}' needs an argument"
    if getattr(wrong, "option_name", "") == "--now":
        return Failure(words, why=_ONLY_PLANS, fix="leave it out", exit_code=2)
    return Failure(words, fix=f"see '{command} --help'", exit_code=2)


def _defect(defect: BaseException) -> Failure:
    if os.environ.get("EBBTIDE_TRACEBACK"):
        traceback.print_exception(defect)
    words = str(defect).splitlines() or [""]
    return Failure(
        f"an unexpected {type(defect).__name__}: {words[0]}",
        why="this is a defect of Ebbtide; it stopped where it was",
        fix="run again with EBBTIDE_TRACEBACK=1 and report what it prints",
    )
