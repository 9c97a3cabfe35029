"""
Explanations of keys of a bucket: what the rules say of each version and upload now, and what runs have done.

An answer has the words of a plan: decision, deadline, reason, holder and rules are those of the plan's row.
For an item that no rule applies to, which has no row in a plan, it says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.display import Block, Explanation, Table
from ebbtide.core.errors import NotFound
from ebbtide.core.instant import NEVER, format_instant, format_second, from_micros
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.storage.s3_bucket import VersionedBucket, open_bucket
from ebbtide.storage.s3_versions import VersionRow
from ebbtide.targets.s3.bin import restored_until, restored_versions
from ebbtide.targets.s3.context import BucketContext, EffectiveRules
from ebbtide.targets.s3.model import BIN_ROOT, NULL, Action, Hold, Upload, Verdict, Version, Versioning
from ebbtide.targets.s3.nested import NestedLocation, lakes_around, location_around, merge_protected
from ebbtide.targets.s3.oracle import Position, evaluate, find_positions, matches
from ebbtide.targets.s3.rules.configuration import Configuration, Rule, needs_tags
from ebbtide.targets.s3.rules.storage_classes import STANDARD
from ebbtide.targets.s3.run_history import PastAction, past_actions
from ebbtide.targets.s3.simulation import plain_verdict

_COLUMNS = ("version or upload", "kind", "decision", "action", "rule", "deadline", "reason")
ABSENT = "absent"


def explain(context: BucketContext, rules: EffectiveRules, key: str, now: datetime) -> Explanation:
    """Explain a key: what it has now, and what runs removed. Raise NotFound if there is neither."""
    removed = RemovedTable(context.root, context.ledger, context.uid)
    found = explain_key(open_bucket(context.spec), key, rules, now, restored_versions(removed, key))
    past = past_actions(removed, key)
    if not found and not past:
        raise NotFound(
            f"{context.spec.url} has no version and no upload of {key!r}",
            why="no run under this state root has changed one either",
            fix="check the spelling",
        )
    location = location_around(rules.nested, key)
    plain = [*_present(found, past, location), *_removed(found, past, key)]
    return Explanation(tuple(_blocks(context.spec.url, key, found, past, location)), plain)


def _blocks(
    url: str, key: str, found: list[ItemExplanation], past: list[PastAction], location: NestedLocation | None
) -> Iterator[Block]:
    """Yield what is there and what was done, for people."""
    yield (
        _verdicts(f"{url}/{key}", found) if found else f"{url} has no version and no upload of {key} any more"
    )
    if location:
        begins = f"rules whose prefix begins with {location.prefix!r}"
        yield f"it is in the location {location.name}, so only {begins} apply"
    for one in found:
        yield from (f"{_name(one.item)}: {note}" for note in one.notes)
    yield from map(_sentence, past)


def _verdicts(title: str, found: list[ItemExplanation]) -> Table:
    rows = []
    for one in found:
        action = f"{one.verdict.action} {one.verdict.storage_class or ''}".strip()
        shown = "" if one.deadline == NEVER else format_second(one.deadline)
        why = one.holder or one.reason
        rows.append((_name(one.item), _kind(one), one.decision, action, ", ".join(one.rules), shown, why))
    return Table(title, _COLUMNS, rows)


def _kind(one: ItemExplanation) -> str:
    """Name the kind: an upload, or a current or noncurrent version or delete marker."""
    if isinstance(one.item, Upload):
        return "upload"
    kind = "delete marker" if one.item.is_delete_marker else "version"
    return f"current {kind}" if one.current else f"noncurrent {kind}"


def _sentence(action: PastAction) -> str:
    kind = "upload" if action.action is Action.ABORT_UPLOAD else "version"
    rules = ", ".join(action.rules) or "no named rule"
    at = format_second(action.at)
    return f"{kind} {action.version}: run {action.run_id} {action.what}, by {rules}, at {at}"


def _present(
    found: list[ItemExplanation], past: list[PastAction], location: NestedLocation | None
) -> list[dict[str, Any]]:
    """Return the items that are there, with the actions that did not remove them."""
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
        done = [action for action in past if action.version == _name(one.item) and not action.ended_it]
        if done:
            row["done"] = [_plain(action) for action in done]
        if one.notes:
            row["notes"] = one.notes
        if location and isinstance(one.item, Version):
            row["location"] = location.name
        rows.append(row)
    return rows


def _removed(found: list[ItemExplanation], past: list[PastAction], key: str) -> list[dict[str, Any]]:
    """Return the items that runs removed."""
    names = {_name(one.item) for one in found}
    past = [action for action in past if action.ended_it or action.version not in names]
    rows = []
    for version in dict.fromkeys(action.version for action in past):
        done = [action for action in past if action.version == version]
        is_upload = done[0].action is Action.ABORT_UPLOAD
        item = Upload(key, version) if is_upload else Version(key, version)
        last = done[0]  # the latest comes first
        gone = {
            "decision": ABSENT,
            "reason": f"run {last.run_id} {last.what}",
            "holder": "",
            "deadline": None,
        }
        plain = plain_verdict(item, Verdict()) | gone | {"rules": list(last.rules)}
        rows.append(plain | {"gone": True, "done": [_plain(action) for action in done]})
    return rows


def _plain(action: PastAction) -> dict[str, Any]:
    return {
        "run_id": action.run_id,
        "at": action.at,
        "action": str(action.action),
        "rules": action.rules,
        "outcome": str(action.outcome),
        "what": action.what,
    }


def _name(item: Version | Upload) -> str:
    return item.upload_id if isinstance(item, Upload) else item.version_id


_REPLACES = "its delete marker is the null version and replaces the older null version"


KEPT = "kept"
"""The decision on items that no rule applies to; a plan has no row for them."""


@dataclass(frozen=True)
class ItemExplanation:
    """The verdict on one version or upload of a key, in the words of a plan."""

    item: Version | Upload
    verdict: Verdict
    notes: tuple[str, ...] = ()
    """Further consequences of the action."""
    kept_because: str = ""
    """Why no rule applies, if none does."""
    current: bool = True
    """Whether it is the current version of its key, or an upload."""
    locked_until: datetime | None = None
    """The end of the lock or hold on another version that would be destroyed with this one."""
    lake: str = ""
    """The lake that contains it, if one does."""

    @property
    def decision(self) -> str:
        """The decision of a plan: due or held, or kept if the plan has no row."""
        if self.verdict.action is not Action.NONE:
            return str(Decision.DUE)
        is_touched = self.verdict.held_by is not None or self.verdict.due is not None
        return str(Decision.HELD) if is_touched else KEPT

    @property
    def deadline(self) -> datetime:
        """When the action is due. Of all holds only that of a restored item has a known end."""
        if self.verdict.held_by is Hold.RESTORED:
            return self.restored_until or NEVER
        return NEVER if self.verdict.held_by is not None else self.verdict.due or NEVER

    @property
    def reason(self) -> str:
        """Why it is due, held or kept."""
        if self.decision == Decision.DUE:
            return f"rule {self.verdict.rule_id} asks for it since {format_second(self.deadline)}"
        if self.decision == KEPT:
            return self.kept_because
        return str(self.verdict.held_by or HoldReason.NOT_YET)

    @property
    def holder(self) -> str:
        """What holds it: a hold, or the rule that will be due."""
        verdict = self.verdict
        if self.decision != Decision.HELD:
            return ""
        if verdict.held_by is None:
            return f"rule {verdict.rule_id} from {_second(self.deadline)} on"
        until = self.locked_until or getattr(self.item, "retain_until", None)
        if verdict.held_by is Hold.RETENTION and until is not None:
            return f"{verdict.held_by} until {_second(until)}"
        if verdict.held_by is Hold.RESTORED:
            return f"{verdict.held_by} until {_second(self.deadline)}"
        if verdict.held_by is Hold.LAKE:
            return self.lake
        return str(verdict.held_by)

    @property
    def restored_until(self) -> datetime | None:
        """The end of its hold because it, or a version destroyed with it, was restored from the bin."""
        return self.locked_until or getattr(self.item, "restored_until", None)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rule that decides."""
        return (self.verdict.rule_id,) if self.verdict.rule_id is not None else ()


def _second(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def explain_key(
    bucket: VersionedBucket,
    key: str,
    rules: EffectiveRules,
    now: datetime,
    restored: Mapping[str, datetime] = MappingProxyType({}),
) -> list[ItemExplanation]:
    """
    Read the versions and uploads of one key and evaluate the rules with the oracle.

    One key needs no Spark: the evaluation is tested to equal the oracle. Versions that were restored from the
    recycle bin are held until the times in `restored`.
    """
    rules = replace(rules, protected=merge_protected(rules.protected, lakes_around(bucket.spec, [key])))
    rows = [row for rows in bucket.version_rows(key, up_to=key) for row in rows if row.key == key]
    inside = rules_for(rules, key)
    found = [_version(bucket, row, inside) for row in rows]
    held = [replace(one, restored_until=restored_until(restored, one.version_id)) for one in found]
    return explain_items([*held, *_uploads(bucket, key)], rules, now)


def explain_items(
    items: Sequence[Version | Upload], rules: EffectiveRules, now: datetime
) -> list[ItemExplanation]:
    """Explain all versions and uploads of some keys."""
    found: list[ItemExplanation] = []
    for key in dict.fromkeys(item.key for item in items):
        versions = [item for item in items if item.key == key and isinstance(item, Version)]
        evaluated = _evaluated(versions, rules_for(rules, key), now)
        if rules.versioning is Versioning.SUSPENDED:
            evaluated = with_replaced_null(evaluated, now)
        # Uploads in a location were left by an interrupted move, so the rules of the bucket apply to them.
        uploads = [item for item in items if item.key == key and isinstance(item, Upload)]
        found += [*evaluated, *_evaluated(uploads, rules, now)]
    return found


def rules_for(rules: EffectiveRules, key: str) -> EffectiveRules:
    """Return the rules that apply to the versions of a key; none does in the recycle bin."""
    if key.startswith(BIN_ROOT):
        return replace(rules, configuration=replace(rules.configuration, rules=()))
    location = location_around(rules.nested, key)
    return replace(rules, configuration=location.rules_of(rules.configuration)) if location else rules


def with_replaced_null(versions: Sequence[ItemExplanation], now: datetime) -> list[ItemExplanation]:
    """
    Note that the marker of an expiration replaces a null version; hold it if that version is locked.

    This is `with_replaced` of the evaluation for one key. It applies if versioning is suspended.
    """
    for one in versions:
        item, action = one.item, one.verdict.action
        if isinstance(item, Version) and _has_null_content(item) and action is not Action.DELETE_VERSION:
            return [_replacing(other, item, now) if other is not one else one for other in versions]
    return list(versions)


def _replacing(one: ItemExplanation, null: Version, now: datetime) -> ItemExplanation:
    if one.verdict.action is not Action.EXPIRE:
        return one
    if null.legal_hold:
        why, hold = ", which is under a legal hold", Hold.LEGAL_HOLD
    elif null.retain_until is not None and null.retain_until > now:
        why, hold = f", which is locked until {format_second(null.retain_until)}", Hold.RETENTION
    elif null.restored_until is not None and null.restored_until > now:
        why = f", which was restored and is held until {format_second(null.restored_until)}"
        hold = Hold.RESTORED
    else:
        why, hold = "", None
    until = null.restored_until if hold is Hold.RESTORED else null.retain_until
    verdict = Verdict(rule_id=one.verdict.rule_id, due=one.verdict.due, held_by=hold) if hold else one.verdict
    return replace(one, verdict=verdict, notes=(f"{_REPLACES}{why}",), locked_until=until)


def _has_null_content(version: Version) -> bool:
    return version.version_id == NULL and not version.is_delete_marker


def _evaluated(
    items: Sequence[Version | Upload], rules: EffectiveRules, now: datetime
) -> list[ItemExplanation]:
    verdicts = evaluate(rules.configuration, items, now, rules.versioning, rules.protected)
    positions = find_positions(items)
    return [
        ItemExplanation(
            item,
            verdict,
            kept_because=why_untouched(rules.configuration, item, positions.get(number)),
            current=number not in positions or positions[number].current,
            lake=next((one.holder for one in rules.protected if item.key.startswith(one.prefix)), ""),
        )
        for number, (item, verdict) in enumerate(zip(items, verdicts, strict=True))
    ]


def _version(bucket: VersionedBucket, row: VersionRow, rules: EffectiveRules) -> Version:
    lock = None if row.is_delete_marker else bucket.lock(row.key, row.version_id)
    asks = needs_tags(rules.configuration) and not row.is_delete_marker
    return Version(
        row.key,
        row.version_id,
        from_micros(row.micros),
        row.is_latest,
        row.is_delete_marker,
        row.size,
        row.storage_class or STANDARD,
        bucket.tags(row.key, row.version_id) if asks else None,
        row.etag,
        legal_hold=lock is not None and lock.legal_hold,
        retain_until=lock.retain_until if lock else None,
        replication_status=lock.replication_status if lock else None,
        restoring=lock is not None and lock.restoring,
    )


def _uploads(bucket: VersionedBucket, key: str) -> Sequence[Upload]:
    return [
        Upload(row["key"], row["upload_id"], row["initiated"])
        for batch in bucket.uploads(key)
        for row in batch.to_pylist()
        if row["key"] == key
    ]


def why_untouched(configuration: Configuration, item: Version | Upload, position: Position | None) -> str:
    """Return why no rule has an action for an item."""
    if isinstance(item, Upload) or position is None:
        return "no rule aborts uploads of this key"
    if item.key.startswith(BIN_ROOT):
        return "it is in the recycle bin, where no rule applies"
    rules = [rule for rule in configuration.enabled if matches(rule.filter, item)]
    if not rules:
        return "no enabled rule matches it"
    found = [words for rule in rules for words in _words(rule, item, position)]
    return "; ".join(found) or "the rules that match it have no further action"


def _words(rule: Rule, version: Version, position: Position) -> Iterator[str]:
    """Yield why one rule that matches a version has no action for it."""
    if position.current:
        if version.is_delete_marker and rule.expiration and not position.alone:
            yield f"rule {rule.id}: a delete marker stays as long as its key has older versions"
        elif not rule.expiration and not rule.transitions:
            yield f"rule {rule.id} has no action for current versions"
        return
    asked = [one.newer for one in (rule.noncurrent_expiration, *rule.noncurrent_transitions) if one]
    if not asked:
        yield f"rule {rule.id} has no action for noncurrent versions"
    elif position.newer is not None and position.newer < max(asked):
        yield (
            f"rule {rule.id} keeps the {max(asked)} newest noncurrent versions (NewerNoncurrentVersions),"
            f" and {position.newer} are newer than this one"
        )
