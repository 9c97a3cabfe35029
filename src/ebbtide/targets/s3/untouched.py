"""Why no rule touches a version or an upload: which rules are about it, and what each lacks for an action."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.targets.s3.bin_place import BIN_ROOT
from ebbtide.targets.s3.model import Upload, Version
from ebbtide.targets.s3.oracle import matches
from ebbtide.targets.s3.oracle_places import Place
from ebbtide.targets.s3.rules.configuration import Configuration, Rule


def why_untouched(configuration: Configuration, item: Version | Upload, place: Place | None) -> str:
    """Say in a sentence why no rule has an action for an item; it is asked only of such items."""
    if isinstance(item, Upload) or place is None:
        return "no rule aborts uploads of this key"
    if item.key.startswith(BIN_ROOT):
        return "it lies in the recycle bin, which no rule is about"
    rules = [rule for rule in configuration.enabled if matches(rule.filter, item)]
    if not rules:
        return "no enabled rule is about it"
    found = [words for rule in rules for words in _words(rule, item, place)]
    return "; ".join(found) or "the rules that are about it ask for nothing more"


def _words(rule: Rule, version: Version, place: Place) -> Iterator[str]:
    """Say why one rule that is about a version has no action for it."""
    if place.current:
        if version.is_delete_marker and rule.expiration and not place.alone:
            yield f"rule {rule.id}: a delete marker stays as long as there are versions behind it"
        elif not rule.expiration and not rule.transitions:
            yield f"rule {rule.id} has no action for current versions"
        return
    asked = [one.newer for one in (rule.noncurrent_expiration, *rule.noncurrent_transitions) if one]
    if not asked:
        yield f"rule {rule.id} has no action for noncurrent versions"
    elif place.newer is not None and place.newer < max(asked):
        yield (
            f"rule {rule.id} keeps the {max(asked)} newest noncurrent versions (NewerNoncurrentVersions),"
            f" and {place.newer} are newer than this one"
        )
