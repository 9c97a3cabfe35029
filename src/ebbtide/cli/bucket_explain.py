"""`ebb explain s3://BUCKET KEY`: what the rules make of a key's versions, and what runs have done to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ebbtide.bucket.deeds import Deed, find_deeds
from ebbtide.bucket.enclosed import Enclosed, enclosing
from ebbtide.bucket.explaining import Explained, explain_key
from ebbtide.bucket.lines import plain_verdict
from ebbtide.bucket.model import Action, Upload, Verdict, Version
from ebbtide.cli.bucket_plan import BucketChoice
from ebbtide.cli.console import print_json, safe, say, table
from ebbtide.cli.state import State
from ebbtide.errors import NotFound
from ebbtide.rules.instant import format_instant
from ebbtide.store.s3_versions import open_bucket

_VERDICT = ("action", "storage_class", "rule_id", "due", "held_by")


def explain_in_bucket(
    state: State, target: str, key: str, choice: BucketChoice, now: datetime, *, as_json: bool
) -> None:
    """Print what is and what was under a key."""
    rules, shop = choice.rules(state, target), state.bucket_shop(target)
    found = explain_key(open_bucket(shop.spec), key, rules, now)
    deeds = find_deeds(state.root, state.ledger, shop.uid, key)
    if not found and not deeds:
        raise NotFound(
            f"{target} has no version and no upload of {key!r}",
            why="and no run under this state root has done anything to one",
            fix="check the spelling",
        )
    location = enclosing(rules.enclosed, key)
    if as_json:
        print_json([*_there(found, deeds, location), *_gone(found, deeds, key)])
        return
    if found:
        _show_verdicts(f"{target}/{key}", found)
    else:
        say(f"{safe(target)} has no version and no upload of [bold]{safe(key)}[/bold] any more")
    if location:
        begins = f"rules whose prefix begins with {location.prefix!r}"
        say(f"  it lies in the location {safe(location.name)}, so only {safe(begins)} are about it")
    for one in found:
        for note in one.notes:
            say(f"  {safe(_name(one.item))}: {safe(note)}")
    for deed in deeds:
        say(f"  {safe(_sentence(deed))}")


def _show_verdicts(title: str, found: list[Explained]) -> None:
    rows = []
    for one in found:
        plain = plain_verdict(one.item, one.verdict)
        rows.append((_name(one.item), *(plain[column] or "" for column in _VERDICT)))
    table(title, ("version or upload", *_VERDICT), rows)


def _sentence(deed: Deed) -> str:
    kind = "upload" if deed.action is Action.ABORT_UPLOAD else "version"
    rules = ", ".join(deed.rules) or "no named rule"
    at = format_instant(deed.at)
    return f"{kind} {deed.version}: run {deed.run_id} {deed.what}, by {rules}, at {at}"


def _there(found: list[Explained], deeds: list[Deed], location: Enclosed | None) -> list[dict[str, Any]]:
    """Give what is there, with what was done to it and did not end it."""
    rows = []
    for one in found:
        row = plain_verdict(one.item, one.verdict)
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
        rows.append(plain_verdict(item, Verdict()) | {"gone": True, "done": [_plain(deed) for deed in done]})
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
