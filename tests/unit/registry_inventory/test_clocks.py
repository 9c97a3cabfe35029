"""The clocks of tags and manifests, from one scan to the next."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST
from ebbtide.targets.oci.client.names import follows_a_digest
from ebbtide.targets.oci.inventory.timestamps import (
    HELD,
    ManifestRecord,
    ManifestState,
    TagRecord,
    Timestamps,
)
from ebbtide.targets.oci.inventory.timestamps import manifest_record as dated_manifest
from ebbtide.targets.oci.inventory.timestamps import tag_record as dated_tag
from ebbtide.targets.oci.policies.policy import DEFAULT, UNTAGGED, Assigned, Period, Policies, Policy

A, B = (f"sha256:{letter * 64}" for letter in "ab")
FIRST, SECOND, THIRD = (parse_instant(f"2026-03-{day:02d}") for day in (1, 2, 3))
MIDDAY = parse_instant("2026-03-02T12:00:00Z")
NOW = THIRD
COPIED = Assigned("Default", FIRST + timedelta(days=5), True, True)


@pytest.mark.parametrize(
    ("earlier", "pushed", "scanned", "moved", "seen"),
    [
        pytest.param(None, None, None, None, NOW, id="never scanned, nothing told"),
        pytest.param(None, FIRST, None, FIRST, NOW, id="never scanned, the push was told"),
        pytest.param(None, None, SECOND, NOW, NOW, id="new since the last scan"),
        pytest.param(None, MIDDAY, SECOND, MIDDAY, NOW, id="new, and the push was told"),
        pytest.param(None, FIRST, SECOND, NOW, NOW, id="new, but told of an older push"),
        pytest.param(None, SECOND, SECOND, NOW, NOW, id="new, but told of a push at the very scan"),
        pytest.param(None, NOW + timedelta(days=9), SECOND, NOW, NOW, id="told of a push in the future"),
        pytest.param(None, NOW + timedelta(days=9), None, NOW, NOW, id="the same, and never scanned"),
        pytest.param(TagRecord(B, FIRST, FIRST), None, SECOND, NOW, NOW, id="moved"),
        pytest.param(TagRecord(B, FIRST, FIRST), MIDDAY, SECOND, MIDDAY, NOW, id="moved, and told"),
        pytest.param(TagRecord(B, None, FIRST), FIRST, SECOND, NOW, NOW, id="moved back, told of the old"),
    ],
)
def test_a_tag_that_is_new_or_has_moved(earlier, pushed, scanned, moved, seen):
    """Its time is that of the push if it was told, else the later of the scans, else unknown."""
    found = dated_tag(A, earlier, pushed=pushed, scanned=scanned, policy=DEFAULT, now=NOW)

    copied = Assigned("Default", (moved or seen) + timedelta(days=5), True, True)
    assert TagRecord(A, moved, seen, copied) == found


@pytest.mark.parametrize("policy", [DEFAULT, Policy("Default", Period(90)), None])
@pytest.mark.parametrize("pushed", [None, MIDDAY])
@pytest.mark.parametrize("moved", [None, FIRST])
def test_a_tag_that_stays(policy, pushed, moved):
    """A tag that stands for the same keeps its times and what was copied, whatever the policies say now."""
    earlier = TagRecord(A, moved, FIRST, COPIED)

    assert earlier == dated_tag(A, earlier, pushed=pushed, scanned=SECOND, policy=policy, now=NOW)


@pytest.mark.parametrize(("moved", "since"), [(None, FIRST), (SECOND, SECOND)])
def test_a_tag_that_got_no_policy_yet(moved, since):
    """What was seen before its repository was adopted gets the policy of that day, from its own clock."""
    earlier = TagRecord(A, moved, FIRST)
    found = dated_tag(A, earlier, pushed=None, scanned=SECOND, policy=DEFAULT, now=NOW)
    left = dated_tag(A, earlier, pushed=None, scanned=SECOND, policy=None, now=NOW)

    assert replace(earlier, assigned=Assigned("Default", since + timedelta(days=5), True, True)) == found
    assert earlier == left


def test_a_manifest_that_got_no_policy_yet():
    """An untagged manifest of a repository that is adopted later counts from when its last tag left."""
    first = dated_manifest(ManifestState(), None, pushed=None, untagged=None, now=FIRST)
    later = dated_manifest(ManifestState(), first, pushed=None, untagged=UNTAGGED, now=NOW)

    assert (FIRST, Assigned()) == (first.untagged_since, first.assigned)
    assert (FIRST, FIRST + timedelta(days=5)) == (later.untagged_since, later.assigned.expires_at)


@pytest.mark.parametrize(("adopted", "policy"), [(None, "Default"), ({"app"}, "Default"), ({"apps"}, None)])
def test_policies_are_assigned_in_adopted_repositories(adopted, policy):
    """A scan copies policies onto tags and manifests only where somebody has confirmed what they do."""
    dater = Timestamps(Policies(), {}, frozenset(), NOW, None if adopted is None else frozenset(adopted))
    tag = dater.tag({"repository": "app", "tag": "v1", "digest": A, "before": None, "pushed": None})
    row = {"repository": "app", "digest": A, "media_type": OCI_MANIFEST, "before": None, "pushed": None}
    facts = {"tagged": False, "was_tagged": True, "referenced": False}
    rest = {"size": 1, "children": [], "subject": "", "blobs": []}
    image = dater.image({**row, **facts, **rest})

    assert (policy, policy and "Untagged") == (tag["policy"], image["policy"])


def test_a_tag_that_follows_gets_nothing():
    """A tag that follows another manifest has no policy of its own."""
    found = dated_tag(A, None, pushed=None, scanned=SECOND, policy=None, now=NOW)

    assert TagRecord(A, NOW, NOW, Assigned()) == found


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        (f"sha256-{'a' * 64}", True),
        (f"sha256-{'a' * 64}.sig", True),
        (f"sha256-{'a' * 64}.sbom", True),
        (f"sha256-{'a' * 64}.other", False),
        (f"sha256-{'a' * 63}", False),
        ("v1", False),
    ],
)
def test_which_tags_follow(tag, expected):
    """Tags that are named after a whole digest follow it, with or without what cosign adds."""
    assert expected == follows_a_digest(tag)


NEWLY = Assigned("Untagged", NOW + timedelta(days=5), True, True)
OLD = Assigned("Untagged", FIRST + timedelta(days=5), True, True)
TAGGED = ManifestRecord(None, FIRST, None)
BARE = ManifestRecord(None, FIRST, FIRST, OLD)


@pytest.mark.parametrize(
    ("standing", "earlier", "pushed", "since", "assigned"),
    [
        pytest.param(ManifestState(tagged=True), None, None, None, Assigned(), id="new with a tag"),
        pytest.param(ManifestState(tagged=True), BARE, None, None, Assigned(), id="tagged again"),
        pytest.param(ManifestState(), None, None, NOW, NEWLY, id="new without anything"),
        pytest.param(ManifestState(referenced=True), None, None, None, Assigned(), id="new child"),
        pytest.param(ManifestState(was_tagged=True), TAGGED, None, NOW, NEWLY, id="lost its tag"),
        pytest.param(
            ManifestState(was_tagged=True, referenced=True), TAGGED, None, NOW, NEWLY, id="child lost its tag"
        ),
        pytest.param(ManifestState(referenced=True), TAGGED, None, None, Assigned(), id="child as before"),
        pytest.param(ManifestState(), TAGGED, None, NOW, NEWLY, id="lost its index"),
        pytest.param(ManifestState(), BARE, None, FIRST, OLD, id="still without a tag"),
        pytest.param(
            ManifestState(referenced=True), BARE, None, FIRST, OLD, id="became a child, its days go on"
        ),
        pytest.param(ManifestState(), BARE, MIDDAY, NOW, NEWLY, id="pushed again by its digest"),
        pytest.param(
            ManifestState(),
            replace(BARE, untagged_since=SECOND),
            FIRST,
            SECOND,
            OLD,
            id="told late of the push before",
        ),
        pytest.param(ManifestState(tagged=True, held=True), TAGGED, None, None, HELD, id="not understood"),
        pytest.param(ManifestState(held=True), BARE, None, FIRST, HELD, id="needed by who knows what"),
        pytest.param(
            ManifestState(),
            replace(BARE, assigned=HELD),
            None,
            FIRST,
            NEWLY,
            id="not held any more: all its days",
        ),
        pytest.param(
            ManifestState(tagged=True),
            replace(TAGGED, assigned=HELD),
            None,
            None,
            Assigned(),
            id="and tagged",
        ),
    ],
)
def test_since_when_a_manifest_has_no_tag(standing, earlier, pushed, since, assigned):
    """The days of Untagged begin when the last tag is seen to be gone, and a new tag ends them."""
    found = dated_manifest(standing, earlier, pushed=pushed, untagged=UNTAGGED, now=NOW)

    assert (since, assigned) == (found.untagged_since, found.assigned)


@pytest.mark.parametrize(
    ("earlier", "pushed", "expected"),
    [
        (None, None, (None, NOW)),
        (None, MIDDAY, (MIDDAY, NOW)),
        (None, NOW + timedelta(days=1), (NOW, NOW)),
        (ManifestRecord(FIRST, SECOND, None), None, (FIRST, SECOND)),
        (ManifestRecord(FIRST, SECOND, None), MIDDAY, (MIDDAY, SECOND)),
        (ManifestRecord(MIDDAY, SECOND, None), FIRST, (MIDDAY, SECOND)),
    ],
)
def test_when_a_manifest_was_pushed_and_seen(earlier, pushed, expected):
    """The latest push that was told counts, and the first scan that saw the manifest."""
    found = dated_manifest(ManifestState(tagged=True), earlier, pushed=pushed, untagged=UNTAGGED, now=NOW)

    assert expected == (found.pushed_at, found.seen_at)


def test_values_of_untagged_stay_when_the_policy_changes():
    """What was copied when the last tag left is not touched by a new Untagged policy."""
    longer = replace(UNTAGGED, period=Period(99))

    assert BARE == dated_manifest(ManifestState(), BARE, pushed=None, untagged=longer, now=NOW)
