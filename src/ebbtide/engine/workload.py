"""The size of a run before it begins: Spark is started for it. A wrong estimate costs time, nothing else."""

from __future__ import annotations

from ebbtide.core.errors import EbbtideError
from ebbtide.core.manifest import Manifest
from ebbtide.engine.collector import Collector, Context
from ebbtide.engine.run_folder import run_folder


def items_to_plan(context: Context, collector: Collector) -> int | None:
    """Return about how many items a plan will read: the collector's estimate, or as many as the last plan."""
    try:
        found = collector.estimate()
        return _last_known(context, collector) if found is None else found
    except EbbtideError:
        # The plan itself meets the same error and reports it.
        return None


def items_to_apply(plan: Manifest) -> int:
    """Return about how many items an apply will read: new references may be anywhere in the target."""
    return max(plan.summary.known_objects, plan.summary.due.objects)


def _last_known(context: Context, collector: Collector) -> int | None:
    last = context.ledger.latest_plan(collector.identity.url)
    if last is None:
        return None
    plan = run_folder(context.root, last).read_manifest()
    same = plan.target_uid == collector.identity.uid and plan.collector == collector.name
    return items_to_apply(plan) if same else None
