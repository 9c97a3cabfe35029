"""Physical addresses that are the same in every session, so that a seed of faults means the same in each."""

from __future__ import annotations

from itertools import count

from ebbtide.targets.lake.catalog.catalog import Catalog


class NumberedAddresses:
    """Hands out addresses in turn, where the catalog's own are random."""

    def __init__(self, first: int) -> None:
        self._numbers = count(first)

    def address(self, _repo_uid: str, _branch_id: str) -> str:
        """Give the next address; the repository and the branch have random names too, so neither is in it."""
        number = next(self._numbers)
        return f"repos/r/branches/b/partition-{number // 5}/{number:04d}"


def number_addresses(catalog: Catalog, first: int = 0) -> Catalog:
    """Let a catalog hand out numbered addresses; who opens it again begins above those that are taken."""
    catalog._partitions = NumberedAddresses(first)  # type: ignore[assignment]
    return catalog
