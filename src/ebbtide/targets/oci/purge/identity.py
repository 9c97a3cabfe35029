"""
Which registry is at an address: determined before anything is changed there or recorded about it.

The marker in the registry decides: a tiny artifact with a random id, in a repository of its own among the
bins, which scans, purges and emptying skip. A second DNS name, a proxy or a forwarded port shows the same
marker; another registry at an old address shows another one, or none. A copy of a registry's storage has the
marker of the original, so at a new address with a known id a fresh nonce is written to the marker: the
original shows it too if both are one registry (`is_same_registry`). It also records whether a rehearsal or a
real root owns the registry; markers of earlier versions do not, and count as real.

The canonical name replaces the marker if a registry refuses to carry one. Both must agree with what was
recorded, else it is unknown whose pins and roles count.
"""

from __future__ import annotations

import json
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from ebbtide.core.errors import (
    Denied,
    EbbtideError,
    MetadataError,
    NotFound,
    Refused,
    SafetyStop,
    StoreError,
    Unsupported,
)
from ebbtide.targets.oci.bin.entry import MARKER_REPOSITORY
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST, parse_object
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Manifest, Registry, RegistrySpec, open_registry
from ebbtide.targets.oci.context import RegistryContext
from ebbtide.targets.oci.records.identity import Identity

MARKER_TAG = "registry"
MARKER_PREFIX = "io.ebbtide.targets.oci."
MARKER_VERSION = "1"
MARKER_ARTIFACT = "application/vnd.ebbtide.targets.oci.marker.v1+json"
_KINDS = {"real": False, "rehearsal": True}
_EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


@dataclass(frozen=True)
class RegistryMarker:
    """Which registry this is."""

    id: str
    name: str
    """The name under which the marker was written first; for people."""
    nonce: str = ""
    rehearsal: bool = False
    """Whether the registry belongs to a rehearsal, which no real root takes over, nor vice versa."""

    @classmethod
    def new(cls, name: str, *, rehearsal: bool = False) -> RegistryMarker:
        """Return a marker for a registry that has none."""
        return cls(uuid.uuid4().hex, name, rehearsal=rehearsal)

    def check_kind(self, name: str, *, rehearsal: bool) -> None:
        """Stop if a registry belongs to a root of the other kind."""
        if self.rehearsal is not rehearsal:
            kinds = {True: "a rehearsal", False: "a real root"}
            raise SafetyStop(
                f"{name} belongs to {kinds[self.rehearsal]}, and this is {kinds[rehearsal]}",
                why="what is rehearsed must never be taken for real, nor be done to what is real",
                fix="use another registry; if the other root does not use this one any more, delete its"
                f" marker, the tag {MARKER_TAG} in {MARKER_REPOSITORY}",
            )


def read_marker(registry: Registry) -> RegistryMarker | None:
    """Read the marker of a registry, None if it has none; MetadataError if something else has its tag."""
    try:
        manifest = registry.manifest(MARKER_REPOSITORY, MARKER_TAG)
    except NotFound:
        return None
    what = f"the marker {MARKER_REPOSITORY}:{MARKER_TAG}"
    notes = parse_object(manifest.body, what).get("annotations")
    found = {} if not isinstance(notes, dict) else notes
    number, name, nonce = (found.get(f"{MARKER_PREFIX}{field}") for field in ("id", "name", "nonce"))
    kind = found.get(f"{MARKER_PREFIX}kind", "real")
    readable = (
        found.get(f"{MARKER_PREFIX}version") == MARKER_VERSION and isinstance(kind, str) and kind in _KINDS
    )
    if not readable or not isinstance(number, str) or not number.isalnum():
        raise MetadataError(
            f"{what} of the registry cannot be understood",
            why="it is not what Ebbtide writes there, so it is unknown which registry this is",
            fix=f"look at it with a registry tool; if it is not needed, delete the tag {MARKER_TAG} there",
        )
    return RegistryMarker(number, str(name or ""), str(nonce or ""), _KINDS[kind])


def write_marker(registry: Registry, marker: RegistryMarker) -> None:
    """Write the marker of a registry, and check that it is there; Denied or Unsupported if refused."""
    before = _marker_digest(registry)
    blob = digest_of(_EMPTY)
    registry.put_blob(MARKER_REPOSITORY, blob, len(_EMPTY), lambda: [_EMPTY])
    empty = {"mediaType": _EMPTY_TYPE, "digest": blob, "size": len(_EMPTY)}
    kind = "rehearsal" if marker.rehearsal else "real"
    notes = {
        "version": MARKER_VERSION,
        "id": marker.id,
        "name": marker.name,
        "nonce": marker.nonce,
        "kind": kind,
    }
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": MARKER_ARTIFACT,
        "config": empty,
        "layers": [empty],
        "annotations": {f"{MARKER_PREFIX}{field}": value for field, value in notes.items()},
    }
    body = json.dumps(document, sort_keys=True).encode()
    manifest = Manifest(digest_of(body), OCI_MANIFEST, body)
    registry.put_manifest(MARKER_REPOSITORY, MARKER_TAG, manifest)
    if read_marker(registry) != marker:
        raise MetadataError(
            "the marker of the registry was written and is not there",
            why="another one was written at the same moment, or the registry answers from an old cache",
            fix="run the same command again",
        )
    if before not in ("", manifest.digest):
        # The old marker is of no use; if it cannot be deleted, a small untagged manifest remains.
        with suppress(EbbtideError):
            registry.delete_manifest(MARKER_REPOSITORY, before)


def is_same_registry(registry: Registry, marker: RegistryMarker, other: Registry) -> bool:
    """Return True if two registries with one marker are one: a write here can be read there."""
    fresh = replace(marker, nonce=uuid.uuid4().hex)
    write_marker(registry, fresh)
    return read_marker(other) == fresh


def _marker_digest(registry: Registry) -> str:
    try:
        return registry.resolve(MARKER_REPOSITORY, MARKER_TAG).digest
    except NotFound:
        return ""


_QUICK = {"timeout": "5", "patience": "5", "retries": "1"}
_ADOPTED, _MARKED_AGAIN = "adopt the registry", "write its lost marker again"
Warnings = tuple[str, ...]


def identify(context: RegistryContext, by: str, what: str, *, adopt: bool = False) -> Warnings:
    """
    Determine which registry this is, and return warnings; the first time it gets its marker.

    Raises Refused if the registry is unknown while others have roles, unless it is being adopted, and
    SafetyStop if it is another registry than the one recorded under this name, or a copy of one, or if it
    belongs to a rehearsal and this is a real root, or vice versa.
    """
    with context.opened() as registry:
        try:
            marker = _own_marker(context, registry)
        except (Denied, Unsupported) as refused:
            return _unmarked(context, by, what, refused, adopt=adopt)
        known = context.records.identity(context.name)
        if marker is None:
            return _mark(context, registry, known, by, what, adopt=adopt)
        if known is not None and known.marker == marker.id:
            return ()
        if known is not None and known.marker:
            raise _other_registry(
                context, known, f"its marker is {marker.id[:12]}, and {known.marker[:12]} was recorded"
            )
        owners = context.records.names_of_marker(marker.id)
        if owners:
            return _alias(context, registry, marker, owners[0], by)
    uid = context.records.uid_of(context.name)
    context.records.check_known(context.name, uid, by, what, adopt=adopt)
    _remember(context, uid, marker.id, by, _ADOPTED if adopt else "")
    return ()


def owner_of(context: RegistryContext) -> str:
    """Return the uid of the recorded registry that answers at an unknown name, empty if none does."""
    if context.records.identity(context.name) is not None:
        return ""
    options = (
        context.spec.options
        if context.spec.url.startswith("oci-layout:")
        else {**context.spec.options, **_QUICK}
    )
    try:
        with closing(open_registry(RegistrySpec(context.spec.url, options))) as registry:
            marker = read_marker(registry)
    except (EbbtideError, OSError):
        return ""
    owners = [] if marker is None else context.records.names_of_marker(marker.id)
    return owners[0].uid if owners else ""


def adopt_as_new(context: RegistryContext, by: str) -> None:
    """
    Give the registry at a known name, or a copy of a known registry, an identity and records of its own.

    The user must be allowed to change the roles of the registry that was recorded.
    """
    with context.opened() as registry:
        marker, known = _own_marker(context, registry), context.records.identity(context.name)
        owners = [] if marker is None else context.records.names_of_marker(marker.id)
        for one in (*owners, *([known] if known else [])):
            context.records.check_may_adopt(context.name, one.uid, by)
        if marker and {owner.name for owner in owners} == {context.name}:
            raise Refused(
                f"{context.name} is the registry that was recorded under this name",
                why="a new identity would drop its pins, its policies and its log",
                fix="use it as it is: there is nothing to adopt as new",
            )
        for owner in owners:
            if (
                marker
                and owner.name != context.name
                and _is_one_with(registry, marker, owner, context) is not False
            ):
                raise Refused(
                    f"{context.name} cannot get a new identity",
                    why=f"it is the same registry as {owner.name}, or it is unknown that it is not",
                    fix="use it by either name; both have the same pins and roles",
                )
        if marker is None or owners:
            marker = RegistryMarker.new(context.name, rehearsal=context.ledger.rehearsal)
            write_marker(registry, marker)
    context.records.renew_identity(context.name, uuid.uuid4().hex, marker.id, context.address, by)


def _own_marker(context: RegistryContext, registry: Registry) -> RegistryMarker | None:
    """Read the marker, None if there is none; stop if a root of the other kind wrote it."""
    try:
        marker = read_marker(registry)
    except (Denied, Unsupported) as refused:
        if not context.ledger.rehearsal:
            raise
        raise SafetyStop(
            f"the marker of {context.name} cannot be read ({refused.what})",
            why="a real root may own this registry, and this is a rehearsal",
            fix="rehearse with a registry of your own, or with a folder of image layouts",
        ) from None
    if marker is not None:
        marker.check_kind(context.name, rehearsal=context.ledger.rehearsal)
    return marker


def _mark(
    context: RegistryContext, registry: Registry, known: Identity | None, by: str, what: str, *, adopt: bool
) -> Warnings:
    """Write a marker into a registry that has none."""
    if known is not None and known.marker:
        others = [one.name for one in context.records.names_of(known.uid) if one.name != context.name]
        if others:
            raise _other_registry(
                context, known, f"it has no marker, and was recorded as one with {', '.join(others)}"
            )
    uid = context.records.uid_of(context.name)
    context.records.check_known(context.name, uid, by, what, adopt=adopt)
    lost = known is not None and bool(known.marker)
    marker = RegistryMarker.new(context.name, rehearsal=context.ledger.rehearsal)
    if known is not None and lost:
        marker = replace(marker, id=known.marker)
    try:
        write_marker(registry, marker)
    except (StoreError, Refused, OSError) as refused:
        return _unmarked(context, by, what, refused, adopt=adopt)
    _remember(context, uid, marker.id, by, _ADOPTED if adopt else _MARKED_AGAIN if lost else "")
    return (f"{context.name} had lost its marker, which was written again",) if lost else ()


def _unmarked(context: RegistryContext, by: str, what: str, why: Exception, *, adopt: bool) -> Warnings:
    """Know a registry by its name only, and warn about it."""
    uid = context.records.uid_of(context.name)
    context.records.check_known(context.name, uid, by, what, adopt=adopt)
    if context.records.identity(context.name) is None:
        _remember(context, uid, "", by, _ADOPTED if adopt else "")
    reason = why.what if isinstance(why, EbbtideError) else str(why)
    words = f"{context.name} is known by its name alone, because its marker cannot be read or written"
    return (f"{words} ({reason}); under another name its pins and roles do not count",)


def _alias(
    context: RegistryContext, registry: Registry, marker: RegistryMarker, owner: Identity, by: str
) -> Warnings:
    """Record a name as another one of a known registry, unless a copy of that registry answers to it."""
    same = _is_one_with(registry, marker, owner, context)
    if same is False:
        raise SafetyStop(
            f"{context.name} is a copy of {owner.name}",
            why="both carry the same marker, and what is written to one cannot be read from the other",
            fix=f"give the copy an identity of its own: ebb image adopt {context.name} --as-new",
        )
    _remember(context, owner.uid, marker.id, by, f"recognise another name of {owner.name}")
    unproven = "" if same else f"; {owner.name} could not be asked whether it is the same registry"
    return (f"{context.name} is another name of {owner.name}, whose records are used{unproven}",)


def _is_one_with(
    registry: Registry, marker: RegistryMarker, owner: Identity, context: RegistryContext
) -> bool | None:
    """Return True if the registry is the one at its owner's address, None if that is unknown."""
    layout = owner.address.startswith("oci-layout:")
    options = {} if layout else {**context.spec.options, **_QUICK}
    try:
        with closing(open_registry(RegistrySpec(owner.address, options))) as other:
            theirs = read_marker(other)
            if theirs is None or theirs.id != marker.id:
                # Another registry took over that address, so this one has moved.
                return None
            return is_same_registry(registry, marker, other)
    except (EbbtideError, OSError):
        return None


def _remember(context: RegistryContext, uid: str, marker: str, by: str, what: str) -> None:
    context.records.remember(context.name, uid, marker, context.address, by, what)


def _other_registry(context: RegistryContext, known: Identity, why: str) -> SafetyStop:
    return SafetyStop(
        f"{context.name} is not the registry that was recorded under this name",
        why=f"{why} ({known.by} on {known.at:%Y-%m-%d}); its pins and roles are of that one",
        fix=f"check the address; if the registry was replaced: ebb image adopt {context.name} --as-new",
    )
