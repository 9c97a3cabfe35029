"""What targets hand to commands and pages to show: lines, tables, and the words for what a run does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import SafetyStop
from ebbtide.core.format import human_bytes, plural
from ebbtide.core.manifest import Summary, Tally


@dataclass(frozen=True)
class Table:
    """Rows under column names, and a line below them."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    numbers: tuple[int, ...] = ()
    """Which columns are aligned as numbers."""
    footer: str = ""


@dataclass(frozen=True)
class Heading:
    """A name that the lines below it are about, and what goes beside it."""

    name: str
    beside: str = ""


Block = str | Heading | Table


@dataclass(frozen=True)
class Explanation:
    """Why an item goes or stays: for people, and for programs."""

    blocks: tuple[Block, ...]
    plain: Any


class ConfirmationNeeded(SafetyStop):
    """A table has to be confirmed with an option of `ebb plan`; nothing was planned."""

    def __init__(
        self, what: str, why: str, fix: str, *, table: Table, plain: dict[str, Any], option: str
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.table = table
        self.plain = plain
        """The same for programs."""
        self.option = option
        """The name of the option that confirms it."""


_PLURALS: Mapping[str, str] = {"tag or manifest": "tags and manifests"}

SET_ASIDE = "Set aside in the recycle bin; 'ebb restore' brings it back until its days are over."
MEANINGS: Mapping[str, str] = {
    Outcome.DELETED: "Gone, and its space is free.",
    Outcome.RECYCLED: SET_ASIDE,
    Outcome.ABSENT: "Was already gone when its turn came. Nothing to do.",
    Outcome.CHANGED: "Needed or rewritten since the plan was made, so it was left alone.",
    Outcome.DENIED: "The store refused for want of permission. Still there; grant it, then apply again.",
    Outcome.FAILED: "The store failed, even after retries. Still there; apply again.",
    Outcome.NOT_REACHED: "Not tried, because others had failed. Still there; apply again.",
}
"""What outcomes mean where a run deletes objects."""


@dataclass(frozen=True)
class Words:
    """The words for the plans of one kind of target; the defaults are those of a run that deletes objects."""

    item: str = "object"
    known: str = "Known objects"
    acted: str = "deleted"
    """What was done to an item, as in "nothing was deleted"."""
    change: str = "delete"
    """What a plan does if it does anything, as in "it would delete nothing"."""
    would: str = "Would free"
    did: str = "Freed"
    goes: str = "What would go"
    planned: str = "What was planned to go"
    part: str = "Would go"
    planned_part: str = "Planned to go"
    subject: str = "Path and address"
    policy: str = "The policy"
    has_branches: bool = False
    """Whether items are on branches."""
    has_references: bool = True
    """Whether something may come to need a planned item."""
    frees_apart: bool = False
    """Not all that is done frees bytes, so that what is freed is said besides."""
    actions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What can be done, where that is not always to delete: the verb and the noun of each action."""
    meanings: Mapping[str, str] = field(default_factory=lambda: MEANINGS)
    """What each outcome means."""

    def items(self, number: int, kind: str = "") -> str:
        """Write a number of items."""
        return plural(number, f"{kind} {self.item}".strip())

    def amount(self, tally: Tally) -> str:
        """Write a size, and in how many items."""
        return f"{human_bytes(tally.bytes)} in {self.items(tally.objects)}"

    def intent(self, summary: Summary) -> str:
        """Return what applying a plan would do."""
        if not self.actions or not summary.by_action:
            return f"{self.would.removeprefix('Would ')} {self.amount(summary.due)}"
        freeing = f", freeing {human_bytes(summary.freed.bytes)}" if self.frees_apart else ""
        return f"{self.deeds(summary.by_action)}: {self.amount(summary.due)}{freeing}"

    def deeds(self, tallies: tuple[Tally, ...]) -> str:
        """
        Return what a plan does, action by action.

        >>> words = Words(actions={"expire": ("expire", "object"), "abort_upload": ("abort", "upload")})
        >>> words.deeds((Tally("expire", 2, 0), Tally("abort_upload", 1, 0)))
        'expire 2 objects and abort 1 upload'
        """
        parts = []
        for tally in tallies:
            verb, noun = self.actions.get(tally.label, (tally.label, "item"))
            parts.append(f"{verb} {plural(tally.objects, noun, _PLURALS.get(noun, ''))}")
        return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


OBJECTS = Words()
"""The words for a run that deletes objects."""
OBJECTS_WITH_BIN = Words(
    acted="set aside",
    change="set aside",
    would="Would set aside",
    did="Set aside",
)
"""The words for a run that moves objects into the recycle bin."""
