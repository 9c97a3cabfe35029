"""Images for tests of the recycle bin: a whole repository, what is in it, and entries for the bin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.services.image_kit import Pushed, push_image, push_index, push_signature

from ebbtide.core.errors import NotFound
from ebbtide.targets.oci.bin.entry import BinEntry, KeptTag
from ebbtide.targets.oci.bin.image_copy import Closure, closure_of, removal_order
from ebbtide.targets.oci.bin.moves import set_aside
from ebbtide.targets.oci.client.manifest import read_content
from ebbtide.targets.oci.client.registry import Registry

DAY = timedelta(days=1)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def entry_of(
    repository: str, pushed: Pushed, tags: Iterable[str] = (), at: datetime = NOON, run_id: int | None = 7
) -> BinEntry:
    """Make an entry as a purge does."""
    kept = tuple(KeptTag(name, at - 9 * DAY) for name in tags)
    return BinEntry(
        repository,
        pushed.digest,
        recycled_at=at,
        expires_at=at + 15 * DAY,
        tags=kept,
        policy="Default",
        run_id=run_id,
        reason="expired",
    )


def recycle(registry: Registry, entry: BinEntry) -> BinEntry:
    """Set an image aside and delete the original with its children, as a purge does."""
    closure = closure_of(registry, entry.repository, entry.digest)
    done = set_aside(registry, entry)
    for digest in removal_order({one.digest: read_content(one) for one in closure.manifests}):
        registry.delete_manifest(entry.repository, digest)
    return done


def whole(registry: Registry, repository: str, digest: str) -> dict[str, bytes]:
    """Read every byte of an image: its manifests and blobs by their digests."""
    closure = closure_of(registry, repository, digest)
    bodies = {manifest.digest: manifest.body for manifest in closure.manifests}
    return bodies | {b.digest: b"".join(registry.blob(repository, b.digest)) for b in closure.blobs}


def tags_of(registry: Registry, repository: str) -> dict[str, str]:
    """Say what every tag of a repository stands for; none if there is no such repository."""
    try:
        return {tag: registry.resolve(repository, tag).digest for tag in registry.tags(repository)}
    except NotFound:
        return {}


@dataclass(frozen=True)
class Team:
    """A repository with all that makes bins hard, and what every image of it is made of."""

    repository: str
    multi: Pushed
    """An index of two platforms under two tags."""
    sibling: Pushed
    """Another index, with one of these platforms."""
    signature: Pushed
    """A referrer of the first index, and its list under the fallback tag."""
    listed: Pushed
    cosign: Pushed
    """A signature of the first index under cosign's tag."""
    old: Pushed
    """What the tag `moved` stood for before."""
    new: Pushed

    @property
    def entries(self) -> list[BinEntry]:
        """What a purge sets aside if all but the new image goes: referrers and indexes before the rest."""
        stem = self.multi.digest.replace(":", "-")
        return [
            entry_of(self.repository, self.cosign, [f"{stem}.sig"]),
            entry_of(self.repository, self.listed, [stem]),
            entry_of(self.repository, self.multi, ["v1", "latest"]),
            entry_of(self.repository, self.sibling, ["v2"]),
            entry_of(self.repository, self.old),
        ]


def push_team(registry: Registry, repository: str) -> Team:
    """Push the images of a team."""
    shared = push_image(registry, repository, layers=[b"base", b"arm"], name="arm64")
    amd = push_image(registry, repository, layers=[b"base", b"amd"], name="amd64")
    other = push_image(registry, repository, layers=[b"base", b"other"], name="riscv")
    multi = push_index(registry, repository, ["v1", "latest"], [shared, amd])
    sibling = push_index(registry, repository, ["v2"], [shared, other])
    signature = push_signature(registry, repository, multi)
    stem = multi.digest.replace(":", "-")
    listed = Pushed(registry.manifest(repository, stem))
    cosign = push_image(registry, repository, [f"{stem}.sig"], layers=[b"cosign"], name="cosign")
    old = push_image(registry, repository, ["moved"], layers=[b"base", b"old"], name="old")
    new = push_image(registry, repository, ["moved"], layers=[b"base", b"new"], name="new")
    return Team(repository, multi, sibling, signature, listed, cosign, old, new)


def recycle_all(registry: Registry, entries: Iterable[BinEntry]) -> list[BinEntry]:
    """Set all aside, then delete all originals, in an order that never leaves a broken index."""
    found = list(entries)
    closures: list[Closure] = [closure_of(registry, one.repository, one.digest) for one in found]
    done = [set_aside(registry, entry) for entry in found]
    contents = {one.digest: read_content(one) for closure in closures for one in closure.manifests}
    for digest in removal_order(contents):
        registry.delete_manifest(found[0].repository, digest)
    return done
