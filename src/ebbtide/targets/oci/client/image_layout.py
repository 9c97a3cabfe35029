"""
A folder of OCI image layouts as a registry: what `skopeo copy` to `oci:` and oras write.

Each layout below the root is a repository, named by its path; the address of a single layout is its parent
folder with that one repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from ebbtide.core.errors import BadInput, MetadataError, NotFound, Refused, Unsupported
from ebbtide.targets.oci.base import Ability, Bytes, Capabilities, Descriptor, Manifest, RegistrySpec
from ebbtide.targets.oci.client.address import LayoutPath, parse_address
from ebbtide.targets.oci.client.layout_index import MARKER, REF_NAME, Entry, LayoutFolder
from ebbtide.targets.oci.client.layout_reach import Reach, load_manifest, reach, remove_unneeded_blobs
from ebbtide.targets.oci.documents import read_content
from ebbtide.targets.oci.names import (
    check_bytes,
    check_digest,
    check_reference,
    check_repository,
    check_tag,
    fallback_tag,
    is_digest,
    is_repository,
)


class ImageLayout:
    """A registry on disk; see `Registry` for what its methods promise."""

    def __init__(self, spec: RegistrySpec) -> None:
        address = parse_address(spec.url)
        if not isinstance(address, LayoutPath):
            raise BadInput(f"{spec.url} is no folder", fix="open it as a server")
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
        """Say how this registry was opened."""
        return self._spec

    def repositories(self) -> Iterator[str]:
        """Walk the folders in order; links are not followed, and a folder that cannot be read raises."""
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
                raise MetadataError(f"the image layout {folder} has no name that a repository can have")
            yield name

    def tags(self, repository: str) -> Iterator[str]:
        """Give the tags of a repository in the order of index.json."""
        return iter(dict.fromkeys(entry.tag for entry in self._at(repository).entries() if entry.tag))

    def untagged(self, repository: str) -> Iterator[str]:
        """Give what index.json lists without a tag, and the children of indexes."""
        layout = self._at(repository)
        entries = layout.entries()
        tagged = {entry.target.digest for entry in entries if entry.tag}
        return iter(sorted(self._reach(layout, entries).manifests.keys() - tagged))

    def resolve(self, repository: str, reference: str) -> Descriptor:
        """Look the reference up."""
        found = self.manifest(repository, reference)
        return Descriptor(found.digest, len(found.body), found.media_type)

    def manifest(self, repository: str, reference: str) -> Manifest:
        """Read a manifest and check its digest."""
        layout = self._at(repository)
        is_wanted = check_reference(reference)
        for entry in layout.entries():
            if is_wanted in (entry.tag, entry.target.digest):
                return _listed(layout, entry.target)
        if not is_digest(reference):
            raise NotFound(f"there is no tag {reference} in {repository}")
        return load_manifest(layout, reference)

    def referrers(self, repository: str, digest: str) -> Sequence[Descriptor]:
        """Find the manifests in reach that name this as their subject, or that the fallback tag lists."""
        layout = self._at(repository)
        entries = layout.entries()
        listed = [e.target for e in entries if e.tag == fallback_tag(digest)]
        found = {d.digest: d for index in listed for d in read_content(_listed(layout, index)).children}
        for name, content in self._reach(layout, entries).manifests.items():
            if content.subject == digest:
                manifest = load_manifest(layout, name, _kind(entries, name))
                size = len(manifest.body)
                found[name] = Descriptor(name, size, manifest.media_type, content.artifact_type)
        return list(found.values())

    def blob_size(self, repository: str, digest: str) -> int:
        """Give the size of a blob."""
        path = self._at(repository).blob_path(digest)
        try:
            return path.stat().st_size
        except FileNotFoundError:
            raise NotFound(f"there is no blob {digest} in {repository}") from None

    def blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """Stream a blob and check its digest."""
        return self._at(repository).read_blob(check_digest(digest))

    def put_blob(
        self,
        repository: str,
        digest: str,
        size: int,  # noqa: ARG002 (the protocol's; a disk need not know it before)
        open_bytes: Bytes,
    ) -> None:
        """Write a blob, or make the one that is there young again, so that no sweep takes it meanwhile."""
        layout = self._at(repository, create=True)
        if layout.has_blob(digest):
            os.utime(layout.blob_path(digest))
        else:
            layout.write_blob(digest, open_bytes())

    def mount_blob(self, repository: str, digest: str, source: str) -> bool:
        """Copy a blob from another layout; a hard link would share later changes to either."""
        origin = self._at(source)
        if not origin.blob_path(digest).exists():
            return False
        self.put_blob(repository, digest, self.blob_size(source, digest), lambda: origin.read_blob(digest))
        return True

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Write a manifest and list it; a tag leaves the manifest that it stood for listed without one."""
        check_bytes(manifest.body, manifest.digest, f"the manifest {repository} {reference}")
        if is_digest(check_reference(reference)) and reference != manifest.digest:
            raise BadInput(f"{manifest.digest} cannot be written as {reference}")
        layout = self._at(repository, create=True)
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
            layout.write_entries([*entries, Entry(target, tag, new)])

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Take a tag away; its manifest stays listed."""
        layout = self._at(repository)
        with layout.locked():
            entries = layout.entries()
            if check_tag(tag) not in {entry.tag for entry in entries}:
                return False
            layout.write_entries(_without_tag(entries, tag))
        return True

    def delete_manifest(self, repository: str, digest: str) -> bool:
        """Delete a manifest and its tags; Refused while an index that stays has it as a child."""
        layout = self._at(repository)
        with layout.locked():
            entries = layout.entries()
            rest = [entry for entry in entries if entry.target.digest != check_digest(digest)]
            if digest in self._reach(layout, rest).manifests:
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
        """Do what a server's garbage collector does: remove blobs that nothing needs and that are old."""
        return remove_unneeded_blobs(self._at(repository), before)

    def capabilities(self, repository: str) -> Capabilities:
        """Say that everything works: on a disk, referrers and untagged manifests are found by looking."""
        self._at(repository).check()
        return Capabilities(Ability.YES, Ability.YES, Ability.YES, Ability.YES)

    def close(self) -> None:
        """Nothing is held open."""

    def _at(self, repository: str, *, create: bool = False) -> LayoutFolder:
        if "blobs" in check_repository(repository).split("/"):
            raise BadInput(f"{repository!r} cannot be a layout", why="layouts keep their blobs in 'blobs'")
        layout = LayoutFolder(self.root / repository)
        if create:
            layout.create()
        layout.check()
        return layout

    def _reach(self, layout: LayoutFolder, entries: Sequence[Entry]) -> Reach:
        return reach(layout, [entry.target for entry in entries])


def _listed(layout: LayoutFolder, target: Descriptor) -> Manifest:
    """Read a manifest that is listed; if it is not there, the layout is damaged and not the question."""
    try:
        return load_manifest(layout, target.digest, target.media_type)
    except NotFound:
        raise MetadataError(
            f"the image layout {layout.folder} is damaged",
            why=f"index.json lists {target.digest}, and it is not there",
            fix="copy the image there again, or remove its tags",
        ) from None


def _is_manifest(layout: LayoutFolder, digest: str) -> bool:
    """Tell whether a blob that nothing lists is a manifest: skopeo leaves those whose tag it moves."""
    try:
        read_content(load_manifest(layout, digest))
    except (NotFound, MetadataError, Unsupported):
        return False
    return True


def _kind(entries: Sequence[Entry], digest: str) -> str:
    return next((e.target.media_type for e in entries if e.target.digest == digest), "")


def _without_tag(entries: Sequence[Entry], tag: str) -> list[Entry]:
    """Take a tag off its row; a row without a tag is kept, unless others list the same manifest."""
    others = {entry.target.digest for entry in entries if entry.tag != tag}
    result = []
    for entry in entries:
        if entry.tag != tag:
            result.append(entry)
        elif entry.target.digest not in others:
            notes = {k: v for k, v in entry.row.get("annotations", {}).items() if k != REF_NAME}
            row = {k: v for k, v in entry.row.items() if k != "annotations"}
            result.append(Entry(entry.target, "", {**row, "annotations": notes} if notes else row))
            others.add(entry.target.digest)
    return result


def _unreadable(error: OSError) -> None:
    raise MetadataError(
        f"a folder below the layouts cannot be read ({type(error).__name__})", why="it may hold images"
    )
