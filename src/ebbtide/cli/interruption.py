"""Signals that ask a command to stop: they raise, so that what is under way is recorded on the way out."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ebbtide.core.interruption import forget_interruptions, record_interruption

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
    """Say in one line what was recorded."""
    notes: list[str] = getattr(stopped, "__notes__", [])
    return "; ".join(["interrupted", *(notes or ["run the same command again to go on"])])


def exit_code(stopped: KeyboardInterrupt) -> int:
    """Give the exit code that shells give a process that a signal ended."""
    return stopped.exit_code if isinstance(stopped, Interrupted) else 128 + signal.SIGINT


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    stopped = Interrupted(number)
    record_interruption(stopped)
    raise stopped
