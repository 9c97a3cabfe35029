"""The words for plans of a registry."""

from __future__ import annotations

from ebbtide.core.decision import Outcome
from ebbtide.core.words import SET_ASIDE, Words

REGISTRY = Words(
    item="item",
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
    has_references=False,
    actions={
        "recycle": ("recycle", "tag or manifest"),
        "delete": ("delete", "tag or manifest"),
        "empty": ("remove from the bin", "image"),
    },
    meanings={
        Outcome.DELETED: "Gone for good: nothing of it is in the recycle bin.",
        Outcome.RECYCLED: SET_ASIDE,
        Outcome.ABSENT: "Was gone already when its turn came. Nothing to do.",
        Outcome.CHANGED: "Needed again, or not what it was when the plan was made, so it was left alone.",
        Outcome.DENIED: "Refused: not permitted, or the registry cannot do it. As it was; see its reason.",
        Outcome.FAILED: "The registry failed, even after retries. Apply again.",
        Outcome.NOT_REACHED: "Not tried, because the registry had failed at others. As it was; apply again.",
    },
)
