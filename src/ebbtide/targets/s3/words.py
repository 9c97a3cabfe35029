"""The words for plans of a bucket."""

from __future__ import annotations

from ebbtide.core.decision import Outcome
from ebbtide.core.words import SET_ASIDE, Words
from ebbtide.targets.s3.model import Action

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
    has_references=False,
    frees_apart=True,
    actions={
        Action.EXPIRE: ("expire", "object"),
        Action.DELETE_VERSION: ("delete", "noncurrent version"),
        Action.REMOVE_DELETE_MARKER: ("remove", "delete marker"),
        Action.TRANSITION: ("move", "version"),
        Action.ABORT_UPLOAD: ("abort", "upload"),
    },
    meanings={
        Outcome.DELETED: "Gone for good, and its space is free.",
        Outcome.HIDDEN: "A delete marker hides it. All its bytes are still stored: nothing was freed.",
        Outcome.MOVED: "In another storage class or location now.",
        Outcome.RECYCLED: SET_ASIDE,
        Outcome.ABSENT: "Was done or gone already when its turn came. Nothing to do.",
        Outcome.CHANGED: "Not what it was when the plan was made, so it was left alone.",
        Outcome.DENIED: "Refused: it is not permitted, or cannot be done. As it was; see its reason.",
        Outcome.FAILED: "The store failed, even after retries. As it was; apply again.",
        Outcome.NOT_REACHED: "Not tried, because others had failed. As it was; apply again.",
    },
)
