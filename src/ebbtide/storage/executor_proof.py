"""
Whether this process may take part in a run: what Python on an executor found out when it started.

The driver puts a proof into the environment of its executors: a file below the state root, what it says, and
the build of Ebbtide. Spark's daemon for Python compares it once (`note_unfitness`), and its workers inherit
what it found. So an executor that joined after the others were checked opens no store.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from ebbtide.core.errors import ExecutorUnfit

PROOF = "EBBTIDE_EXECUTOR_PROOF"
_UNFIT = "EBBTIDE_EXECUTOR_UNFIT"


@dataclass(frozen=True)
class ExecutorProof:
    """What an executor must find."""

    file: str
    nonce: str
    build: str

    def to_text(self) -> str:
        """Write it for the environment."""
        return json.dumps(asdict(self), sort_keys=True)


def note_unfitness(build: str) -> None:
    """Compare the proof in the environment with what is here; without one nothing was asked."""
    text = os.environ.get(PROOF)
    if text:
        os.environ[_UNFIT] = _unfitness(ExecutorProof(**json.loads(text)), build)


def _unfitness(proof: ExecutorProof, build: str) -> str:
    try:
        seen = Path(proof.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        seen = ""
    if seen != proof.nonce:
        return f"{socket.gethostname()} has another disk than the driver's under {Path(proof.file).parent}"
    if build != proof.build:
        return f"{socket.gethostname()} runs the build {build} of Ebbtide, and the driver {proof.build}"
    return ""


def check_fitness() -> None:
    """Stop on an executor that does not share the state root or the build of the driver."""
    if found := os.environ.get(_UNFIT):
        raise ExecutorUnfit(
            found,
            why="what it reads and writes would not be what the driver takes it for",
            fix="mount the same 'root' at the same path and install the same Ebbtide on every host",
        )
