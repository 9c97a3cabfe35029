"""What an address says by itself: one name for each object, and some that no rule may delete."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from ebbtide.storage.address import canonical
from ebbtide.targets.lake.world_document import WorldDocument, WrittenEntry

_FOR_EVER = datetime.max.replace(tzinfo=UTC)
_METADATA = "_lakefs/"


def address_of(entry: WrittenEntry, world: WorldDocument) -> str:
    """Give an object the one name that all of its spellings share."""
    return canonical(entry.address, world.namespace)


def is_doubtful(entry: WrittenEntry, world: WorldDocument) -> bool:
    """Tell whether an entry is spelled so that it may name another object than its canonical form."""
    address = address_of(entry, world)
    return entry.address != address and not entry.address.endswith("/" + address)


def is_listed(address: str) -> bool:
    """Tell whether a listing of the namespace can have this canonical address as a data object."""
    return "://" not in address and not address.startswith(_METADATA)


def with_guards(keepers: Mapping[str, Mapping[str, datetime]]) -> dict[str, Mapping[str, datetime]]:
    """Add to what keeps each address that it lies outside the namespace or is metadata, if so: for ever."""
    return {
        address: known if is_listed(address) else {**known, f"{address} <- {_guard(address)}": _FOR_EVER}
        for address, known in keepers.items()
    }


def _guard(address: str) -> str:
    return "metadata" if address.startswith(_METADATA) else "outside"
