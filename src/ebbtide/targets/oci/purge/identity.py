"""
Which registry is at an address: asked for before anything is changed there or recorded of it.

The marker in the registry decides; the canonical name stands in for it where a registry refuses to carry one.
What the two say must agree with what was recorded, else nobody can say whose pins and roles count.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace

from ebbtide.core.errors import Denied, EbbtideError, Refused, SafetyStop, StoreError, Unsupported
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec, open_registry
from ebbtide.targets.oci.marker import RegistryMarker, is_same, read_marker, write_marker
from ebbtide.targets.oci.purge.shop import RegistryShop
from ebbtide.targets.oci.records.identity import Identity

_QUICK = {"timeout": "5", "patience": "5", "retries": "1"}
_ADOPTED, _MARKED_AGAIN = "adopt the registry", "write its lost marker again"
Warnings = tuple[str, ...]


def identify(shop: RegistryShop, by: str, what: str, *, adopt: bool = False) -> Warnings:
    """
    Make sure which registry this is, and give warnings; the first time it gets its marker.

    Raises Refused if the registry is unknown while others have roles, unless it is being adopted, and
    SafetyStop if it is another registry than the one that was recorded under this name, or a copy of one, or
    if it belongs to a rehearsal and this is a real root, or the other way round.
    """
    with shop.opened() as registry:
        try:
            marker = _marker(shop, registry)
        except (Denied, Unsupported) as refused:
            return _unmarked(shop, by, what, refused, adopt=adopt)
        known = shop.records.identity(shop.name)
        if marker is None:
            return _mark(shop, registry, known, by, what, adopt=adopt)
        if known is not None and known.marker == marker.id:
            return ()
        if known is not None and known.marker:
            raise _replaced(
                shop, known, f"its marker is {marker.id[:12]}, and {known.marker[:12]} was recorded"
            )
        owners = shop.records.names_of_marker(marker.id)
        if owners:
            return _alias(shop, registry, marker, owners[0], by)
    uid = shop.records.uid_of(shop.name)
    shop.records.check_known(shop.name, uid, by, what, adopt=adopt)
    _remember(shop, uid, marker.id, by, _ADOPTED if adopt else "")
    return ()


def owner_of(shop: RegistryShop) -> str:
    """Give the uid of the recorded registry that answers at an unknown name, empty if none does."""
    if shop.records.identity(shop.name) is not None:
        return ""
    options = (
        shop.spec.options if shop.spec.url.startswith("oci-layout:") else {**shop.spec.options, **_QUICK}
    )
    try:
        with closing(open_registry(RegistrySpec(shop.spec.url, options))) as registry:
            marker = read_marker(registry)
    except (EbbtideError, OSError):
        return ""
    owners = [] if marker is None else shop.records.names_of_marker(marker.id)
    return owners[0].uid if owners else ""


def adopt_as_new(shop: RegistryShop, by: str) -> None:
    """
    Give the registry at a known name, or a copy of a known registry, an identity and records of its own.

    Whoever does this must be allowed to change the roles of the registry that was recorded.
    """
    with shop.opened() as registry:
        marker, known = _marker(shop, registry), shop.records.identity(shop.name)
        owners = [] if marker is None else shop.records.names_of_marker(marker.id)
        for one in (*owners, *([known] if known else [])):
            shop.records.check_may_adopt(shop.name, one.uid, by)
        if marker and {owner.name for owner in owners} == {shop.name}:
            raise Refused(
                f"{shop.name} is the registry that was recorded under this name",
                why="a new identity would drop its pins, its policies and its log",
                fix="use it as it is: there is nothing to adopt as new",
            )
        for owner in owners:
            if (
                marker
                and owner.name != shop.name
                and _is_one_with(registry, marker, owner, shop) is not False
            ):
                raise Refused(
                    f"{shop.name} cannot get a new identity",
                    why=f"it is the same registry as {owner.name}, or nobody can say that it is not",
                    fix="use it by either name; both have the same pins and roles",
                )
        if marker is None or owners:
            marker = RegistryMarker.new(shop.name, rehearsal=shop.ledger.rehearsal)
            write_marker(registry, marker)
    shop.records.renew_identity(shop.name, uuid.uuid4().hex, marker.id, shop.address, by)


def _marker(shop: RegistryShop, registry: Registry) -> RegistryMarker | None:
    """Read the marker, None if there is none; stop if a root of the other kind wrote it."""
    try:
        marker = read_marker(registry)
    except (Denied, Unsupported) as refused:
        if not shop.ledger.rehearsal:
            raise
        raise SafetyStop(
            f"the marker of {shop.name} cannot be read ({refused.what})",
            why="a real root may own this registry, and this is a rehearsal",
            fix="rehearse with a registry of your own, or with a folder of image layouts",
        ) from None
    if marker is not None:
        marker.check_kind(shop.name, rehearsal=shop.ledger.rehearsal)
    return marker


def _mark(
    shop: RegistryShop, registry: Registry, known: Identity | None, by: str, what: str, *, adopt: bool
) -> Warnings:
    """Write a marker into a registry that has none."""
    if known is not None and known.marker:
        others = [one.name for one in shop.records.names_of(known.uid) if one.name != shop.name]
        if others:
            raise _replaced(
                shop, known, f"it has no marker, and was recorded as one with {', '.join(others)}"
            )
    uid = shop.records.uid_of(shop.name)
    shop.records.check_known(shop.name, uid, by, what, adopt=adopt)
    lost = known is not None and bool(known.marker)
    marker = RegistryMarker.new(shop.name, rehearsal=shop.ledger.rehearsal)
    if known is not None and lost:
        marker = replace(marker, id=known.marker)
    try:
        write_marker(registry, marker)
    except (StoreError, Refused, OSError) as refused:
        return _unmarked(shop, by, what, refused, adopt=adopt)
    _remember(shop, uid, marker.id, by, _ADOPTED if adopt else _MARKED_AGAIN if lost else "")
    return (f"{shop.name} had lost its marker, which was written again",) if lost else ()


def _unmarked(shop: RegistryShop, by: str, what: str, why: Exception, *, adopt: bool) -> Warnings:
    """Know a registry by its name alone, and say so."""
    uid = shop.records.uid_of(shop.name)
    shop.records.check_known(shop.name, uid, by, what, adopt=adopt)
    if shop.records.identity(shop.name) is None:
        _remember(shop, uid, "", by, _ADOPTED if adopt else "")
    reason = why.what if isinstance(why, EbbtideError) else str(why)
    words = f"{shop.name} is known by its name alone, because its marker cannot be read or written"
    return (f"{words} ({reason}); under another name its pins and roles do not count",)


def _alias(
    shop: RegistryShop, registry: Registry, marker: RegistryMarker, owner: Identity, by: str
) -> Warnings:
    """Record that a name is one more of a known registry, unless a copy of that registry answers to it."""
    same = _is_one_with(registry, marker, owner, shop)
    if same is False:
        raise SafetyStop(
            f"{shop.name} is a copy of {owner.name}",
            why="both carry the same marker, and what is written to one cannot be read from the other",
            fix=f"give the copy an identity of its own: ebb image adopt {shop.name} --as-new",
        )
    _remember(shop, owner.uid, marker.id, by, f"recognise another name of {owner.name}")
    unproven = "" if same else f"; {owner.name} could not be asked whether it is the same registry"
    return (f"{shop.name} is another name of {owner.name}, whose records are used{unproven}",)


def _is_one_with(
    registry: Registry, marker: RegistryMarker, owner: Identity, shop: RegistryShop
) -> bool | None:
    """Tell whether the registry is the one at its owner's address, None if nobody can say."""
    layout = owner.address.startswith("oci-layout:")
    options = {} if layout else {**shop.spec.options, **_QUICK}
    try:
        with closing(open_registry(RegistrySpec(owner.address, options))) as other:
            theirs = read_marker(other)
            if theirs is None or theirs.id != marker.id:
                # Another registry took over that address, so this one has moved.
                return None
            return is_same(registry, marker, other)
    except (EbbtideError, OSError):
        return None


def _remember(shop: RegistryShop, uid: str, marker: str, by: str, what: str) -> None:
    shop.records.remember(shop.name, uid, marker, shop.address, by, what)


def _replaced(shop: RegistryShop, known: Identity, why: str) -> SafetyStop:
    return SafetyStop(
        f"{shop.name} is not the registry that was recorded under this name",
        why=f"{why} ({known.by} on {known.at:%Y-%m-%d}); its pins and roles are of that one",
        fix=f"check the address; if the registry was replaced: ebb image adopt {shop.name} --as-new",
    )
