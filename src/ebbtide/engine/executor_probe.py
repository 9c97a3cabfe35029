"""
The probe of an executor: its identity, its Python and build, and whether it shares the state root.

This module is sent to the executors, so that one with another build of Ebbtide can still answer. It must
therefore import nothing from Ebbtide.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

ANSWER = "executor string, host string, python string, build string, seen string, written string"
_SECONDS = 0.3
"""The least duration of a task, so that Spark sends the next ones to executors that are still idle."""


class Probe:
    """Runs on an executor; the driver compares the answers with its own."""

    def __init__(self, folder: str, driver: str, digest: Callable[[Path], str]) -> None:
        self.folder, self.driver, self.digest = folder, driver, digest

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Answer once, however many rows there are."""
        began = time.monotonic()
        for _ in batches:
            pass
        host = host_name(self.driver)
        # The worker's parent is Spark's Python daemon, and the daemon's parent is the executor.
        executor = f"{host}/{_parent(os.getppid())}"
        nonce = _read(Path(self.folder) / "nonce")
        written = _write(Path(self.folder), executor, nonce)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        answer = [executor, host, python, self._build(), nonce, written]
        time.sleep(max(0.0, began + _SECONDS - time.monotonic()))
        yield pa.RecordBatch.from_arrays(
            [pa.array([text], pa.string()) for text in answer],
            ["executor", "host", "python", "build", "seen", "written"],
        )

    def _build(self) -> str:
        """Return the version and the digest of the Ebbtide that is installed here."""
        try:
            import ebbtide  # noqa: PLC0415 - this executor's own, whichever it is
        except ImportError:
            return "none"
        return f"{ebbtide.__version__} ({self.digest(Path(str(ebbtide.__file__)).parent)})"


def host_name(driver: str) -> str:
    """Return the name of this host and the address from which it reaches the driver; nothing is sent."""
    name = socket.gethostname()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((driver, 9))
            return f"{name} ({probe.getsockname()[0]})"
    except OSError:
        return name


def proof_of(nonce: str, executor: str) -> str:
    """Return the hash that an executor writes back, which needs the nonce."""
    return hashlib.sha256(f"{nonce} {executor}".encode()).hexdigest()


def _parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError, IndexError):
        return process


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _write(folder: Path, executor: str, nonce: str) -> str:
    """Write the proof and return the name of its file; empty if that fails."""
    name = hashlib.sha256(executor.encode()).hexdigest()[:24]
    try:
        (folder / name).write_text(proof_of(nonce, executor), encoding="utf-8")
    except OSError:
        return ""
    return name
