"""How folders are named to Spark: it takes no percent signs for spaces, and brackets for a pattern."""

from __future__ import annotations

import re
from pathlib import Path

_PATTERN = re.compile(r"[\\{}\[\]*?]")


def written_to(folder: Path) -> str:
    """Name a folder that Spark writes to; what is special in a URI stays as it is."""
    return f"file://{folder.absolute()}"


def read_from(folder: Path) -> str:
    """Name a file or folder that Spark reads, which would take some characters for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", written_to(folder))
