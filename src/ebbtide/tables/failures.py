"""Errors from Spark: what our own code raised on an executor comes back as itself, the rest as a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ebbtide import errors

_RAISED = re.compile(r"ebbtide\.errors\.(\w+): (.*)")


@contextmanager
def own_errors() -> Iterator[None]:
    """Turn a failure of a Spark job into the error that caused it."""
    try:
        yield
    except (PySparkException, Py4JError) as failure:
        raise translated(failure) from failure


def translated(failure: BaseException) -> errors.EbbtideError:
    """Find the error that an executor raised in what Spark says of it."""
    text = str(failure)
    for name, message in _RAISED.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, errors.EbbtideError):
            text, _, fix = message.strip().partition(". What to do: ")
            what, _, why = text.partition("; ")
            error = kind.__new__(kind)
            errors.EbbtideError.__init__(error, what, why=why, fix=fix)
            return error
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(failure).__name__)
    return errors.EbbtideError(
        f"a Spark job failed: {first[:500]}",
        why="what it was computing is unknown",
        fix="see spark.log under the state root; a plan may succeed with --full, which trusts no cache",
    )
