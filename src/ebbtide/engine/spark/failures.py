"""
Errors from Spark: an Ebbtide error of an executor is raised again, any other becomes one sentence.

Spark wraps a failure in layers ("An error occurred while calling o186.parquet"). The last layer is the cause:
the last line of a Python traceback, or the innermost exception of Java. The sentence has the cause and the
host; the whole text goes to a log file, which the error names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ebbtide.core import errors

_RAISED = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): (.*)")
_HOST = re.compile(r"\(TID \d+\) \(([^()\s]+) executor (\w+)\)")
_TRACEBACK = "Traceback (most recent call last):"
_IN_STARTING = re.compile(r"\(((?:\w+\.)*\w*Error: [^()]*)\)")
_JAVA_LINE = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error|Throwable)\b.*)$")
_LOST = re.compile(r"(ExecutorLostFailure \(.*)")
_MOST = 300
_LONGEST_CHAIN = 30


@dataclass(frozen=True)
class Cause:
    """Why a Spark job failed: in one line, and on which host if Spark says so."""

    line: str
    host: str = ""

    @property
    def sentence(self) -> str:
        """The cause, with the host if it is known."""
        return f"{self.line} (on host {self.host})" if self.host else self.line


class FailureLog:
    """Where the whole text of failures goes: the log of the session that runs in this process."""

    file: Path | None = None

    @classmethod
    def write(cls, text: str) -> Path | None:
        """Append a text without secrets and return the file; None if there is none."""
        if cls.file is None:
            return None
        with suppress(OSError):
            with cls.file.open("a", encoding="utf-8") as log:
                log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} failed:\n{without_secrets(text)}\n")
            return cls.file
        return None


@contextmanager
def own_errors() -> Iterator[None]:
    """Turn a failure of a Spark job into the error that caused it."""
    try:
        yield
    except (PySparkException, Py4JError) as failure:
        raise translated(failure) from failure


def translated(failure: BaseException) -> errors.EbbtideError:
    """Return the error that an executor raised, or an error with the root cause."""
    text = whole_text(failure)
    if (own := _own_error(text)) is not None:
        return own
    cause = root_cause(text)
    log = FailureLog.write(text)
    remedy = without_secrets(_remedy(text, cause.line))
    return errors.EbbtideError(
        f"a Spark job failed: {without_secrets(cause.sentence)}",
        why="its result is unknown",
        fix=f"{remedy}; the whole text is in {log}" if log else remedy,
    )


def whole_text(failure: BaseException) -> str:
    """Return the message of a failure and of every exception behind it."""
    parts = [str(failure)]
    java = failure.java_exception if isinstance(failure, Py4JJavaError) else getattr(failure, "_origin", None)
    with suppress(Py4JError, AttributeError, OSError):
        for _ in range(_LONGEST_CHAIN):
            if java is None:
                break
            parts.append(f"Caused by: {java.toString()}")
            java = java.getCause()
    return "\n".join(parts)


def root_cause(text: str) -> Cause:
    """Return the innermost cause: the last line of a Python traceback, or Java's last exception."""
    host = next((name for name, number in _HOST.findall(text) if number != "driver"), "")
    lines = [line.strip() for line in text.splitlines()]
    line = _of_python(text) or _of_lost(lines) or _of_java(lines)
    if not line:
        line = next((one for one in lines if one), "Spark said nothing")
    return Cause(line[:_MOST], host)


def _of_python(text: str) -> str:
    """Return the last line of the last traceback, or why Python did not start."""
    before, found, after = text.rpartition(_TRACEBACK)
    if not found:
        return _of_starting(text)
    # Frames are indented below the first line of a traceback; the exception comes after them.
    opening = before.rpartition("\n")[2]
    margin = len(opening) - len(opening.lstrip()) if not opening.strip() else 0
    for line in after.splitlines()[1:]:
        if line.strip() and len(line) - len(line.lstrip()) <= margin:
            return line.strip()
    return ""


def _of_starting(text: str) -> str:
    """Return why Python did not start, without its path."""
    said = text.rpartition("Error from python worker:")[2].partition("PYTHONPATH was:")
    if not said[1]:
        return ""
    if match := _IN_STARTING.search(said[0]):
        return match[1]
    lines = [line.strip() for line in said[0].splitlines() if line.strip()]
    return re.sub(r"^\S*python\S*: ", "", lines[-1]) if lines else ""


def _of_lost(lines: list[str]) -> str:
    return next((match[1] for line in lines if (match := _LOST.search(line))), "")


def _of_java(lines: list[str]) -> str:
    """Return the last Java exception that has a message."""
    found = [match[1] for line in lines if (match := _JAVA_LINE.match(line))]
    telling = [line for line in found if ": " in line]
    return (telling or found or [""])[-1]


def _own_error(text: str) -> errors.EbbtideError | None:
    for name, message in _RAISED.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, errors.EbbtideError):
            said, _, fix = message.strip().partition(". What to do: ")
            what, _, why = said.partition("; ")
            error = kind.__new__(kind)
            errors.EbbtideError.__init__(error, what, why=why, fix=fix)
            return error
    return None


def _remedy(text: str, line: str) -> str:
    """Return what to do; suggest --full only if a cache cannot be read."""
    if "No module named" in line or "ImportError" in line:
        return "install the same Ebbtide and Python on every host (PYSPARK_PYTHON names the Python)"
    if "ExecutorLostFailure" in line or "OutOfMemory" in line:
        return "look at the executor's own log, give it more memory ('spark.conf' in ebbtide.toml), run again"
    if re.search(r"/memory/[^/\s]+/[^/\s]+/(?:run-|references)", text):
        return "plan again with --full, which trusts no cache"
    if "FileNotFound" in line or "does not exist" in line:
        return "let nothing else change the state root while a run is at work, and run again"
    return "run again; if it fails in the same way, report it"


_NAMED_SECRET = re.compile(
    r"(?i)((?:password|passwd|secret|token|credential|authorization|signature|access_?key)[\w.-]*[\"']?"
    r"\s*[=:]\s*(?:bearer |basic |aws4-hmac-sha256 )?)([^\s,;\"'&]+)"
)
_IN_URL = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_SECRET_VARIABLE = re.compile(r"(?i)secret|password|token|access_key|credential")


def without_secrets(text: str) -> str:
    """Replace what looks like a secret, and the values of environment variables with names of secrets."""
    for name, value in os.environ.items():
        if _SECRET_VARIABLE.search(name) and len(value) > 5:
            text = text.replace(value, "***")
    return _IN_URL.sub(r"\1***@", _NAMED_SECRET.sub(r"\1***", text))
