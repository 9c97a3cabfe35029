"""Histories: the worlds that one repository went through, each to be judged at its own time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from ebbtide.targets.repository.world_document import WorldDocument

World = tuple[WorldDocument, datetime]


@dataclass
class History:
    """What happened to one repository, and the snapshots at which runs were planned."""

    worlds: list[World] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seed: int = 0
    """From which Hypothesis made it, with a few others."""

    def tell(self, what: str, ended: str = "done") -> None:
        """Add a line to the story, and count it under its first word and under how it ended."""
        self.story.append(what if ended == "done" else f"{what}: {ended}")
        self.counts["steps"] += 1
        self.counts[f"{what.split('(', 1)[0]} {ended}"] += 1

    def record(self, document: WorldDocument, now: datetime) -> None:
        """Remember a snapshot that was planned."""
        self.worlds.append((document, now))
        self.tell(f"plan({len(self.worlds)}, at {now:%d.%m. %H:%M})")
