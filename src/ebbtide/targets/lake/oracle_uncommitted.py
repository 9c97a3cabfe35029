"""What uncommitted garbage means: the store lists it, nothing names it, and the grace period is over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from ebbtide.storage.address import canonical
from ebbtide.targets.lake.oracle_addresses import address_of, is_listed
from ebbtide.targets.lake.world_document import WorldDocument

_FOR_EVER = datetime.max.replace(tzinfo=UTC)


def uncommitted_keepers(world: WorldDocument) -> Mapping[str, Mapping[str, datetime]]:
    """Give each listed address that nothing names its last write, and when the grace period after it ends."""
    named = _named(world)
    keepers = {}
    for address, found in world.objects.items():
        spelled = canonical(address, world.namespace)
        if spelled not in named and is_listed(spelled):
            try:
                ends = found.last_modified + world.grace
            except OverflowError:
                ends = _FOR_EVER
            keepers[spelled] = {"last modified <- grace": ends}
    return keepers


def _named(world: WorldDocument) -> set[str]:
    """Spell, each in its one way, the addresses of all entries: of every commit, and of all staging."""
    named = set()
    for commit in world.commits:
        for entry in commit.entries.values():
            named.add(address_of(entry, world))
    for entries in world.staged.values():
        for entry in entries.values():
            named.add(address_of(entry, world))
    return named
