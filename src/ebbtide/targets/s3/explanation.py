"""Explanations of a bucket's keys: what the rules make of their versions, and what runs have done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ebbtide.core.display import Block, Explanation, Table
from ebbtide.core.errors import NotFound
from ebbtide.core.instant import NEVER, format_instant, format_second
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.targets.s3.bin import restored_versions
from ebbtide.targets.s3.deeds import Deed, find_deeds
from ebbtide.targets.s3.enclosed import Enclosed, enclosing
from ebbtide.targets.s3.explaining import Explained, explain_key
from ebbtide.targets.s3.lines import plain_verdict
from ebbtide.targets.s3.model import Action, Upload, Verdict, Version
from ebbtide.targets.s3.shop import BucketShop
from ebbtide.targets.s3.sources import Sourced

_COLUMNS = ("version or upload", "kind", "decision", "action", "rule", "deadline", "reason")
ABSENT = "absent"


def explained(shop: BucketShop, rules: Sourced, key: str, now: datetime) -> Explanation:
    """Explain what is and what was under a key; NotFound if there never was anything."""
    removed = RemovedTable(shop.root, shop.ledger, shop.uid)
    found = explain_key(open_bucket(shop.spec), key, rules, now, restored_versions(removed, key))
    deeds = find_deeds(removed, key)
    if not found and not deeds:
        raise NotFound(
            f"{shop.spec.url} has no version and no upload of {key!r}",
            why="and no run under this state root has done anything to one",
            fix="check the spelling",
        )
    location = enclosing(rules.enclosed, key)
    plain = [*_there(found, deeds, location), *_gone(found, deeds, key)]
    return Explanation(tuple(_blocks(shop.spec.url, key, found, deeds, location)), plain)


def _blocks(
    url: str, key: str, found: list[Explained], deeds: list[Deed], location: Enclosed | None
) -> Iterator[Block]:
    """Lay out what is there and what was done."""
    yield (
        _verdicts(f"{url}/{key}", found) if found else f"{url} has no version and no upload of {key} any more"
    )
    if location:
        begins = f"rules whose prefix begins with {location.prefix!r}"
        yield f"it lies in the location {location.name}, so only {begins} are about it"
    for one in found:
        yield from (f"{_name(one.item)}: {note}" for note in one.notes)
    yield from map(_sentence, deeds)


def _verdicts(title: str, found: list[Explained]) -> Table:
    rows = []
    for one in found:
        action = f"{one.verdict.action} {one.verdict.storage_class or ''}".strip()
        shown = "" if one.deadline == NEVER else format_second(one.deadline)
        why = one.holder or one.reason
        rows.append((_name(one.item), _kind(one), one.decision, action, ", ".join(one.rules), shown, why))
    return Table(title, _COLUMNS, rows)


def _kind(one: Explained) -> str:
    """Say what it is: an upload, or a version or delete marker that is current or not."""
    if isinstance(one.item, Upload):
        return "upload"
    kind = "delete marker" if one.item.is_delete_marker else "version"
    return f"current {kind}" if one.current else f"noncurrent {kind}"


def _sentence(deed: Deed) -> str:
    kind = "upload" if deed.action is Action.ABORT_UPLOAD else "version"
    rules = ", ".join(deed.rules) or "no named rule"
    at = format_second(deed.at)
    return f"{kind} {deed.version}: run {deed.run_id} {deed.what}, by {rules}, at {at}"


def _there(found: list[Explained], deeds: list[Deed], location: Enclosed | None) -> list[dict[str, Any]]:
    """Give what is there, with what was done to it and did not end it."""
    rows = []
    for one in found:
        row = plain_verdict(one.item, one.verdict) | {
            "kind": _kind(one),
            "decision": one.decision,
            "deadline": format_instant(one.deadline),
            "reason": one.reason,
            "holder": one.holder,
            "rules": list(one.rules),
        }
        done = [deed for deed in deeds if deed.version == _name(one.item) and not deed.ended_it]
        if done:
            row["done"] = [_plain(deed) for deed in done]
        if one.notes:
            row["notes"] = one.notes
        if location and isinstance(one.item, Version):
            row["location"] = location.name
        rows.append(row)
    return rows


def _gone(found: list[Explained], deeds: list[Deed], key: str) -> list[dict[str, Any]]:
    """Give what is there no more, as far as a run has had a hand in it."""
    names = {_name(one.item) for one in found}
    past = [deed for deed in deeds if deed.ended_it or deed.version not in names]
    rows = []
    for version in dict.fromkeys(deed.version for deed in past):
        done = [deed for deed in past if deed.version == version]
        is_upload = done[0].action is Action.ABORT_UPLOAD
        item = Upload(key, version) if is_upload else Version(key, version)
        last = done[0]  # they come the last first
        gone = {
            "decision": ABSENT,
            "reason": f"run {last.run_id} {last.what}",
            "holder": "",
            "deadline": None,
        }
        plain = plain_verdict(item, Verdict()) | gone | {"rules": list(last.rules)}
        rows.append(plain | {"gone": True, "done": [_plain(deed) for deed in done]})
    return rows


def _plain(deed: Deed) -> dict[str, Any]:
    return {
        "run_id": deed.run_id,
        "at": deed.at,
        "action": str(deed.action),
        "rules": deed.rules,
        "outcome": str(deed.outcome),
        "what": deed.what,
    }


def _name(item: Version | Upload) -> str:
    return item.upload_id if isinstance(item, Upload) else item.version_id
