"""
The recheck of a repository's tags, directly before a manifest is deleted.

Deleting a manifest removes all its tags, also those that were put on it after the scan before the batch. So
the tags are listed again and compared with that scan. Everything that a new or moved tag needs stays: the
manifest it stands for, the children of an index, and what signs them.

What a recheck costs: one list of tags, and one HEAD for each tag that is new. A list does not show that a
known tag was moved, so all tags are resolved at the first recheck in a repository, and again whenever enough
manifests were removed to pay for it (`_HEADS_PER_MANIFEST`). Threads that wait for a recheck share the next.

Registries cannot delete on a condition. What a user does between the answer to the list and the delete is not
seen, and neither is a known tag that is moved between two resolves of all tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.targets.oci.client.manifest import MEDIA_TYPES
from ebbtide.targets.oci.client.names import digest_followed
from ebbtide.targets.oci.client.registry import Registry
from ebbtide.targets.oci.inventory.queries import (
    KINDS_WITHOUT_CHILDREN,
    list_tags,
    read_manifest,
    resolve_tag,
    run_queries,
)

ScannedTags = Mapping[str, Mapping[str, str]]
"""What each tag stood for at the scan before the batch, by repository and tag."""
_THREADS = 8
_HEADS_PER_MANIFEST = 4
"""With 100 tags, all of them are resolved again after every 25 removed manifests."""


class TagRecheck:
    """Rechecks the repositories of one task; threads may share it."""

    def __init__(self, registry: Registry, scanned: ScannedTags) -> None:
        self._registry, self._scanned, self._lock = registry, scanned, Lock()
        self._repositories: dict[str, _Repository] = {}

    def reason_to_keep(self, repository: str, digest: str, tags: Iterable[str] = ()) -> str:
        """Return why a manifest with these tags must stay; empty if nothing new needs it. Errors raise."""
        with self._lock:
            found = self._repositories.get(repository)
            if found is None:
                found = _Repository(self._registry, repository, self._scanned.get(repository, {}))
                self._repositories[repository] = found
        return found.reason_to_keep(digest, tags)


class _Repository:
    """The tags of a repository: as scanned, and as last seen."""

    def __init__(self, registry: Registry, name: str, scanned: Mapping[str, str]) -> None:
        self._registry, self._name, self._scanned = registry, name, scanned
        self._seen = dict(scanned)
        self._children: dict[str, list[str]] = {}
        self._needed: dict[str, str] = {}
        """The manifests that new and moved tags need, each with such a tag."""
        self._not_understood = ""
        self._manifests_left = 0
        """How many manifests may go before all tags are resolved again."""
        self._lock, self._started, self._done = Lock(), 0, 0

    def reason_to_keep(self, digest: str, tags: Iterable[str]) -> str:
        """Recheck the tags, unless another thread did so since this call, and compare."""
        asked = self._started
        with self._lock:
            self._manifests_left -= 1
            # A recheck that began before this call may have missed what this call must see.
            if self._done <= asked:
                self._started += 1
                self._recheck()
                self._done = self._started
            needed, not_understood = self._needed, self._not_understood
        if not_understood:
            return not_understood
        tag = next((needed[one] for one in self._kept_by(digest, tags, needed) if one in needed), "")
        return f"it would stay now: the tag {tag} has come to need it since the scan" if tag else ""

    def _kept_by(self, digest: str, tags: Iterable[str], needed: Mapping[str, str]) -> Iterable[str]:
        """Yield the manifests with which a manifest stays: itself, and what it signs."""
        yield digest
        yield from filter(None, map(digest_followed, tags))
        if needed:
            row = next(iter(read_manifest(self._registry, {"repository": self._name, "digest": digest})))
            yield str(row["subject"] or "")

    def _recheck(self) -> None:
        """List the tags, resolve those that are not known, and find what new and moved ones need."""
        listed = list_tags(self._registry, {"repository": self._name})
        names = {row["tag"] for row in listed if row["tag"] is not None}
        self._check_list(names)
        unknown = names - self._seen.keys()
        if self._manifests_left <= 0:
            unknown, self._manifests_left = names, len(names) // _HEADS_PER_MANIFEST
        known = names - unknown
        self._seen = {tag: digest for tag, digest in self._seen.items() if tag in known}
        questions = [{"repository": self._name, "tag": tag} for tag in sorted(unknown)]
        for answers in run_queries(self._registry, resolve_tag, questions, _THREADS):
            self._seen |= {row["tag"]: row["digest"] for row in answers}
        self._needed, self._not_understood = {}, ""
        for tag, digest in self._seen.items():
            if digest != self._scanned.get(tag):
                self._add_needed(tag, digest)

    def _check_list(self, names: set[str]) -> None:
        """Raise if the list leaves out a tag that is there: it may leave out new ones too."""
        for tag in self._seen.keys() - names:
            try:
                self._registry.resolve(self._name, tag)
            except NotFound:
                continue
            raise MetadataError(
                f"the list of tags of {self._name} is not complete",
                why=f"it does not contain {tag}, which exists",
                fix="apply again; if it happens again, the registry or a proxy before it shortens its lists",
            )

    def _add_needed(self, tag: str, digest: str) -> None:
        """Follow a tag to all manifests that it needs."""
        waiting = [digest]
        while waiting:
            one = waiting.pop()
            if one not in self._needed:
                self._needed[one] = tag
                waiting += self._children_of(tag, one)

    def _children_of(self, tag: str, digest: str) -> list[str]:
        """Read the children of a manifest, once; a kind that is not understood may need anything."""
        if digest not in self._children:
            row = next(iter(read_manifest(self._registry, {"repository": self._name, "digest": digest})))
            if not row["missing"] and row["media_type"] not in {*MEDIA_TYPES, *KINDS_WITHOUT_CHILDREN}:
                self._not_understood = (
                    f"it would stay now: the tag {tag} is new, and what it needs is not known"
                    f" because its kind is {row['media_type']!r}"
                )
                return []
            if row["missing"]:
                return []
            self._children[digest] = list(row["children"])
        return self._children[digest]
