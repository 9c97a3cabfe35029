"""Signals that ask a process to stop, found behind the errors that they cause."""

from __future__ import annotations


def interruption_behind(error: BaseException) -> KeyboardInterrupt | None:
    """
    Return the interruption that an error comes from; None if it comes from none.

    A signal that ends us may have ended Spark's JVM too, and then whatever is cleaned up on the way out fails
    with an error of the connection.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KeyboardInterrupt):
            return found
        found = found.__context__
    return None
