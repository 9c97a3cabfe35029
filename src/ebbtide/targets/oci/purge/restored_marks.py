"""What a restored image is assigned: its policy again, from the day of the restore (requirement 6.0)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.graph import follows_a_digest
from ebbtide.targets.oci.purge.known import copied_before
from ebbtide.targets.oci.purge.shop import RegistryShop
from ebbtide.targets.oci.records.marks import restoring
from ebbtide.targets.oci.records.model import Target
from ebbtide.targets.oci.recycling.restoring import Restored

RESTORED = "assign its policy again, because it was restored"
"""What the log says of a restored tag or manifest that has a date of its own."""
BACK = "restored from the recycle bin"
"""What the log says of one that has none."""


def reassigned(shop: RegistryShop, done: Restored, by: str) -> dict[str, datetime]:
    """
    Assign the policies of a restored image and of its referrers again, and give their new dates by name.

    Without this the date by which it went would count, and the next purge would take it again. The log has
    the values before and after.
    """
    dates = {}
    for target in _targets(done):
        if not _has_date(shop, target, done):
            shop.records.note_image(shop.uid, by, str(target), BACK)
            continue
        seen = copied_before(shop.records, shop.root, shop.uid, shop.spec.url, target)
        change = shop.records.change_mark(shop.uid, target, restoring, by, RESTORED, seen)
        if change.after is not None:
            dates[str(target)] = change.after.assigned.expires_at or NEVER
    return dates


def restored_names(done: Restored) -> list[str]:
    """Name what a restore brought back: the tags of an image, and the image by its digest."""
    entry = done.entry
    return [*(f"{entry.repository}:{tag}" for tag in done.tags), f"{entry.repository}@{entry.digest}"]


def _targets(done: Restored) -> Iterator[Target]:
    """Give all that came back, tags before the manifest that they stand for."""
    for one in (done, *done.referrers):
        repository, digest = one.entry.repository, one.entry.digest
        yield from (Target(repository, tag, digest) for tag in one.tags)
        yield Target(repository, "", digest)


def _has_date(shop: RegistryShop, target: Target, done: Restored) -> bool:
    """Return True if a tag or manifest expires by itself, and not with what it belongs to."""
    if target.tag:
        return not follows_a_digest(target.tag)
    # What is assigned to a manifest counts for all its tags, so it gets nothing new if it has any.
    tagged = {one.entry.digest for one in (done, *done.referrers) if one.tags}
    return target.digest not in tagged or shop.records.mark(shop.uid, target) is not None
