"""Explaining what no rule of a bucket touches: which version is which, and what keeps it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ebbtide.targets.s3.context import EffectiveRules, Source
from ebbtide.targets.s3.explanation import KEPT, explain_items
from ebbtide.targets.s3.model import BIN_ROOT, Upload, Version, Versioning
from ebbtide.targets.s3.rules.configuration import (
    Configuration,
    Expiration,
    Filter,
    NoncurrentExpiration,
    Rule,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RULES = Configuration(
    (
        Rule("old", True, Filter("k"), noncurrent_expiration=NoncurrentExpiration(1, newer=2)),
        Rule("logs", True, Filter("logs/"), Expiration(days=1)),
    )
)


def explained(*items, configuration=RULES):
    """Explain items of a bucket that keeps versions."""
    return explain_items(items, EffectiveRules(configuration, Source.FILE, Versioning.ENABLED), NOW)


def versions(key: str, *kinds: bool) -> list[Version]:
    """Give versions, a day apart, the newest first; true is a delete marker."""
    return [
        Version(
            key, f"v{number}", NOW - timedelta(days=5 + number), number == 0, marker, None if marker else 1
        )
        for number, marker in enumerate(kinds)
    ]


def test_a_version_that_newer_noncurrent_versions_keep_says_so():
    """The newest noncurrent versions that a rule spares are kept, for that reason, and the others are due."""
    found = explained(*versions("k", True, False, False, False))

    assert [KEPT, KEPT, KEPT, "due"] == [one.decision for one in found]
    assert [True, False, False, False] == [one.current for one in found]
    assert [True, False, False, False] == [one.item.is_delete_marker for one in found]
    assert (
        "keeps the 2 newest noncurrent versions (NewerNoncurrentVersions), and 1 are newer" in found[2].reason
    )
    assert "rule old asks for it since 2026-" in found[3].reason


def test_whatever_is_kept_has_a_reason():
    """No rule, no action for it, a marker in front of versions, the bin and an upload each say their own."""
    items = [
        *versions("other", False),
        *versions("k2", False),
        *versions("logs/a", True, False),
        *versions(f"{BIN_ROOT}logs/a", False),
        Upload("logs/u", "u1", NOW - timedelta(days=9)),
    ]

    assert [
        "no enabled rule matches it",
        "rule old has no action for current versions",
        "rule logs: a delete marker stays as long as its key has older versions",
        "rule logs has no action for noncurrent versions",
        "it is in the recycle bin, where no rule applies",
        "no rule aborts uploads of this key",
    ] == [one.reason for one in explained(*items)]


def test_what_is_held_names_its_holder():
    """A version whose time comes says when, and one that is locked until when."""
    young = Version("logs/young", "v", NOW, True, size=1)
    locked = Version(
        "kept", "v1", NOW - timedelta(days=9), False, size=1, retain_until=NOW + timedelta(days=1)
    )
    current = Version("kept", "v2", NOW - timedelta(days=8), True, size=1)
    strict = Configuration((Rule("r", True, Filter(""), Expiration(days=1), NoncurrentExpiration(1)),))
    coming, held, _ = explained(young, locked, current, configuration=strict)

    assert ("held", "not yet due", "rule r from 2026-03-02T00:00:00Z on") == (
        coming.decision,
        coming.reason,
        coming.holder,
    )
    assert ("held", "object lock retention", "object lock retention until 2026-03-02T00:00:00Z") == (
        held.decision,
        held.reason,
        held.holder,
    )
