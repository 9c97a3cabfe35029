"""The kind of target that folders are. Every command imports this module, so it imports little."""

from __future__ import annotations

from pathlib import Path

from ebbtide.core.errors import BadInput
from ebbtide.storage.namespace import overlap
from ebbtide.targets.kinds import owned_namespaces
from ebbtide.targets.target import PolicySuite, Target, TargetKind, Workspace


class FilesKind(TargetKind):
    """Folders whose files go when they are old."""

    usage = "files:FOLDER"
    plural = "folders"
    planned_by = "its policy file"
    world = "files"
    item = "file"

    def url(self, text: str) -> str:
        """Return the absolute path of a folder as a URL, so that a folder has one name only."""
        return f"files:{Path(text.removeprefix('files:')).resolve()}"

    def open(self, url: str, workspace: Workspace) -> Target:
        """Open a folder; one that shares files with the state root or another target is refused."""
        from ebbtide_files.target import FilesTarget  # noqa: PLC0415 (it imports Spark)

        folder, root = url.removeprefix("files:"), str(workspace.root.resolve())
        for name, place in {"the state root": root, **owned_namespaces(workspace)}.items():
            if overlap(folder, place):
                raise BadInput(f"{folder} and {name} ({place}) overlap", fix="use another folder")
        return FilesTarget(workspace.context, Path(folder))

    def policy_suite(self) -> PolicySuite:
        """Return the tests of policies."""
        from ebbtide_files.policy_suite import FilesSuite  # noqa: PLC0415 (it imports Spark)

        return FilesSuite()


KIND = FilesKind()
