"""What the bin knows of an image: where it was, under which tags, and until when it is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from ebbtide.targets.oci.recycling.naming import bin_repository, entry_tag


@dataclass(frozen=True)
class KeptTag:
    """A tag that an image had, and since when if that is known."""

    name: str
    moved_at: datetime | None = None


@dataclass(frozen=True)
class BinEntry:
    """One image in the bin. All of it is written into the registry, so no database is needed to restore."""

    repository: str
    """The name that the repository had, without that of the bin."""
    digest: str
    recycled_at: datetime
    expires_at: datetime
    """When the bin may forget it."""
    tags: tuple[KeptTag, ...] = ()
    policy: str = ""
    """The policy by which it went."""
    run_id: int | None = None
    reason: str = ""
    subject: str = ""
    """The manifest that it is about; found out when it is set aside."""
    size: int = 0
    """Bytes of all that it needs, each counted once; others may share them. Found out likewise."""

    @property
    def bin(self) -> str:
        """The repository in which it lies now."""
        return bin_repository(self.repository)

    @property
    def tag(self) -> str:
        """The tag under which the bin describes it."""
        return entry_tag(self.digest)

    @property
    def tag_names(self) -> tuple[str, ...]:
        """The names of its tags."""
        return tuple(tag.name for tag in self.tags)

    def __str__(self) -> str:
        """Name it as people do."""
        return f"{self.repository}@{self.digest}"


def merged(old: BinEntry | None, new: BinEntry) -> BinEntry:
    """
    Make one entry of two for the same image, which was pushed again and has expired again.

    It has the tags of both, with the values of the later one, and is kept as long as either would be.
    """
    if old is None:
        return replace(new, tags=_in_order(new.tags))
    earlier, later = sorted((old, new), key=lambda entry: entry.recycled_at)
    tags = {tag.name: tag for tag in (*earlier.tags, *later.tags)}
    return replace(
        later, tags=_in_order(tuple(tags.values())), expires_at=max(old.expires_at, new.expires_at)
    )


def _in_order(tags: tuple[KeptTag, ...]) -> tuple[KeptTag, ...]:
    return tuple(sorted(tags, key=lambda tag: tag.name))
