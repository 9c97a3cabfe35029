"""
An entry of the bin as an OCI image index: its one manifest is the image, its annotations say the rest.

So every registry keeps entries as it keeps images, and whoever loses Ebbtide's database loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ebbtide.core.errors import BadInput, EbbtideError, MetadataError, Refused
from ebbtide.core.instant import NEVER, format_instant, parse_instant
from ebbtide.targets.oci.base import Descriptor, Manifest
from ebbtide.targets.oci.documents import OCI_INDEX, parse_object, read_content
from ebbtide.targets.oci.names import digest_of, is_digest, is_tag
from ebbtide.targets.oci.recycling.entry import BinEntry, KeptTag
from ebbtide.targets.oci.recycling.naming import original_of

PREFIX = "io.ebbtide.recycle."
VERSION = "1"
LARGEST_ENTRY = 4 * 2**20
"""Registries take no larger manifests."""


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
    """Read what lies under an entry's tag of a bin; MetadataError names it if it is not what it should be."""
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
    """Make the error for an entry that cannot be used, and say that its image can be."""
    return MetadataError(
        f"{what} of the recycle bin cannot be understood",
        why=why,
        fix="its image may be whole: restore it by its digest and name it with --to",
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
    """Take our annotations out of all."""
    found = _of_kind(notes, dict)
    ours = {name.removeprefix(PREFIX): value for name, value in found.items() if name.startswith(PREFIX)}
    return {name: _of_kind(value, str) for name, value in ours.items()}


def _write_tag(tag: KeptTag) -> dict[str, Any]:
    moved = {"moved_at": format_instant(tag.moved_at)} if tag.moved_at else {}
    return {"name": tag.name, **moved}


def _read_tag(row: Mapping[str, Any]) -> KeptTag:
    name = _of_kind(row["name"], str)
    if not is_tag(name):
        raise ValueError(f"{name!r} is no tag")
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
