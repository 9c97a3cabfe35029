"""The state root, lake and image layout that Ebbtide 0.1 left behind, unpacked where it was made."""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "state-0.1.tar.gz"
HOME = Path("/tmp/ebbtide-0.1-fixture")  # noqa: S108 (the databases in the archive name this folder)


@contextmanager
def old_state() -> Iterator[Path]:
    """Unpack the fixture; only one test at a time can use its folder, because its paths are absolute."""
    with HOME.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(HOME, ignore_errors=True)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(HOME.parent, filter="data")
        try:
            yield HOME
        finally:
            shutil.rmtree(HOME, ignore_errors=True)
