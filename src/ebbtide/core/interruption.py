"""Signals that ask a process to stop, found behind the errors that they cause."""

from __future__ import annotations

_received: list[KeyboardInterrupt] = []
"""The signals that the current command received, in order."""


def record_interruption(stopped: KeyboardInterrupt) -> None:
    """Remember that a signal asked this process to stop, in case the exception for it gets lost."""
    _received.append(stopped)


def forget_interruptions() -> None:
    """Forget the signals of an earlier command in this process."""
    _received.clear()


def interruption_behind(error: BaseException) -> KeyboardInterrupt | None:
    """
    Return the interruption that caused an error, or None if there was none.

    The signal that stops us may have stopped Spark's JVM too, and then any cleanup on the way out fails with
    a connection error. Python also drops an exception that a signal handler raises inside a finalizer; the
    command then continues without a JVM until something fails. So received signals are remembered as well.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KeyboardInterrupt):
            return found
        found = found.__context__
    return _received[-1] if _received else None
