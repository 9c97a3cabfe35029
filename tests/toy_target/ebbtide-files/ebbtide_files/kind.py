"""The kind of target that folders are. Every command imports this module, so it imports little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ebbtide.core.errors import BadInput
from ebbtide.core.manifest import Manifest
from ebbtide.core.words import OBJECTS, OBJECTS_WITH_BIN, Words
from ebbtide.storage.namespace import overlap
from ebbtide.targets.kinds import owned_namespaces
from ebbtide.targets.target import Workspace

if TYPE_CHECKING:
    from ebbtide_files.target import FilesTarget


class FilesKind:
    """Folders whose files go when they are old."""

    usage = "files:FOLDER"
    plural = "folders"
    planned_by = "its policy file"
    options = ()

    def url(self, text: str) -> str:
        """Return the absolute path of a folder as a URL, so that a folder has one name only."""
        return f"files:{Path(text.removeprefix('files:')).resolve()}"

    def open(self, url: str, workspace: Workspace) -> FilesTarget:
        """Open a folder; one that shares files with the state root or another target is refused."""
        from ebbtide_files.target import FilesTarget  # noqa: PLC0415 (it imports Spark)

        folder, root = url.removeprefix("files:"), str(workspace.root.resolve())
        for name, place in {"the state root": root, **owned_namespaces(workspace)}.items():
            if overlap(folder, place):
                raise BadInput(f"{folder} and {name} ({place}) overlap", fix="use another folder")
        return FilesTarget(workspace.context, Path(folder))

    def namespaces(self, workspace: Workspace) -> Mapping[str, str]:
        """Return nothing: a folder belongs to its users."""
        return {}

    def words(self, plan: Manifest) -> Words:
        """Return the words for objects, with "file" in place of "object"."""
        words = OBJECTS_WITH_BIN if plan.recycling else OBJECTS
        return replace(words, item="file", known="Known files", has_references=False)

    def described(self, plan: Manifest) -> list[str]:
        """Add nothing to the counts that every plan shows."""
        return []


KIND = FilesKind()
