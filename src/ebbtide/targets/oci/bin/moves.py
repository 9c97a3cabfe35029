"""
Moving images into the bin and back.

Into the bin: first a complete copy, then its entry. The entry is written last, so that it exists
only if the copy is complete; after a crash the same call continues. The original is not touched: the caller
deletes it afterwards, in the order of `removal_order`.

Back: everything is copied and checked before the first tag is put, and the bin forgets an image only after
that, so a crash loses nothing and the same call finishes it. A tag that stands for another image is never
moved: it is looked at again just before it is put. Registries have no "put if absent", so a push in the
moment between these two requests is the one thing that can still be overwritten.

Callers hold the registry's lock (`state.locks.target_lock`), because emptying the bin takes a copy without an
entry for one that was given up. What is restored does not expire at once: a scan sees its tags as new, and
their days are counted afresh.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ebbtide.core.errors import Denied, EbbtideError, MetadataError, NotFound, Refused, Unsupported
from ebbtide.targets.oci.bin.contents import discard_each, entries, find_entry
from ebbtide.targets.oci.bin.entry import (
    BinEntry,
    bin_repository,
    followers,
    manifest_tag,
    merged,
    write_entry,
)
from ebbtide.targets.oci.bin.image_copy import (
    Closure,
    bring,
    by_digest,
    check_whole,
    closure_of,
    despite_others,
    is_whole,
)
from ebbtide.targets.oci.client.names import check_tag
from ebbtide.targets.oci.client.registry import Registry


@dataclass(frozen=True)
class RestoredImage:
    """What a restore did."""

    entry: BinEntry
    tags: tuple[str, ...] = ()
    """The requested tags that stand for the image now; empty if it never had any."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """Tags that stand for another image, with its digest; they were left alone."""
    referrers: tuple[RestoredImage, ...] = ()
    """Signatures and other referrers that were restored with it."""
    left_in_bin: bool = False
    troubles: tuple[str, ...] = ()
    """What could not be done; the image itself is back."""


def restore(
    registry: Registry,
    entry: BinEntry,
    *,
    to_tags: Sequence[str] | None = None,
    with_referrers: bool = True,
    keep_in_bin: bool | None = None,
    read_blobs: bool = False,
) -> RestoredImage:
    """
    Restore an image under its tags, or under `to_tags` instead, with its signatures.

    Raises Refused, and changes nothing, if all tags stand for other images: the registry's collector would
    remove a manifest without a tag. An image that had no tag comes back without. It leaves the bin if all its
    tags were put, unless `keep_in_bin` is given.
    """
    names = entry.tag_names if to_tags is None else to_tags
    wanted = [check_tag(name) for name in dict.fromkeys(names)]
    if not _is_in_bin(registry, entry):
        return _restored_before(registry, entry, wanted)
    closure = closure_of(registry, entry.bin, entry.digest)
    back = _bring_back(registry, entry, closure, wanted, read_blobs=read_blobs)
    if with_referrers:
        back = _with_referrers(registry, back, closure)
    return _leave_bin(registry, back, keep_in_bin=keep_in_bin)


def _is_in_bin(registry: Registry, entry: BinEntry) -> bool:
    """Return True if the bin has an entry, even a damaged one: its image may be intact."""
    try:
        return find_entry(registry, entry.repository, entry.digest) is not None
    except MetadataError:
        return True


def _restored_before(registry: Registry, entry: BinEntry, wanted: Sequence[str]) -> RestoredImage:
    """Accept that an earlier, interrupted call has restored everything."""
    names = wanted or [entry.digest]
    if all(_stands_for(registry, entry.repository, name) == entry.digest for name in names):
        return RestoredImage(entry, tuple(wanted))
    raise NotFound(
        f"{entry} is not in the recycle bin",
        why="it was restored, or has expired",
        fix="see what there is with 'ebb image recycle list'",
    )


def _bring_back(
    registry: Registry, entry: BinEntry, closure: Closure, wanted: Sequence[str], *, read_blobs: bool = False
) -> RestoredImage:
    taken = _taken(registry, entry, wanted)
    if wanted and len(taken) == len(wanted):
        raise Refused(
            f"{entry} cannot be restored under {', '.join(wanted)}",
            why="; ".join(f"{name} stands for {other}" for name, other in taken.items()),
            fix="give it another name with --to NAME",
        )
    if not is_whole(registry, closure, entry.repository, by_digest):
        bring(registry, closure, entry.bin, entry.repository, by_digest)
    check_whole(registry, closure, entry.repository, by_digest, read_blobs=read_blobs)
    for name in wanted:
        if not _stands_for(registry, entry.repository, name):
            registry.put_manifest(entry.repository, name, closure.image)
    return _outcome(registry, entry, wanted)


def _outcome(registry: Registry, entry: BinEntry, wanted: Sequence[str]) -> RestoredImage:
    """Read every tag again, and report what it stands for now."""
    found = {name: _stands_for(registry, entry.repository, name) for name in wanted}
    for name, digest in found.items():
        if not digest:
            raise MetadataError(
                f"{entry.repository}:{name} was put and is not there",
                why="a client deleted it at once, or the registry answers from a stale cache",
                fix="restore the image again; it is still in the recycle bin",
            )
    taken = {name: digest for name, digest in found.items() if digest != entry.digest}
    return RestoredImage(entry, tuple(name for name in found if name not in taken), taken)


def _taken(registry: Registry, entry: BinEntry, names: Iterable[str]) -> dict[str, str]:
    found = {name: _stands_for(registry, entry.repository, name) for name in names}
    return {name: digest for name, digest in found.items() if digest not in ("", entry.digest)}


def _stands_for(registry: Registry, repository: str, tag: str) -> str:
    """Return what a tag stands for; empty if it does not exist."""
    try:
        return registry.resolve(repository, tag).digest
    except NotFound:
        return ""


def _with_referrers(registry: Registry, back: RestoredImage, closure: Closure) -> RestoredImage:
    """Restore what follows the image; failures are reported, and the image is back anyway."""
    damage: list[str] = []
    others = list(entries(registry, back.entry.repository, lambda error: damage.append(str(error))))
    found, troubles = [], list(damage)
    for entry in followers(back.entry, closure.digests, others):
        try:
            part = closure_of(registry, entry.bin, entry.digest)
            found.append(_bring_back(registry, entry, part, entry.tag_names))
        except EbbtideError as error:
            troubles.append(str(error))
    return replace(back, referrers=tuple(found), troubles=tuple(troubles))


def _leave_bin(registry: Registry, back: RestoredImage, *, keep_in_bin: bool | None) -> RestoredImage:
    """Discard what was restored; the image last, so that a second call finds it until then."""
    every = [_mark(one, keep_in_bin=keep_in_bin) for one in (*back.referrers, back)]
    failed: dict[str, EbbtideError] = {}
    try:
        for done in discard_each(registry, [one.entry for one in every if not one.left_in_bin]):
            if done.error is not None:
                failed[done.entry.digest] = done.error
    except EbbtideError as error:
        failed[back.entry.digest] = error
    *parts, whole = [_still_there(one, failed) for one in every]
    return replace(whole, referrers=tuple(parts))


def _still_there(back: RestoredImage, failed: Mapping[str, EbbtideError]) -> RestoredImage:
    error = failed.get(back.entry.digest)
    if error is None:
        return back
    words = f"{back.entry} is back and could not be taken out of the bin: {error}"
    return replace(back, left_in_bin=True, troubles=(*back.troubles, words))


def _mark(back: RestoredImage, *, keep_in_bin: bool | None) -> RestoredImage:
    """Set whether it stays in the bin; it always does if all its tags were taken meanwhile."""
    homeless = bool(back.taken) and not back.tags
    return replace(back, left_in_bin=homeless or (bool(back.taken) if keep_in_bin is None else keep_in_bin))


def set_aside(
    registry: Registry,
    entry: BinEntry,
    *,
    read_blobs: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> BinEntry:
    """
    Copy an image with all that it needs into the bin, check the copy, and return its entry.

    The entry of an image that is in the bin already is merged. If the original is gone or incomplete and the
    bin has the image, an earlier call was followed by its delete, and nothing is left to do.
    """
    bin_name = bin_repository(entry.repository)
    known = find_entry(registry, entry.repository, entry.digest)
    try:
        # A child of an index may have been set aside and removed before the index.
        closure = closure_of(registry, entry.repository, entry.digest, or_in=bin_name)
        source = entry.repository
    except (NotFound, MetadataError):
        if known is None:
            raise
        closure, source = closure_of(registry, bin_name, entry.digest), ""
    result = merged(known[0] if known else None, entry)
    result = replace(result, subject=closure.subject, size=closure.size)
    document = write_entry(result, closure.descriptor)

    def copy_and_say_so() -> None:
        if source:
            bring(registry, closure, source, bin_name, manifest_tag)
        check_whole(registry, closure, bin_name, manifest_tag, read_blobs=read_blobs)
        if known is None or known[1] != document.digest:
            registry.put_manifest(bin_name, result.tag, document)

    despite_others(copy_and_say_so, sleep)
    if known is not None and known[1] != document.digest:
        _forget(registry, bin_name, known[1])
    return result


def _forget(registry: Registry, bin_name: str, document: str) -> None:
    """Delete the earlier document of an entry; if that is not possible, it stays without a tag."""
    with suppress(Denied, Unsupported):
        registry.delete_manifest(bin_name, document)
