# ruff: noqa: T201 (it reports to whoever started it)
"""
Explore all interleavings of the catalog's operations with the reaper, and a crash anywhere.

    python -m tests.explore [NAME ...]

Without names: everything, the large scenario too, which takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.explorer.scenarios import EVERYTHING


def main() -> int:
    """Explore, print what was seen, and exit 1 at the first counterexample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios, by parts of their names")
    wanted = parser.parse_args().names
    for name in wanted:
        if not any(name in scenario.name for scenario in EVERYTHING):
            parser.error(f"no scenario has {name!r} in its name: {'; '.join(s.name for s in EVERYTHING)}")
    fast = Path("/dev/shm")  # noqa: S108 - scratch, and much faster than a disk
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as scratch:
        for number, scenario in enumerate(EVERYTHING):
            if wanted and not any(name in scenario.name for name in wanted):
                continue
            found = scenario.explore(Path(scratch) / str(number))
            print(f"{scenario.name}: {found}", flush=True)
            if found.counterexample:
                print(found.story)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
