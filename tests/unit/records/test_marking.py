"""What can be done to a mark: nothing goes at once that was held, and the purge takes no pin away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.errors import BadInput
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.targets.oci.model import Image, ImageDecision, Quarantine, QuarantineState, Tag
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.policy import Assigned
from ebbtide.targets.oci.records.mark_operations import (
    assigning,
    loosens,
    pinning,
    quarantining,
    renewing,
    restoring,
    unpinning,
)
from ebbtide.targets.oci.records.model import Mark, Role, Target, read_role

NOW = parse_instant("2018-01-01")
PAST, SOON, LATE = map(parse_instant, ("2017-12-01", "2018-01-02", "2030-01-01"))
DIGEST = f"sha256:{1:064x}"
TAG, MANIFEST = Target("team/app", "v1", DIGEST), Target("team/app", "", DIGEST)
POLICIES = read_policies(
    {
        "policies": [
            {"name": "Prod", "days": 30, "can_delete_prior": False},
            {"name": "Keep", "never": True},
        ],
        "assign": [{"repository": "team/*", "tag": "v.*", "policy": "Prod"}],
    }
)
_ASSIGNED = st.builds(
    Assigned,
    st.sampled_from([None, "Default", "Prod", "Keep", "Gone"]),
    st.sampled_from([None, PAST, NOW, SOON, LATE, NEVER]),
    st.sampled_from([None, True, False]),
    st.sampled_from([None, True, False]),
)
_QUARANTINES = st.none() | st.builds(Quarantine, st.sampled_from(QuarantineState), st.just(PAST))
MARKS = st.builds(Mark, st.sampled_from([TAG, MANIFEST]), _ASSIGNED, _QUARANTINES)


@given(MARKS, MARKS)
def test_nothing_that_was_restored_goes_at_once(on_tag, on_manifest):
    """By the oracle, an image that is restored stays, whatever was assigned to it before, and so do pins."""
    tag, manifest = (
        restoring(replace(mark, target=target), POLICIES, NOW)
        for mark, target in ((replace(on_tag, quarantine=None), TAG), (on_manifest, MANIFEST))
    )
    named = Tag("v1", PAST, tag.assigned, seen_at=PAST)
    image = Image(
        "team/app",
        DIGEST,
        (named,),
        pushed_at=PAST,
        quarantine=manifest.quarantine,
        assigned=manifest.assigned,
        seen_at=PAST,
    )
    decided = judge(POLICIES, [image], NOW)
    alone = judge(POLICIES, [replace(image, tags=(), untagged_since=PAST)], NOW)

    assert {ImageDecision.KEEP} == {one.decision for one in (*decided, *alone)}
    assert not loosens(on_tag, tag, NOW)
    assert not loosens(on_manifest, manifest, NOW)


@given(MARKS)
def test_requirement_3_0_unpinning_frees_and_nothing_goes_at_once(mark):
    """Whatever was pinned may be deleted by hand after it, and its date is ahead."""
    after = unpinning(mark, POLICIES, NOW)

    assert after.assigned.can_delete_prior is True
    assert after.assigned.expires_at > NOW
    assert not after.is_pinned(NOW)


@pytest.mark.parametrize(
    ("target", "before", "policy", "date"),
    [
        (TAG, Assigned("Default", LATE, can_delete_prior=False), "Default", "2018-01-06"),
        (TAG, Assigned(None, PAST, can_delete_prior=False), "Prod", "2018-01-31"),
        (TAG, Assigned("Gone", NEVER, can_delete_prior=False), "Prod", "2018-01-31"),
        (TAG, Assigned(), "Prod", "2018-01-31"),
        (MANIFEST, Assigned("Prod", PAST, can_delete_prior=False), "Prod", "2018-01-31"),
        (MANIFEST, Assigned(None, LATE, can_delete_prior=False), None, "2030-01-01"),
        (MANIFEST, Assigned(), "Untagged", "2018-01-06"),
    ],
)
def test_which_policy_counts_after_a_pin(target, before, policy, date):
    """The one that was assigned, for a tag else that of the rules; a manifest gets none to rule its tags."""
    after = unpinning(Mark(target, before), POLICIES, NOW).assigned

    assert (policy, parse_instant(date)) == (after.policy, after.expires_at)


@pytest.mark.parametrize("date", [None, PAST, NEVER])
def test_a_manifest_that_only_a_pin_kept_is_not_purged(date):
    """Its tags would be ruled by what it gets, so it gets no date; it may be deleted by hand."""
    pinned = Mark(MANIFEST, Assigned(None, date, can_delete_prior=False))

    assert NEVER == unpinning(pinned, POLICIES, NOW).assigned.expires_at


@given(MARKS)
def test_scenario_5_0_renewal_never_loosens(mark):
    """What runs is renewed: no pin is lost, no date comes nearer, and the purge may always do it."""
    after = renewing(mark, POLICIES, NOW)

    assert not loosens(mark, after, NOW)
    assert mark.assigned.expires_at is None or after.assigned.expires_at >= mark.assigned.expires_at
    assert after.is_pinned(NOW) or not mark.is_pinned(NOW)


@pytest.mark.parametrize(
    ("before", "date"),
    [
        (Assigned("Prod", SOON, can_delete_prior=False), "2018-01-31"),
        (Assigned(), "2018-01-31"),
        (Assigned("Default", SOON, can_delete_prior=True), "2018-01-06"),
        (Assigned("Gone", SOON, can_delete_prior=False), "2018-01-02"),
        (Assigned(None, SOON), "2018-01-02"),
    ],
)
def test_what_is_renewed(before, date):
    """The policy that was assigned, or the rules'; a date by hand or of a policy that is gone stays."""
    assert parse_instant(date) == renewing(Mark(TAG, before), POLICIES, NOW).assigned.expires_at


@given(MARKS.filter(lambda mark: not mark.target.tag))
def test_scenario_2_0_failed_and_passed_gives_back_what_there_was(mark):
    """A check that failed and then passes leaves what was assigned, or its policy counted anew."""
    mark = replace(mark, quarantine=None)
    failed = quarantining(QuarantineState.FAILED)(mark, POLICIES, NOW)
    again = quarantining(QuarantineState.FAILED)(failed, POLICIES, NOW)
    passed = quarantining(None)(again, POLICIES, NOW)
    spent = mark.assigned.expires_at is not None and mark.assigned.expires_at <= NOW

    assert failed.quarantine == Quarantine(QuarantineState.FAILED, NOW)
    assert failed.is_pinned(NOW) == mark.is_pinned(NOW)
    assert passed.quarantine is None
    assert spent or mark == passed
    assert mark.assigned.policy == passed.assigned.policy


def test_a_pin_survives_the_check():
    """What is pinned as evidence keeps its pin when it fails; what failed can be pinned."""
    pinned = pinning(LATE)(Mark(MANIFEST, Assigned("Prod")), POLICIES, NOW)
    failed = quarantining(QuarantineState.FAILED)(pinned, POLICIES, NOW)
    evidence = pinning()(quarantining(QuarantineState.FAILED)(Mark(MANIFEST), POLICIES, NOW), POLICIES, NOW)

    assert pinned.assigned == failed.assigned
    assert Assigned(None, NEVER, can_delete_prior=False) == evidence.assigned


def test_requirement_5_0_a_policy_with_another_date():
    """An assigned policy may get a date of its own; everything else is the policy's."""
    after = assigning("prod", LATE)(Mark(TAG), POLICIES, NOW)

    assert Assigned("Prod", LATE, can_delete_prior=False, recycle=True) == after.assigned


def test_requirement_11_0_the_seeds_names_of_roles():
    """The roles are known by the seed's names too; others are not."""
    assert Role.POLICY_WRITER is read_role("acr-purge-policy-writer")
    assert Role.IMAGE_WRITER is read_role("image-purge-writer")
    with pytest.raises(BadInput, match="did you mean 'image-purge-writer'"):
        read_role("image-purge-write")
