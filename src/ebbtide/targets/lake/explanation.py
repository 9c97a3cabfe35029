"""Explanations of a repository's objects: every reference, when each lapses, and what runs have done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from ebbtide.core.decision import Decision
from ebbtide.core.display import Block, Explanation, Heading, Table
from ebbtide.core.errors import NotFound
from ebbtide.core.format import human_bytes
from ebbtide.core.instant import format_second
from ebbtide.targets.lake.burials import RunGraveyard
from ebbtide.targets.lake.catalog.model import DeletedRepository
from ebbtide.targets.lake.explaining import (
    ItemVerdict,
    ObjectExplanation,
    explain,
    held_since_restore,
    taken_away,
)
from ebbtide.targets.lake.lifecycle.memory import Memory
from ebbtide.targets.lake.metadata.world import world_of
from ebbtide.targets.lake.rulebook import every_rule
from ebbtide.targets.lake.stored_objects import explain_deleted, explain_stored
from ebbtide.targets.lake.workshop import Workshop


def explained(shop: Workshop, name: str, item: str, grace: timedelta, now: datetime) -> Explanation:
    """Explain a key or an address of a repository; NotFound if nothing there is called so."""
    found = _found(shop, name, item, grace, now)
    if not found:
        raise NotFound(
            f"nothing in lake:{name} references {item!r}",
            why="no branch, tag, commit or staging area names it",
            fix="check the spelling with 'ebb lake ls'",
        )
    return Explanation(tuple(block for one in found for block in blocks(one)), found)


def _found(shop: Workshop, name: str, item: str, grace: timedelta, now: datetime) -> list[ObjectExplanation]:
    """Explain an item as all rules of the repository see it."""
    catalog = shop.catalog
    try:
        rules = every_rule(catalog, name)
    except NotFound:
        deleted = explain_deleted(catalog, _deleted(shop, name), item, grace, now)
        return [deleted] if deleted else []
    store, snapshot = catalog.store(name).spec, catalog.snapshot(name)
    repository = snapshot.repository
    memory = Memory.of(shop.root, repository.uid, repository.namespace)
    world = world_of(snapshot, store, rules.policy, now, rules.retention)
    found = explain(replace(world, reference_folder=memory.references), item)
    if not found:
        stored = explain_stored(catalog, name, item, grace, now)
        found = [stored] if stored else []
    graveyard = RunGraveyard(shop.root, shop.ledger, store.options)
    return [
        taken_away(
            held_since_restore(one, graveyard.restored(name, one.address), now),
            graveyard.lookup(name, one.address),
        )
        for one in found
    ]


def _deleted(shop: Workshop, name: str) -> DeletedRepository:
    """Find a repository that was deleted; if there is none, there never was one of this name."""
    for gone in shop.catalog.retired():
        if gone.name == name:
            return shop.catalog.retired_repository(name)
    raise NotFound(f"there is no repository {name!r}", fix="create it, or list those that there are")


def blocks(e: ObjectExplanation) -> Iterator[Block]:
    """Lay out one explanation."""
    yield Heading(e.address, human_bytes(e.size))
    if e.burial:
        b = e.burial
        how = f"set aside until {format_second(b.until)}" if b.until else "for good"
        back = f"; ebb restore {b.run_id} {e.address}" if b.until else ""
        done = "took" if b.until else "deleted"
        by = ", ".join(b.rules)
        yield f"GONE since {format_second(b.since)}: run {b.run_id} {done} it by {by}; {how}{back}"
    yield from map(_sentence, e.verdicts)
    if not e.references:
        return
    rows = [
        (
            r.key,
            ", ".join(r.reached),
            format_second(r.created),
            format_second(r.lapse),
            ", ".join(r.rules) or "no rule",
        )
        for r in e.references
    ]
    yield Table("", ("key", "reached", "written", "lapses", "rules"), rows)
    terms = dict.fromkeys((t.key, t.keeper, format_second(t.until)) for t in e.terms)
    if terms:
        yield Table("By retention", ("key", "kept", "until"), list(terms))


def _sentence(verdict: ItemVerdict) -> str:
    """Say in one sentence what a collector makes of an object, and why."""
    until = format_second(verdict.deadline)
    if verdict.decision == Decision.DUE:
        by = f" (rules: {', '.join(verdict.rules)})" if verdict.rules else ""
        return f"DUE by {verdict.collector} since {until}: {verdict.reason}{by}"
    if verdict.decision == Decision.HELD:
        return f"HELD from {verdict.collector} (until {until}): {verdict.reason}: {verdict.holder}"
    return f"KEPT by {verdict.collector}: {verdict.reason}: {verdict.holder}"
