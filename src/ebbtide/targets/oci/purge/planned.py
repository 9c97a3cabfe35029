"""The rows of a registry's plan, as whoever acts on them works with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

_READ = ["address", "version", "action", "condition", "rules", "created", "kept_because"]


class Action(StrEnum):
    """What is done with a tag or a manifest."""

    RECYCLE = "recycle"
    """It is set aside in the bin, and then removed from where it is."""
    DELETE = "delete"
    EMPTY = "empty"
    """It is removed from the bin."""


@dataclass(frozen=True)
class Planned:
    """A tag or, without one, a manifest that is to go."""

    number: int
    """Its place among the rows of the task."""
    repository: str
    digest: str
    tag: str
    action: str
    policy: str
    siblings: tuple[str, ...]
    """The other tags of the manifest, which stays: the registry must not take them with this one."""
    created: datetime | None
    kept: str | None
    """Why it must not be touched."""

    @property
    def name(self) -> str:
        """Name it as people do."""
        return f"{self.repository}:{self.tag}" if self.tag else f"{self.repository}@{self.digest}"

    @property
    def address(self) -> tuple[str, str]:
        """What all rows of one manifest share."""
        return self.repository, self.digest


def planned_items(batches: Iterable[Any]) -> Iterator[Planned]:
    """Read the rows of a task, numbered from 0."""
    number = 0
    for batch in batches:
        for row in batch.select(_READ).to_pylist():
            repository, _, digest = row["address"].partition("@")
            yield Planned(
                number,
                repository,
                digest,
                row["version"] or "",
                row["action"],
                (row["rules"] or [""])[0],
                tuple((row["condition"] or {}).get("siblings") or ()),
                row["created"],
                row["kept_because"],
            )
            number += 1


def by_manifest(items: Iterable[Planned]) -> list[list[Planned]]:
    """Put all rows of a manifest together."""
    ordered = sorted(items, key=lambda item: (item.address, item.number))
    return [list(group) for _, group in groupby(ordered, key=lambda item: item.address)]
