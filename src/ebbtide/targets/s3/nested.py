"""
Locations and lakes nested in a bucket, where the rules of the rest of the bucket do not apply.

Transitions can move objects to a location in the same bucket. A rule for the whole bucket would expire or
move the copies too, by an age that starts again with the move. So a rule applies to a nested location only if
its prefix lies inside it.

A lake stores its objects and metadata in a namespace. A lifecycle rule would see them as old keys and expire
them, commits included. So everything in a namespace is held. A lake is found by its owner marker, whichever
catalog made it, or because the catalog of this installation knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.core.errors import EbbtideError
from ebbtide.storage.address import locate
from ebbtide.storage.namespace import MARKER, read_owner
from ebbtide.storage.store import Store, StoreSpec, open_store
from ebbtide.targets.s3.model import BIN_ROOT, VERSION, Protected
from ebbtide.targets.s3.rules.configuration import Configuration, Rule, covering_prefixes, upload_prefixes


@dataclass(frozen=True)
class NestedLocation:
    """A location at a prefix of the bucket."""

    name: str
    prefix: str

    @property
    def label(self) -> str:
        """The prefix and the name, as messages show them."""
        return f"{self.prefix} (location {self.name})"

    def is_meant_by(self, rule: Rule) -> bool:
        """Return True if a rule applies only inside this location."""
        return rule.filter.prefix.startswith(self.prefix)

    def rules_of(self, configuration: Configuration) -> Configuration:
        """Return the rules that apply in this location."""
        return replace(
            configuration, rules=tuple(rule for rule in configuration.rules if self.is_meant_by(rule))
        )


def nested_locations(spec: StoreSpec, locations: Mapping[str, StoreSpec]) -> tuple[NestedLocation, ...]:
    """
    Return the locations inside a bucket, the deepest first.

    A location that is the whole bucket is not nested: all rules apply there.
    """
    bucket = locate(spec.url).host
    found = []
    for name, location in locations.items():
        place = locate(location.url)
        here = place.scheme == "s3" and place.host == bucket and _server(location) == _server(spec)
        if here and place.parts:
            found.append(NestedLocation(name, f"{place.path}/"))
    return tuple(sorted(found, key=lambda one: (-len(one.prefix), one.prefix, one.name)))


def location_around(nested: Iterable[NestedLocation], key: str) -> NestedLocation | None:
    """Return the location that contains a key; the deepest, which comes first."""
    return next((one for one in nested if key.startswith(one.prefix)), None)


def excluded_locations(
    nested: Sequence[NestedLocation], configuration: Configuration
) -> tuple[NestedLocation, ...]:
    """Return the locations to which no enabled rule applies; they need not be listed."""
    return tuple(one for one in nested if not one.rules_of(configuration).enabled)


def _server(spec: StoreSpec) -> str:
    return spec.options.get("endpoint", "").rstrip("/")


def known_lakes(spec: StoreSpec, namespaces: Mapping[str, str]) -> tuple[Protected, ...]:
    """Return the lakes of a catalog, given by name and namespace, that are in a bucket."""
    bucket = locate(spec.url)
    places = ((name, locate(namespace)) for name, namespace in namespaces.items())
    return tuple(
        _lake(f"{place.path}/" if place.parts else "", name)
        for name, place in places
        if (place.scheme, place.host) == (bucket.scheme, bucket.host)
    )


def lakes_around(spec: StoreSpec, prefixes: Iterable[str]) -> tuple[Protected, ...]:
    """Find the lakes that contain some prefixes or keys, by the owner markers in the folders above them."""
    store = open_store(spec)
    folders = {folder for prefix in prefixes for folder in _folders_above(prefix)}
    return tuple(lake_of_marker(store, folder) for folder in sorted(folders) if _has_marker(store, folder))


def lakes_around_rules(spec: StoreSpec, configuration: Configuration) -> tuple[Protected, ...]:
    """Find the lakes that contain the whole prefix of a rule: a listing would not show their markers."""
    return lakes_around(spec, {*covering_prefixes(configuration), *upload_prefixes(configuration)})


def merge_protected(*parts: Sequence[Protected]) -> tuple[Protected, ...]:
    """Merge protected prefixes, sorted; of two holders of one prefix the first is named."""
    named = {one.prefix: one for part in reversed(parts) for one in part}
    return tuple(named[prefix] for prefix in sorted(named))


def reach_warnings(
    configuration: Configuration, protected: Sequence[Protected], *, has_bin: bool
) -> list[str]:
    """Warn of enabled rules that reach into a lake or the recycle bin, where they do nothing."""
    places = [*protected, *([Protected(BIN_ROOT, f"the recycle bin {BIN_ROOT}")] if has_bin else [])]
    found = []
    for rule in configuration.enabled:
        prefix = rule.filter.prefix
        if not has_bin and prefix.startswith(BIN_ROOT):
            found.append(f"rule {rule.id!r} does nothing: no rule reaches the recycle bin, {BIN_ROOT}")
        found += [
            f"rule {rule.id!r} reaches into {one.holder}: everything there is held"
            for one in places
            if prefix.startswith(one.prefix) or one.prefix.startswith(prefix)
        ]
    return found


def _lake(prefix: str, name: str) -> Protected:
    return Protected(prefix, f"lake {name!r} in {prefix or 'the whole bucket'}")


def lake_of_marker(store: Store, folder: str) -> Protected:
    """Return the lake of an owner marker; a marker that cannot be read protects its folder too."""
    with suppress(EbbtideError):
        owner = read_owner(store, folder)
        if owner is not None:
            return _lake(folder, owner.repository)
    return Protected(folder, f"a lake in {folder or 'the whole bucket'}")


def _has_marker(store: Store, folder: str) -> bool:
    """Return True if a folder has an owner marker; this lists, as every planner may do."""
    key = folder + MARKER
    return any(key in batch.column("key").to_pylist() for batch in store.list(key))


def _folders_above(prefix: str) -> Iterator[str]:
    """Yield the folders that contain all keys that begin with a prefix."""
    yield ""
    yield from (prefix[: place + 1] for place, letter in enumerate(prefix) if letter == "/")


def lakes_in_inventory(spec: StoreSpec, versions: DataFrame) -> tuple[Protected, ...]:
    """Find the lakes whose owner markers are in an inventory, from a listing or a report."""
    key = f.col("key")
    is_marker = (key == MARKER) | key.endswith(f"/{MARKER}")
    current = (f.col("kind") == VERSION) & f.coalesce(f.col("is_latest"), f.lit(True))
    found = versions.where(is_marker & current).select("key").distinct().toArrow().column("key").to_pylist()
    store = open_store(spec)
    return tuple(lake_of_marker(store, name.removesuffix(MARKER)) for name in sorted(found))
