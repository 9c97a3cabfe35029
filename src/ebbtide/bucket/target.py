"""A bucket as the target of a plan: what apply asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ebbtide.bucket.sources import Sourced
from ebbtide.engine.deleting import Attempt, Deleter
from ebbtide.engine.fencing import Unfenced
from ebbtide.engine.restoring import check_not_restored_since
from ebbtide.errors import BadInput, StalePlan
from ebbtide.ledger.runs import Ledger
from ebbtide.plan.manifest import Manifest


@dataclass(frozen=True)
class BucketTarget(Unfenced):
    """
    A bucket with its rules.

    There is nothing to fence: versions refer to nothing, and a bucket cannot be closed to its users. What
    they did since the plan is seen by whoever deletes, key by key, directly before it.
    """

    current: Callable[[], Sourced]
    """Reads the rules and the state of the bucket as they are now."""
    make_deleter: Callable[[Attempt], Deleter]
    ledger: Ledger

    @property
    def in_order(self) -> bool:
        """Always: versions are listed once more before they go, and a page lists neighbours."""
        return True

    def deleter(self, attempt: Attempt) -> Deleter:
        """Make what acts on the rows of a wave on the executors."""
        return self.make_deleter(attempt)

    def check_still_meant(self, manifest: Manifest) -> None:
        """Stop if the bucket is gone, or its rules or its versioning are no longer what was planned."""
        try:
            now = self.current()
        except BadInput as broken:
            raise _stale(f"{manifest.target} or its rules are gone: {broken.what}") from broken
        if now.policy_hash != manifest.policy_hash:
            raise _stale(f"the rules or the versioning of {manifest.target} were changed")
        wanted = self.ledger.recycling_days(manifest.target_uid)
        if wanted != (manifest.recycling.days if manifest.recycling else None):
            raise _stale(f"for how long {manifest.target} sets aside what expires was changed")
        check_not_restored_since(self.ledger, manifest)


def _stale(what: str) -> StalePlan:
    return StalePlan(what, why="the plan was made for something else", fix="plan again")
