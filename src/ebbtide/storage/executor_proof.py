"""
The proof that an executor shares the state root and the build of the driver.

The driver puts a proof into the environment of its executors: a file below the state root, its content, and
the build of Ebbtide. Spark's daemon for Python compares it once (`note_unfitness`), and its workers inherit
the result. So an executor that joins after the others were checked cannot open a store without it.
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
    """The file content and the build that an executor must find."""

    file: str
    nonce: str
    build: str

    def to_text(self) -> str:
        """Return the value of the environment variable."""
        return json.dumps(asdict(self), sort_keys=True)


def note_unfitness(build: str) -> None:
    """Compare the proof in the environment with this host, and keep the result for forked workers."""
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
    """Raise ExecutorUnfit on an executor without the state root or the build of the driver."""
    if found := os.environ.get(_UNFIT):
        raise ExecutorUnfit(
            found,
            why="it would read and write other files, or other formats, than the driver expects",
            fix="mount the same 'root' at the same path and install the same Ebbtide on every host",
        )
