"""The recycle bin of a repository: where it is, and for how long a run's items stay in it."""

from __future__ import annotations

from ebbtide.engine.bins import Bin
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.ranges import METADATA
from ebbtide.targets.lake.rulebook import Rulebook

BIN_ROOT = f"{METADATA}recycle/"
"""Below the metadata, where no collector looks for anything and no deleter of data goes."""


def lake_bin(catalog: Catalog, repository: str) -> Bin:
    """Open a repository's bin."""
    return Bin(catalog.store(repository), BIN_ROOT, catalog.repository(repository).uid)


def days_in_bin(ledger: Ledger, target_uid: str, rulebook: Rulebook) -> int | None:
    """
    Say for how many days a run sets aside what it would delete; None if it deletes for good.

    Of what is set for the target and what the rules of its policy say, the longest counts, for all items of
    the run: an object may have gone by several rules, and by none if it is garbage.
    """
    said = [ledger.recycling_days(target_uid), rulebook.policy.recycle_days]
    return max((days for days in said if days is not None), default=None)
