"""Where machines keep their repositories: in memory where there is such a folder, for they sync often."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 (a fresh folder is made inside it)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give an empty folder for the block."""
    place = _MEMORY if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ebbtide-machine-", dir=place) as folder:
        yield Path(folder)
