"""Explain every row of a plan, and compare: whatever a plan decides, explain must say the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.services.lake import REPOSITORY, Lake

from ebbtide.core.decision import DELETED_REPOSITORY, EMPTY_BIN, Decision
from ebbtide.core.manifest import Manifest
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.targets.lake.removed_objects import RemovedObjectLookup
from ebbtide.targets.lake.repository import DeletedCatalogRepository
from ebbtide.targets.repository.explanation import (
    ItemVerdict,
    ObjectExplanation,
    combined_verdict,
    explain,
    explain_deleted,
    explain_stored,
    with_removal,
)
from ebbtide.targets.repository.rules import GRACE, every_rule, parse_rules
from ebbtide.targets.repository.world import world_of


def told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a row of a plan says, in the words of an explanation; what is due has no reason there."""
    due = row["decision"] == Decision.DUE
    return {
        "decision": row["decision"],
        "deadline": row["deadline"],
        "reason": None if due else row["hold"],
        "holder": None if due else row["holder"],
        "rules": list(row["rules"]),
        "collector": row["collector"],
        "paths": list(row["names"]),
    }


def said(verdict: ItemVerdict) -> dict[str, Any]:
    """Give what an explanation says, as far as a plan says it too."""
    due = verdict.decision == Decision.DUE
    if not verdict.reason:
        raise AssertionError(f"no reason: {verdict}")
    return {
        "decision": verdict.decision,
        "deadline": verdict.deadline,
        "reason": None if due else verdict.reason,
        "holder": None if due else verdict.holder,
        "rules": list(verdict.rules),
        "collector": verdict.collector,
        "paths": list(verdict.paths),
    }


def said_by(explanation: ObjectExplanation, collectors: Iterable[str]) -> dict[str, Any]:
    """Give what those collectors together say of an address."""
    asked = set(collectors)
    return said(combined_verdict(one for one in explanation.verdicts if one.collector in asked))


def explained_in(lake: Lake, text: str) -> ObjectExplanation:
    """Explain a key or an address of a lake at the clock's time, as the command does."""
    rules, snapshot = every_rule(lake.repository), lake.repository.snapshot()
    world = world_of(lake.repository, snapshot, rules.policy, lake.clock(), rules.retention)
    named = explain(world, text)
    found = named[0] if named else explain_stored(lake.repository, text, GRACE, lake.clock())
    if len(named) > 1 or found is None:
        raise AssertionError(f"{text} has {len(named)} explanations")
    graveyard = RemovedObjectLookup(lake.shop.root, lake.ledger)
    return with_removal(found, graveyard.lookup(REPOSITORY, found.address))


def explained_in_deleted(lake: Lake, text: str) -> ObjectExplanation:
    """Explain an object of a lake that was deleted."""
    gone = lake.catalog.deleted_repository(REPOSITORY)
    found = explain_deleted(DeletedCatalogRepository(lake.catalog, gone), text, GRACE, lake.clock())
    if found is None:
        raise AssertionError(f"{text} is not explained")
    return found


def compare_with_explanations(lake: Lake, manifest: Manifest) -> list[dict[str, Any]]:
    """Explain each row of a plan of a lake; give the rows, after a look that both say the same of each."""
    rows = list(stream_decisions(run_folder(lake.shop.root, manifest.run_id)))
    asked: tuple[str, ...] = (manifest.collector,)
    if manifest.collector not in (EMPTY_BIN, DELETED_REPOSITORY):
        asked = tuple(map(str, parse_rules(manifest.policy, manifest.collector).collectors))
    explained = explained_in_deleted if manifest.collector == DELETED_REPOSITORY else explained_in
    for row in rows:
        answer = said_by(explained(lake, row["address"]), asked)
        if answer != told(row):
            raise AssertionError(f"{row['address']}: the plan says {told(row)}, explain says {answer}")
    return rows
