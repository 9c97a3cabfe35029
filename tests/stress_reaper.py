# ruff: noqa: T201 (it reports to whoever started it)
"""
Writers and reapers at once, for as long as you like, on SQLite or PostgreSQL.

    python -m tests.stress_reaper --seconds 120 [--postgres] [--writers 4] [--reapers 2] [--seed 1]

Ends with a full check of the store against the catalog: nothing lost, nothing left.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.postgres import postgres_server
from tests.stress import Stress

from ebbtide.targets.lake.catalog.catalog import Catalog


def main() -> int:
    """Stress, report, and exit 1 if anything was lost or left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--reapers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL of its own, not SQLite")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, _database(scratch, postgresql=wanted.postgres) as url:
        stress = Stress(lambda: Catalog(url, range_keys=4), f"{scratch}/lake", wanted.seed)
        found = stress.run(wanted.seconds, wanted.writers, wanted.reapers)
    print(
        f"{'PostgreSQL' if wanted.postgres else 'SQLite'}, {wanted.writers} writers, {wanted.reapers} reapers"
    )
    print(found)
    for address in (*found.lost, *found.left):
        print(f"  {'lost' if address in found.lost else 'left'}: {address}")
    return 1 if found.lost or found.left or found.waiting else 0


@contextmanager
def _database(scratch: str, *, postgresql: bool) -> Iterator[str]:
    """Give the URL of a database of the kind that was asked for."""
    if not postgresql:
        yield f"sqlite:///{scratch}/catalog.db"
        return
    with postgres_server() as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
