"""Ids and addresses that are the same in every run, so a failure can be replayed, batches and all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from uuid import UUID

from ebbtide.core.instant import Clock
from ebbtide.targets.lake.catalog import refs, repositories
from ebbtide.targets.lake.catalog.partitions import Partitions, branch_path

OBJECTS_A_PARTITION = 4
_INSTANCE = "0123456789ab"


class _NumberedIds:
    """Stands for the module that makes ids by chance; these ascend."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def uuid4(self) -> UUID:
        """Give the next id: its first twelve digits tell it from all others."""
        return UUID(int=next(self._numbers) << 80)


@contextmanager
def numbered_ids() -> Iterator[None]:
    """Let the catalog number its repositories and branches for the block."""
    by_chance = repositories.uuid
    repositories.uuid = refs.uuid = _NumberedIds()  # type: ignore[assignment]
    try:
        yield
    finally:
        repositories.uuid = refs.uuid = by_chance


class NumberedAddresses(Partitions):
    """Hands out addresses as the catalog does, but for what is there by chance."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, OBJECTS_A_PARTITION)
        self._instance = _INSTANCE
        self.given: dict[str, list[str]] = {}
        """All addresses that were handed out, by repository."""

    def address(self, repo_uid: str, branch_id: str) -> str:
        """Give the next address of a branch."""
        given = self.given.setdefault(repo_uid, [])
        place = branch_path(repo_uid, branch_id) + self._partition(branch_id)
        given.append(f"{place}/{len(given):032x}")
        return given[-1]

    def by_hand(self, repo_uid: str, number: int) -> str:
        """Make up an address beside one that was handed out, as the catalog never would."""
        given = self.given[repo_uid]
        place = given[number % len(given)].rpartition("/")[0]
        given.append(f"{place}/{len(given):032x}")
        return given[-1]
