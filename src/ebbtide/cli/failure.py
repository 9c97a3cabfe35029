"""How a failed or interrupted command ends: a message, or one JSON object after --json, and an exit code."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import NoReturn

import typer

from ebbtide.core.errors import EbbtideError, forget_interruptions, interruption_behind, record_interruption

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """
    A signal asked this process to stop; the exit code is the shell's, 128 plus the signal's number.

    It is a KeyboardInterrupt because py4j closes its connection for that one: another exception would leave
    an unread answer in it.
    """

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(signal.Signals(number).name)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Raise Interrupted in the block when a signal asks to stop; a signal that is ignored stays ignored."""
    # py4j logs the interruption with its traceback to the root logger, which prints it if it has no handler.
    logging.getLogger().addHandler(logging.NullHandler())
    forget_interruptions()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe(stopped: KeyboardInterrupt) -> str:
    """Return one line about what was recorded."""
    notes: list[str] = getattr(stopped, "__notes__", [])
    return "; ".join(["interrupted", *(notes or ["run the same command again to go on"])])


def exit_code(stopped: KeyboardInterrupt) -> int:
    """Return the exit code of a process that a signal ended, as shells report it."""
    return stopped.exit_code if isinstance(stopped, Interrupted) else 128 + signal.SIGINT


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    stopped = Interrupted(number)
    record_interruption(stopped)
    raise stopped


DETAILED = "--detailed-exitcode"
_ONLY_PLANS = (
    "--now is for planning only (ebb plan, simulate, explain, bucket forecast);"
    " commands that change or record something use the machine's clock"
)


@dataclass(frozen=True)
class Failure:
    """What happened, why it stopped the command, and what to do."""

    what: str
    why: str = ""
    fix: str = ""
    details: tuple[str, ...] = ()
    exit_code: int = 1
    label: str = "error: "
    """The beginning of the message; an interruption is not an error."""


def fail(error: BaseException, arguments: Sequence[str]) -> int:
    """Print on stderr why a command with these arguments failed, and return its exit code."""
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
    """Describe a command that was called wrongly, and name the help of the command that was recognised."""
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
