"""
The entry of an image in a registry's bin: its fields, its document, and its names there.

An entry is an OCI image index: its only manifest is the image, its annotations contain the rest. So every
registry can store entries, and a lost database loses nothing that is in the bin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ebbtide.core.errors import BadInput, EbbtideError, MetadataError, Refused
from ebbtide.core.instant import NEVER, format_instant, parse_instant
from ebbtide.targets.oci.client.manifest import OCI_INDEX, parse_object, read_content
from ebbtide.targets.oci.client.names import (
    check_digest,
    check_repository,
    digest_of,
    fallback_tag,
    is_digest,
    is_repository,
    is_tag,
)
from ebbtide.targets.oci.client.registry import Descriptor, Manifest

PREFIX = "io.ebbtide.recycle."
VERSION = "1"
LARGEST_ENTRY = 4 * 2**20
"""Registries accept no larger manifests."""


def write_entry(entry: BinEntry, image: Descriptor) -> Manifest:
    """Write an entry; equal entries have equal bytes, so writing one again changes nothing."""
    notes = {
        "version": VERSION,
        "repository": entry.repository,
        "tags": _json([_write_tag(tag) for tag in entry.tags]),
        "recycled-at": format_instant(entry.recycled_at),
        "expires-at": format_instant(entry.expires_at),
        "policy": entry.policy,
        "run": "" if entry.run_id is None else str(entry.run_id),
        "reason": entry.reason,
        "subject": entry.subject,
        "size": str(entry.size),
    }
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [{"mediaType": image.media_type, "digest": image.digest, "size": image.size}],
        "annotations": {f"{PREFIX}{name}": value for name, value in notes.items()},
    }
    body = json.dumps(document, sort_keys=True).encode()
    if len(body) > LARGEST_ENTRY:
        raise Refused(
            f"{entry} cannot be set aside",
            why=f"what the bin has to say of its {len(entry.tags)} tags does not fit into a manifest",
            fix="remove some of its tags first",
        )
    return Manifest(digest_of(body), OCI_INDEX, body)


def read_entry_document(manifest: Manifest, repository: str, tag: str) -> BinEntry:
    """Read the document under an entry's tag; raise MetadataError if it is not a valid entry."""
    what = f"the entry {repository}:{tag}"
    try:
        entry = _read(manifest, original_of(repository))
    except (BadInput, MetadataError, ValueError, TypeError, KeyError, RecursionError) as wrong:
        raise damaged(what, _why(wrong)) from None
    if entry.tag != tag:
        raise damaged(what, f"it describes {entry.digest}, whose entry would be {entry.tag}")
    return entry


def _why(wrong: Exception) -> str:
    if isinstance(wrong, EbbtideError):
        return wrong.why or wrong.what
    return f"it says nothing of its {wrong.args[0]}" if isinstance(wrong, KeyError) else str(wrong)


def damaged(what: str, why: str) -> MetadataError:
    """Return the error for an entry that cannot be used although its image can be."""
    return MetadataError(
        f"{what} of the recycle bin cannot be understood",
        why=why,
        fix="its image may be intact: restore it by its digest, with a new tag (--to)",
    )


def _read(manifest: Manifest, repository: str) -> BinEntry:
    content = read_content(manifest)
    document = parse_object(manifest.body, "it")
    notes = _texts(document.get("annotations"))
    if notes.get("version") != VERSION:
        raise ValueError(f"its version is {notes.get('version')!r} and not {VERSION!r}")
    if notes["repository"] != repository:
        raise ValueError(f"it is about the repository {notes['repository']!r}")
    if len(content.children) != 1:
        raise ValueError(f"it has {len(content.children)} manifests and not one")
    subject = notes["subject"]
    if subject and not is_digest(subject):
        raise ValueError(f"its subject is {subject!r}")
    tags = _of_kind(json.loads(notes["tags"]), list)
    return BinEntry(
        repository=repository,
        digest=content.children[0].digest,
        recycled_at=_read_time(notes["recycled-at"]),
        expires_at=_read_time(notes["expires-at"]),
        tags=tuple(_read_tag(_of_kind(row, dict)) for row in tags),
        policy=notes["policy"],
        run_id=int(notes["run"]) if notes["run"] else None,
        reason=notes["reason"],
        subject=subject,
        size=int(notes["size"]),
    )


def _texts(notes: object) -> dict[str, str]:
    """Return Ebbtide's annotations."""
    found = _of_kind(notes, dict)
    ours = {name.removeprefix(PREFIX): value for name, value in found.items() if name.startswith(PREFIX)}
    return {name: _of_kind(value, str) for name, value in ours.items()}


def _write_tag(tag: KeptTag) -> dict[str, Any]:
    moved = {"moved_at": format_instant(tag.moved_at)} if tag.moved_at else {}
    return {"name": tag.name, **moved}


def _read_tag(row: Mapping[str, Any]) -> KeptTag:
    name = _of_kind(row["name"], str)
    if not is_tag(name):
        raise ValueError(f"{name!r} is not a tag")
    moved = row.get("moved_at")
    return KeptTag(name, None if moved is None else _read_time(moved))


def _read_time(text: object) -> datetime:
    found = str(_of_kind(text, str))
    return NEVER if found == "never" else parse_instant(found)


def _of_kind(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} in it is of the wrong kind")
    return value


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


BIN = "ebbtide-recycle/"
"""Repositories whose names begin with this are bins; scans leave them out."""

MARKER_REPOSITORY = f"{BIN}ebbtide-registry-marker"
"""The repository of the registry's marker; it is not the bin of a repository."""

_ENTRY, _MANIFEST = "e-", "m-"
_LONGEST_VALUE = 96
_OWN = re.compile(r"[em]-(?:[0-9a-f]{64}|sha512-[0-9a-f]{96})", re.ASCII)


def is_bin(repository: str) -> bool:
    """Return True if a repository is the bin of another."""
    return repository.startswith(BIN) and is_repository(repository.removeprefix(BIN))


def bin_repository(repository: str) -> str:
    """
    Return the name of a repository's bin; raise Refused if it would be too long for a registry.

    >>> bin_repository("team/app")
    'ebbtide-recycle/team/app'
    """
    if is_bin(check_repository(repository)):
        raise BadInput(f"{repository} is a bin itself", fix="give the name that the images had before")
    name = f"{BIN}{repository}"
    if name == MARKER_REPOSITORY:
        raise Refused(
            f"{repository} can have no recycle bin",
            why=f"{name} is where Ebbtide keeps the marker of the registry",
            fix="move its images to another name",
        )
    if not is_repository(name):
        raise Refused(
            f"{repository} can have no recycle bin",
            why=f"{name!r} would be longer than the 255 characters that a name may have",
            fix="give its images a policy that does not recycle, or move them to a shorter name",
        )
    return name


def original_of(repository: str) -> str:
    """Return the repository that a bin belongs to."""
    if not is_bin(repository):
        raise BadInput(f"{repository!r} is not a recycle bin", fix=f"bins are named {BIN}REPOSITORY")
    return repository.removeprefix(BIN)


def entry_tag(digest: str) -> str:
    """Return the tag of an image's entry."""
    return f"{_ENTRY}{_value(digest)}"


def manifest_tag(digest: str) -> str:
    """
    Return the tag that keeps a manifest in the bin.

    A registry's collector may remove what has no tag, and even the children of an index that has one.
    """
    return f"{_MANIFEST}{_value(digest)}"


def is_entry_tag(tag: str) -> bool:
    """Return True for the tag of an entry."""
    return tag.startswith(_ENTRY)


def is_manifest_tag(tag: str) -> bool:
    """Return True for a tag that only keeps a manifest."""
    return tag.startswith(_MANIFEST)


def image_tag(tag: str) -> str:
    """Return the tag that keeps the image of an entry's tag."""
    return f"{_MANIFEST}{tag.removeprefix(_ENTRY)}"


def is_own_shape(tag: str) -> bool:
    """Return True if a tag looks like one of Ebbtide's; only its content proves it."""
    return bool(_OWN.fullmatch(tag))


def image_reference(tag: str) -> str:
    """
    Return the digest of the image of an entry's tag, or its tag if the digest is too long for that.

    The digest is better: a client may have moved the tag.
    """
    digest = f"sha256:{tag.removeprefix(_ENTRY)}"
    return digest if is_digest(digest) else image_tag(tag)


def _value(digest: str) -> str:
    """Write a digest so that it fits into a tag; a SHA-512 is shortened."""
    algorithm, _, value = check_digest(digest).partition(":")
    return value if algorithm == "sha256" else f"{algorithm}-{value[:_LONGEST_VALUE]}"


@dataclass(frozen=True)
class KeptTag:
    """A tag that an image had, and since when if that is known."""

    name: str
    moved_at: datetime | None = None


@dataclass(frozen=True)
class BinEntry:
    """One image in the bin. It is stored in the registry, so that a restore needs no database."""

    repository: str
    """The original repository, without the prefix of bins."""
    digest: str
    recycled_at: datetime
    expires_at: datetime
    """From when on it may be removed from the bin."""
    tags: tuple[KeptTag, ...] = ()
    policy: str = ""
    """The policy by which it expired."""
    run_id: int | None = None
    reason: str = ""
    subject: str = ""
    """The subject of its manifest; read when it is set aside."""
    size: int = 0
    """Bytes of all that it needs, each blob once; other images may share them."""

    @property
    def bin(self) -> str:
        """The repository of the bin that contains it."""
        return bin_repository(self.repository)

    @property
    def tag(self) -> str:
        """The tag of its entry."""
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
    Merge two entries of an image that was pushed again and has expired again.

    The result has the tags of both, the values of the later one, and the later expiry.
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


_ENDINGS = ("", ".sig", ".att", ".sbom")
"""The suffixes of cosign's tags; the empty one is the list that replaces the referrers API."""
_LONGEST_STEM = 71
_NAMED_AFTER = re.compile(r"sha(?:256|512)-[0-9a-f]{64,}(?:\.sig|\.att|\.sbom)?")


def followers(entry: BinEntry, digests: Iterable[str], others: Sequence[BinEntry]) -> list[BinEntry]:
    """
    Return the entries that follow an image with these manifests, each after what it follows.

    An entry follows if its subject is one of them, or if one of its tags is named after one.
    """
    found: dict[str, BinEntry] = {}
    waiting = list(digests)
    while waiting:
        subject = waiting.pop(0)
        names = signature_tags(subject)
        for other in others:
            follows = other.subject == subject or not names.isdisjoint(other.tag_names)
            if follows and other.digest != entry.digest and other.digest not in found:
                found[other.digest] = other
                waiting.append(other.digest)
    return list(found.values())


def is_follower(entry: BinEntry) -> bool:
    """Return True if an image signs or describes another, by its subject or by the names of its tags."""
    return bool(entry.subject) or any(_NAMED_AFTER.fullmatch(name) for name in entry.tag_names)


def signature_tags(digest: str) -> frozenset[str]:
    """Return the tags under which tools look for signatures of a manifest; long digests are shortened."""
    whole = fallback_tag(digest)
    return frozenset(f"{stem}{end}" for stem in {whole, whole[:_LONGEST_STEM]} for end in _ENDINGS)
