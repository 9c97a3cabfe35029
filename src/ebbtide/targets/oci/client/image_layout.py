"""
A folder of OCI image layouts as a registry: what `skopeo copy` to `oci:` and oras write.

Each layout below the root is a repository, named by its path; the address of a single layout means its parent
folder with that one repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ebbtide.core.errors import BadInput, MetadataError, NotFound, Refused, Unsupported
from ebbtide.targets.oci.client.address import LayoutPath, parse_address
from ebbtide.targets.oci.client.layout_folder import MARKER, REF_NAME, TEMPORARY, IndexEntry, LayoutFolder
from ebbtide.targets.oci.client.manifest import (
    LARGEST_MANIFEST,
    MEDIA_TYPES,
    OCI_INDEX,
    OCI_MANIFEST,
    Content,
    parse_object,
    read_content,
)
from ebbtide.targets.oci.client.names import (
    check_bytes,
    check_digest,
    check_reference,
    check_repository,
    check_tag,
    fallback_tag,
    is_digest,
    is_repository,
)
from ebbtide.targets.oci.client.registry import (
    Ability,
    Bytes,
    Capabilities,
    Descriptor,
    Manifest,
    RegistrySpec,
)


@dataclass(frozen=True)
class ReachableContent:
    """The manifests and blobs that can be reached, by digest."""

    manifests: dict[str, Content]
    blobs: frozenset[str]


def load_manifest(layout: LayoutFolder, digest: str, media_type: str = "") -> Manifest:
    """Read and check one manifest; without a given media type the manifest itself must have one."""
    path = layout.blob_path(digest)
    if path.exists() and path.stat().st_size > LARGEST_MANIFEST:
        raise MetadataError(f"{digest} in {layout.folder} is too large to be a manifest")
    body = b"".join(layout.read_blob(digest))
    return Manifest(digest, media_type or _media_type_of(body, f"{digest} in {layout.folder}"), body)


def _media_type_of(body: bytes, what: str) -> str:
    """Determine the media type of a manifest; OCI's need not state it, but have different lists."""
    document = parse_object(body, what)
    if document.get("mediaType"):
        return str(document["mediaType"])
    if "manifests" in document:
        return OCI_INDEX
    if "config" in document and "layers" in document:
        return OCI_MANIFEST
    raise MetadataError(f"{what} is not a manifest", why="it has neither manifests nor layers")


def reachable_content(layout: LayoutFolder, starts: Iterable[Descriptor]) -> ReachableContent:
    """
    Follow indexes to their children and images to their blobs.

    A missing or damaged manifest raises, since what it needs cannot be known. Children whose kind is not a
    manifest are kept as blobs.
    """
    manifests: dict[str, Content] = {}
    blobs: set[str] = set()
    waiting = list(starts)
    while waiting:
        target = waiting.pop()
        if target.digest in manifests:
            continue
        if target.media_type and target.media_type not in MEDIA_TYPES:
            blobs.add(target.digest)
            continue
        try:
            content = read_content(load_manifest(layout, target.digest, target.media_type))
        except NotFound:
            raise MetadataError(
                f"the image layout {layout.folder} is damaged",
                why=f"it has no blob for the manifest {target.digest}",
                fix="copy the image there again, or remove its tags",
            ) from None
        manifests[target.digest] = content
        waiting.extend(content.children)
        blobs.update(blob.digest for blob in content.blobs)
    return ReachableContent(manifests, frozenset(blobs))


def remove_unneeded_blobs(layout: LayoutFolder, before: datetime) -> list[str]:
    """
    Remove the blobs that nothing reaches and that were written before a moment; return their digests.

    Younger ones stay, because an upload writes its blobs before the manifest that needs them.
    """
    removed = []
    with layout.locked():
        found = reachable_content(layout, [entry.target for entry in layout.entries()])
        needed = found.blobs | found.manifests.keys()
        for path in sorted((layout.folder / "blobs").glob("*/*")):
            digest = f"{path.parent.name}:{path.name}"
            is_left_over = path.name.startswith(TEMPORARY)
            if not (is_digest(digest) or is_left_over) or digest in needed or not path.is_file():
                continue
            if datetime.fromtimestamp(path.stat().st_mtime, UTC) < before:
                path.unlink(missing_ok=True)
                removed.extend([] if is_left_over else [digest])
    return removed


class ImageLayout:
    """A registry on disk; `Registry` defines what its methods promise."""

    def __init__(self, spec: RegistrySpec) -> None:
        address = parse_address(spec.url)
        if not isinstance(address, LayoutPath):
            raise BadInput(f"{spec.url} is not a folder", fix="open it as a server")
        if spec.options:
            raise BadInput(f"image layouts take no options, but {', '.join(spec.options)} is given")
        if not address.folder.is_dir():
            raise NotFound(f"there is no folder {address.folder}", fix="check that it is mounted, or make it")
        self._spec = spec
        single = (address.folder / MARKER).exists()
        self.root = address.folder.parent if single else address.folder
        self.only = check_repository(address.folder.name) if single else ""

    @property
    def spec(self) -> RegistrySpec:
        """Return how this registry was opened."""
        return self._spec

    def repositories(self) -> Iterator[str]:
        """Walk the folders in order; links are not followed, and an unreadable folder raises."""
        if self.only:
            yield self.only
            return
        for folder, below, files in os.walk(self.root, onerror=_unreadable):
            below.sort()
            if MARKER not in files:
                continue
            below[:] = [name for name in below if name != "blobs"]
            name = Path(folder).relative_to(self.root).as_posix()
            if not is_repository(name):
                raise MetadataError(f"the image layout {folder} does not have a valid repository name")
            yield name

    def tags(self, repository: str) -> Iterator[str]:
        """Return the tags of a repository in the order of index.json."""
        return iter(dict.fromkeys(entry.tag for entry in self._folder(repository).entries() if entry.tag))

    def untagged(self, repository: str) -> Iterator[str]:
        """Return what index.json lists without a tag, and the children of indexes."""
        layout = self._folder(repository)
        entries = layout.entries()
        tagged = {entry.target.digest for entry in entries if entry.tag}
        return iter(sorted(self._reachable(layout, entries).manifests.keys() - tagged))

    def resolve(self, repository: str, reference: str) -> Descriptor:
        """Look the reference up."""
        found = self.manifest(repository, reference)
        return Descriptor(found.digest, len(found.body), found.media_type)

    def manifest(self, repository: str, reference: str) -> Manifest:
        """Read a manifest and check its digest."""
        layout = self._folder(repository)
        is_wanted = check_reference(reference)
        for entry in layout.entries():
            if is_wanted in (entry.tag, entry.target.digest):
                return _load_listed(layout, entry.target)
        if not is_digest(reference):
            raise NotFound(f"there is no tag {reference} in {repository}")
        return load_manifest(layout, reference)

    def referrers(self, repository: str, digest: str) -> Sequence[Descriptor]:
        """Find the reachable manifests with this subject, and those listed under the fallback tag."""
        layout = self._folder(repository)
        entries = layout.entries()
        listed = [e.target for e in entries if e.tag == fallback_tag(digest)]
        found = {d.digest: d for index in listed for d in read_content(_load_listed(layout, index)).children}
        for name, content in self._reachable(layout, entries).manifests.items():
            if content.subject == digest:
                manifest = load_manifest(layout, name, _listed_media_type(entries, name))
                size = len(manifest.body)
                found[name] = Descriptor(name, size, manifest.media_type, content.artifact_type)
        return list(found.values())

    def blob_size(self, repository: str, digest: str) -> int:
        """Return the size of a blob."""
        path = self._folder(repository).blob_path(digest)
        try:
            return path.stat().st_size
        except FileNotFoundError:
            raise NotFound(f"there is no blob {digest} in {repository}") from None

    def blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """Stream a blob and check its digest."""
        return self._folder(repository).read_blob(check_digest(digest))

    def put_blob(
        self,
        repository: str,
        digest: str,
        size: int,  # noqa: ARG002 (part of the protocol; not needed on disk)
        open_bytes: Bytes,
    ) -> None:
        """Write a blob, or renew the time of an existing one, so that no sweep removes it."""
        layout = self._folder(repository, create=True)
        if layout.has_blob(digest):
            os.utime(layout.blob_path(digest))
        else:
            layout.write_blob(digest, open_bytes())

    def mount_blob(self, repository: str, digest: str, source: str) -> bool:
        """Copy a blob from another layout; a hard link would share later changes to either."""
        origin = self._folder(source)
        if not origin.blob_path(digest).exists():
            return False
        self.put_blob(repository, digest, self.blob_size(source, digest), lambda: origin.read_blob(digest))
        return True

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Write and list a manifest; the manifest that had the tag before stays listed without it."""
        check_bytes(manifest.body, manifest.digest, f"the manifest {repository} {reference}")
        if is_digest(check_reference(reference)) and reference != manifest.digest:
            raise BadInput(f"{manifest.digest} cannot be written as {reference}")
        layout = self._folder(repository, create=True)
        content = read_content(manifest)
        with layout.locked():
            for target in (*content.children, *content.blobs):
                if not layout.blob_path(target.digest).exists():
                    raise NotFound(f"{repository} has no {target.digest}", why="the manifest needs it")
            layout.write_blob(manifest.digest, [manifest.body])
            row = {
                "mediaType": manifest.media_type,
                "digest": manifest.digest,
                "size": len(manifest.body),
            }
            target = Descriptor(manifest.digest, len(manifest.body), manifest.media_type)
            tag = "" if is_digest(reference) else reference
            entries = _without_tag(layout.entries(), tag) if tag else layout.entries()
            if tag:
                entries = [e for e in entries if e.tag or e.target.digest != manifest.digest]
            elif any(entry.target.digest == manifest.digest for entry in entries):
                return
            new = {**row, "annotations": {REF_NAME: tag}} if tag else row
            layout.write_entries([*entries, IndexEntry(target, tag, new)])

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Remove a tag; its manifest stays listed."""
        layout = self._folder(repository)
        with layout.locked():
            entries = layout.entries()
            if check_tag(tag) not in {entry.tag for entry in entries}:
                return False
            layout.write_entries(_without_tag(entries, tag))
        return True

    def delete_manifest(self, repository: str, digest: str) -> bool:
        """Delete a manifest and its tags; Refused while an index that stays lists it."""
        layout = self._folder(repository)
        with layout.locked():
            entries = layout.entries()
            rest = [entry for entry in entries if entry.target.digest != check_digest(digest)]
            if digest in self._reachable(layout, rest).manifests:
                raise Refused(
                    f"{repository} {digest} cannot be deleted",
                    why="an index that stays has it as a child",
                    fix="delete the index first",
                )
            if len(rest) == len(entries) and not _is_manifest(layout, digest):
                return False
            layout.write_entries(rest)
            layout.blob_path(digest).unlink(missing_ok=True)
        return True

    def remove_unneeded_blobs(self, repository: str, before: datetime) -> list[str]:
        """Remove old blobs that nothing needs, as a server's garbage collection does."""
        return remove_unneeded_blobs(self._folder(repository), before)

    def capabilities(self, repository: str) -> Capabilities:
        """Everything is supported: on disk, referrers and untagged manifests are found by reading."""
        self._folder(repository).check()
        return Capabilities(Ability.YES, Ability.YES, Ability.YES, Ability.YES)

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _folder(self, repository: str, *, create: bool = False) -> LayoutFolder:
        if "blobs" in check_repository(repository).split("/"):
            raise BadInput(f"{repository!r} cannot be a layout", why="layouts keep their blobs in 'blobs'")
        layout = LayoutFolder(self.root / repository)
        if create:
            layout.create()
        layout.check()
        return layout

    def _reachable(self, layout: LayoutFolder, entries: Sequence[IndexEntry]) -> ReachableContent:
        return reachable_content(layout, [entry.target for entry in entries])


def _load_listed(layout: LayoutFolder, target: Descriptor) -> Manifest:
    """Read a listed manifest; if it is absent, the layout is damaged."""
    try:
        return load_manifest(layout, target.digest, target.media_type)
    except NotFound:
        raise MetadataError(
            f"the image layout {layout.folder} is damaged",
            why=f"index.json lists {target.digest}, which does not exist",
            fix="copy the image there again, or remove its tags",
        ) from None


def _is_manifest(layout: LayoutFolder, digest: str) -> bool:
    """Return True if an unlisted blob is a manifest: skopeo leaves those whose tag it moves."""
    try:
        read_content(load_manifest(layout, digest))
    except (NotFound, MetadataError, Unsupported):
        return False
    return True


def _listed_media_type(entries: Sequence[IndexEntry], digest: str) -> str:
    return next((e.target.media_type for e in entries if e.target.digest == digest), "")


def _without_tag(entries: Sequence[IndexEntry], tag: str) -> list[IndexEntry]:
    """Remove a tag from its row; a row without a tag is kept unless others list the same manifest."""
    others = {entry.target.digest for entry in entries if entry.tag != tag}
    result = []
    for entry in entries:
        if entry.tag != tag:
            result.append(entry)
        elif entry.target.digest not in others:
            notes = {k: v for k, v in entry.row.get("annotations", {}).items() if k != REF_NAME}
            row = {k: v for k, v in entry.row.items() if k != "annotations"}
            result.append(IndexEntry(entry.target, "", {**row, "annotations": notes} if notes else row))
            others.add(entry.target.digest)
    return result


def _unreadable(error: OSError) -> None:
    raise MetadataError(
        f"a folder below the layouts cannot be read ({type(error).__name__})", why="it may hold images"
    )
