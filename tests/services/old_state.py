"""State roots, lakes and image layouts that earlier versions left behind, unpacked where they were made."""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"
FORMAT_1 = ("state-0.1.tar.gz", Path("/tmp/ebbtide-0.1-fixture"))  # noqa: S108 (see old_state)
FORMAT_2 = ("state-format-2.tar.gz", Path("/tmp/ebbtide-format-2-fixture"))  # noqa: S108


@contextmanager
def old_state(fixture: tuple[str, Path] = FORMAT_1) -> Iterator[Path]:
    """Unpack a fixture where it was made: its databases name that folder. One test at a time can use it."""
    name, home = fixture
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(home, ignore_errors=True)
        with tarfile.open(FIXTURES / name) as archive:
            archive.extractall(home.parent, filter="data")
        try:
            yield home
        finally:
            shutil.rmtree(home, ignore_errors=True)
