"""The survey of a registry before it is adopted: what falls under which policy, and what is due at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.core.display import ConfirmationNeeded, Table
from ebbtide.core.format import count, human_bytes, plural
from ebbtide.core.instant import format_instant, format_second
from ebbtide.targets.oci.model import GOES
from ebbtide.targets.oci.purge.policy import PurgePolicy


@dataclass(frozen=True)
class PolicyShare:
    """What falls under one policy, by a rule or because none matched."""

    policy: str
    unmatched: bool
    """No assign rule matches."""
    tags: int
    manifests: int
    bytes: int
    due: int
    """How many tags and manifests go at once."""
    due_bytes: int
    next_due: datetime | None
    """When the next of the others is due, if nothing holds it until then."""

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        moment = self.next_due
        return {**vars(self), "next_due": None if moment is None else format_instant(moment)}


def policy_shares(verdicts: DataFrame) -> list[PolicyShare]:
    """Count verdicts by policy, the most bytes first."""
    goes, is_tag = f.col("decision").isin(*GOES), f.col("tag") != ""
    waits = ~goes & (f.size("held_by") == 0)
    counted = verdicts.groupBy("policy", "unmatched").agg(
        f.count_if(is_tag).alias("tags"),
        f.count_if(~is_tag).alias("manifests"),
        f.sum("size").alias("bytes"),
        f.count_if(goes).alias("due"),
        f.sum(f.when(goes, f.col("size")).otherwise(0)).alias("due_bytes"),
        f.min(f.when(waits, f.col("deadline"))).alias("next_due"),
    )
    rows = [PolicyShare(**row) for row in counted.toArrow().to_pylist()]
    return sorted(rows, key=lambda row: (-row.bytes, row.policy, row.unmatched))


def not_adopted(url: str, policy: PurgePolicy, shares: Sequence[PolicyShare]) -> ConfirmationNeeded:
    """Return the error that a registry was never adopted, with the table to confirm."""
    policies = policy.policies
    happens = "are kept" if policies.keeps_unmatched else f"fall under {policies.unmatched}"
    return ConfirmationNeeded(
        f"{url} has not been adopted, so nothing was planned",
        f"no plan was ever confirmed here, and images that no rule matches {happens}",
        f"check the table, change the policies if needed, then run 'ebb plan {url} --adopt'",
        table=survey_table(url, shares),
        plain={"adopted": False, "policies": [share.plain() for share in shares]},
        option="adopt",
    )


def survey_table(url: str, shares: Sequence[PolicyShare]) -> Table:
    """Show what falls under which policy today."""
    rows = [
        (
            f"{share.policy} (no rule matches)" if share.unmatched else share.policy,
            count(share.tags),
            count(share.manifests),
            human_bytes(share.bytes),
            count(share.due),
            "" if share.next_due is None else format_second(share.next_due),
        )
        for share in shares
    ]
    due, alone = sum(share.due for share in shares), sum(share.due for share in shares if share.unmatched)
    size = human_bytes(sum(share.due_bytes for share in shares))
    return Table(
        f"What the policies would do in {url} today",
        ("policy", "tags", "manifests", "bytes", "due now", "next due"),
        rows,
        (1, 2, 3, 4),
        f"due now: {plural(due, 'item')} ({size}), {count(alone)} of them only because no rule matches",
    )
