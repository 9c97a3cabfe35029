"""One run at a time on a target: a lock that dies with its owner."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebbtide.core.errors import Busy


@contextmanager
def target_lock(root: Path, target_uid: str, what: str) -> Iterator[None]:
    """
    Hold the target's lock for the block, or raise an error that names its holder.

    The kernel releases the lock when the process ends, however it ends, so a killed run never has to be
    unlocked by hand, and a run that is still at work cannot be unlocked.
    """
    folder = root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(target_uid.encode()).hexdigest()[:32]
    with (folder / f"{name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise Busy(
                f"the target is in use by {owner}",
                why="two runs on one target could act on each other's leftovers",
                fix="wait until it ends",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{what} (process {os.getpid()})")
        file.flush()
        try:
            yield
        finally:
            file.seek(0)
            file.truncate()
