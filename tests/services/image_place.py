"""A folder of image layouts for tests, and the commands that work on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.services.bin_kit import tags_of
from tests.services.ebb import Ebb

from ebbtide.cli.state import State
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import RegistrySpec
from ebbtide.targets.oci.kind import image_records, registry_context

FIRST = "2026-01-01T00:00:00Z"
LATER = "2026-01-06T00:00:00Z"
APP = "team/app"
ALL = ("--yes", "--override-breaker")
"""Small tests remove everything that there is."""


def adopt(target: str, by: str = "tests") -> None:
    """Adopt a registry in the state root of the folder that commands run in, as `ebb plan --adopt` does."""
    state = State()
    image_records(state).adopt(registry_context(state, target).uid, by)


class ImagePlace:
    """A folder of image layouts, and the commands that work on it."""

    def __init__(self, ebb: Ebb, folder: Path, *, adopted: bool = True) -> None:
        folder.mkdir()
        self.ebb, self.target = ebb, f"oci-layout:{folder}"
        self.client = ImageLayout(RegistrySpec(self.target))
        if adopted:
            adopt(self.target)

    def ref(self, name: str) -> str:
        """Name an image of the folder."""
        return f"{self.target}//{name}"

    def scan(self, now: str = FIRST) -> tuple[str, str]:
        """Scan the folder."""
        return self.ebb("image", "scan", self.target, now=now)

    def plan(self, *words: str, now: str = LATER) -> Any:
        """Make a plan."""
        return self.ebb.json("plan", self.target, *words, now=now)

    def apply(self, now: str = LATER, code: int = 0) -> dict[str, int]:
        """Apply the newest plan, and count how its rows ended."""
        said = self.ebb("apply", "latest", *ALL, "--json", now=now, code=code)
        return {} if code else {n: t["objects"] for n, t in json.loads(said[0])["outcomes"].items()}

    def due(self) -> set[str]:
        """Name what the newest plan would remove."""
        return {row["paths"][0] for row in self.ebb.lines("plan", "show", "latest", "--all")}

    def states(self) -> dict[str, str]:
        """Say where a listing says that each tag is."""
        return {row["tag"]: row["state"] for row in self.ebb.lines("image", "ls", self.target)}

    def tags(self, repository: str = APP) -> dict[str, str]:
        """Say what each tag of a repository stands for."""
        return tags_of(self.client, repository)

    def policies(self, document: dict[str, Any]) -> None:
        """Load policies."""
        (self.ebb.folder / "policies.json").write_text(json.dumps(document))
        self.ebb("image", "policy", "load", self.target, "policies.json")
