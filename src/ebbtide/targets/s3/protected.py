"""
Lakes inside a bucket: whatever the bucket's rules say, what lies in a lake's namespace is held.

A lifecycle rule sees a lake's ranges and objects as old keys and would expire them, commits and all. A lake
is known by its owner marker, whichever catalog made it, or because this installation's catalog says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from ebbtide.core.errors import EbbtideError
from ebbtide.storage.address import locate
from ebbtide.storage.namespace import MARKER, read_owner
from ebbtide.storage.store import Store, StoreSpec, open_store
from ebbtide.targets.s3.bin_place import BIN_ROOT
from ebbtide.targets.s3.inventory.scope import covering_prefixes, upload_prefixes
from ebbtide.targets.s3.model import Protected
from ebbtide.targets.s3.rules.configuration import Configuration


def known_lakes(spec: StoreSpec, namespaces: Mapping[str, str]) -> tuple[Protected, ...]:
    """Find the lakes of a catalog, by name and namespace, that lie in a bucket."""
    bucket = locate(spec.url)
    places = ((name, locate(namespace)) for name, namespace in namespaces.items())
    return tuple(
        _lake(f"{place.path}/" if place.parts else "", name)
        for name, place in places
        if (place.scheme, place.host) == (bucket.scheme, bucket.host)
    )


def lakes_around(spec: StoreSpec, prefixes: Iterable[str]) -> tuple[Protected, ...]:
    """Find the lakes in which prefixes or keys lie, by the markers in the folders above them."""
    store = open_store(spec)
    folders = {folder for prefix in prefixes for folder in _folders_above(prefix)}
    return tuple(marked_lake(store, folder) for folder in sorted(folders) if _has_marker(store, folder))


def lakes_around_rules(spec: StoreSpec, configuration: Configuration) -> tuple[Protected, ...]:
    """Find the lakes in which all that a rule is about lies, so that a listing may not show their markers."""
    return lakes_around(spec, {*covering_prefixes(configuration), *upload_prefixes(configuration)})


def together(*parts: Sequence[Protected]) -> tuple[Protected, ...]:
    """Put protected prefixes together, in order; of two holders of one prefix the first is named."""
    named = {one.prefix: one for part in reversed(parts) for one in part}
    return tuple(named[prefix] for prefix in sorted(named))


def reaching_rules(
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
            f"rule {rule.id!r} reaches into {one.holder}: what lies there is held"
            for one in places
            if prefix.startswith(one.prefix) or one.prefix.startswith(prefix)
        ]
    return found


def _lake(prefix: str, name: str) -> Protected:
    return Protected(prefix, f"lake {name!r} in {prefix or 'the whole bucket'}")


def marked_lake(store: Store, folder: str) -> Protected:
    """Name the lake of a marker; one that cannot be read protects as well."""
    with suppress(EbbtideError):
        owner = read_owner(store, folder)
        if owner is not None:
            return _lake(folder, owner.repository)
    return Protected(folder, f"a lake in {folder or 'the whole bucket'}")


def _has_marker(store: Store, folder: str) -> bool:
    """Look for a marker by listing, which whoever plans for a bucket may do."""
    key = folder + MARKER
    return any(key in batch.column("key").to_pylist() for batch in store.list(key))


def _folders_above(prefix: str) -> Iterator[str]:
    """Name the folders in which everything that begins with a prefix lies."""
    yield ""
    yield from (prefix[: place + 1] for place, letter in enumerate(prefix) if letter == "/")
