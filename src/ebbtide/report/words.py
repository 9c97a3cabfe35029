"""What things are called: a run deletes objects of a lake, acts on items of a bucket, purges images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ebbtide.bucket.model import Action
from ebbtide.plan.decision import EMPTY_BIN
from ebbtide.plan.manifest import Manifest, Summary, Tally
from ebbtide.report.format import human_bytes, plural

_DEEDS: Mapping[str, tuple[str, str]] = {
    Action.EXPIRE: ("expire", "object"),
    Action.DELETE_VERSION: ("delete", "noncurrent version"),
    Action.REMOVE_DELETE_MARKER: ("remove", "delete marker"),
    Action.TRANSITION: ("move", "version"),
    Action.ABORT_UPLOAD: ("abort", "upload"),
    "recycle": ("recycle", "tag or manifest"),
    "delete": ("delete", "tag or manifest"),
    "empty": ("remove from the bin", "image"),
}
_PLURALS: Mapping[str, str] = {"tag or manifest": "tags and manifests"}


@dataclass(frozen=True)
class Words:
    """The words for one kind of target."""

    item: str
    known: str
    acted: str
    """What was done to an item, as in "nothing was deleted"."""
    change: str
    """What a plan does if it does anything, as in "it would delete nothing"."""
    would: str
    did: str
    goes: str
    planned: str
    part: str
    planned_part: str
    subject: str
    policy: str
    has_branches: bool

    def items(self, number: int, kind: str = "") -> str:
        """Write a number of items."""
        return plural(number, f"{kind} {self.item}".strip())

    def amount(self, tally: Tally) -> str:
        """Write a size, and in how many items."""
        return f"{human_bytes(tally.bytes)} in {self.items(tally.objects)}"

    def intent(self, summary: Summary) -> str:
        """Say what applying a plan would do."""
        if self.has_branches or not summary.by_collector:
            return f"{self.would.removeprefix('Would ')} {self.amount(summary.due)}"
        return f"{deeds(summary.by_collector)}: {self.amount(summary.due)}"


LAKE = Words(
    item="object",
    known="Known objects",
    acted="deleted",
    change="delete",
    would="Would free",
    did="Freed",
    goes="What would go",
    planned="What was planned to go",
    part="Would go",
    planned_part="Planned to go",
    subject="Path and address",
    policy="The policy",
    has_branches=True,
)
LAKE_WITH_BIN = replace(
    LAKE,
    acted="set aside",
    change="set aside",
    would="Would set aside",
    did="Set aside",
)
BUCKET = Words(
    item="item",
    known="Known versions, markers and uploads",
    acted="acted on",
    change="change",
    would="Would act on",
    did="Acted on",
    goes="What would be done",
    planned="What was planned to be done",
    part="Would be acted on",
    planned_part="Planned to be acted on",
    subject="Key, action and version",
    policy="The rules",
    has_branches=False,
)
REGISTRY = replace(
    BUCKET,
    known="Known tags and manifests",
    acted="purged",
    change="purge",
    would="Would purge",
    did="Purged",
    goes="What would go",
    planned="What was planned to go",
    part="Would go",
    planned_part="Planned to go",
    subject="Image, action and tag",
    policy="The policies",
)


def words_of(manifest: Manifest) -> Words:
    """Choose the words for a run."""
    if manifest.target.startswith("s3://"):
        return LAKE if manifest.collector == EMPTY_BIN else BUCKET
    if manifest.target.startswith(("oci://", "oci-layout:")):
        return REGISTRY
    return LAKE_WITH_BIN if manifest.recycling else LAKE


def deeds(tallies: tuple[Tally, ...]) -> str:
    """
    Say what a plan for a bucket does, action by action.

    >>> deeds((Tally("expire", 2, 0), Tally("abort_upload", 1, 0)))
    'expire 2 objects and abort 1 upload'
    """
    parts = []
    for tally in tallies:
        verb, noun = _DEEDS.get(tally.label, (tally.label, "item"))
        parts.append(f"{verb} {plural(tally.objects, noun, _PLURALS.get(noun, ''))}")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
