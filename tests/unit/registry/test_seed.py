"""The requirements and scenarios of seed 004, each by its number, with the seed's own dates as corrected."""

from __future__ import annotations

import pytest
from tests.worlds_of_images import decisions, digest, image, judged, tag

from ebbtide.core.instant import NEVER, format_instant, parse_instant
from ebbtide.targets.oci.model import ImageDecision
from ebbtide.targets.oci.policies.policy import RELEASED, Assigned, Period, Policy, Unit, renewed

HALF_A_YEAR = Policy("Released", Period(6, Unit.MONTHS), can_delete_prior=False)
A_YEAR = Policy("Released", Period(1, Unit.YEARS), can_delete_prior=False)


def as_fields(assigned):
    """Write assigned values as a line does."""
    date = None if assigned.expires_at == NEVER else format_instant(assigned.expires_at)
    return {"policy": assigned.policy, "expires_at": date, "can_delete_prior": assigned.can_delete_prior}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2018-01-05T23:59:59.999999Z", "keep"),
        ("2018-01-06T00:00:00Z", "recycle"),
        ("2018-01-06T00:00:00.000001Z", "recycle"),
    ],
)
def test_scenario_1_0_default_policy(now, expected):
    """An image that nobody assigned anything goes five days after its tag was moved, at that very moment."""
    found = decisions(image("a", tag("dev", "2018-01-01"), pushed_at="2018-01-01"), now=now)

    assert {"app@a": expected, "app:dev": expected} == found


def test_scenario_1_0_images_can_be_deleted_sooner():
    """Under Default an explicit delete succeeds before the date, through the bin."""
    found = decisions(image("a", tag("dev", "2018-01-01", delete_requested=True)), now="2018-01-02")

    assert {"app@a": "recycle", "app:dev": "recycle"} == found


@pytest.mark.parametrize(
    ("now", "expected"), [("2018-01-12T23:59:59Z", "keep"), ("2018-01-13T00:00:00Z", "delete")]
)
@pytest.mark.parametrize("tags", [(), (tag("dev", "2018-01-01"),)], ids=["untagged", "tagged"])
def test_scenario_2_0_quarantine_failed(now, expected, tags):
    """What failed its check goes five days after it failed, tags and all, and not through the bin."""
    failed = {"state": "failed", "since": "2018-01-08"}
    found = judged(image("a", *tags, pushed_at="2018-01-01", quarantine=failed), now=now)

    assert {expected} == {str(one.decision) for one in found.values()}
    assert {("Quarantine Failed", parse_instant("2018-01-13"))} == {
        (one.policy, one.deadline) for one in found.values()
    }


def test_scenario_2_0_images_can_be_deleted_sooner():
    """What failed its check may be deleted by hand at once."""
    failed = {"failed": "2018-01-08"}

    assert {"app@a": "delete"} == decisions(
        image("a", quarantine=failed, delete_requested=True), now="2018-01-09"
    )


def test_scenario_3_0_maintain_released_images():
    """A released image stays for its days, refuses an explicit delete, and goes from its date on."""
    fields = as_fields(renewed(RELEASED, parse_instant("2018-01-01")))
    asked = image("a", tag("v1", "2018-01-01", **fields, delete_requested=True))
    left = image("a", tag("v1", "2018-01-01", **fields))

    assert {"app@a": "keep", "app:v1": "keep"} == decisions(left, now="2018-06-29T23:59:59Z")
    assert {"app@a": "keep", "app:v1": "refuse"} == decisions(asked, now="2018-06-29T23:59:59Z")
    assert {"app@a": "recycle", "app:v1": "recycle"} == decisions(left, now="2018-06-30")
    assert ("pinned until 2018-06-30T00:00:00Z",) == judged(asked, now="2018-02-01")["app:v1"].held_by


def test_scenario_3_0_to_delete_it_the_image_must_be_changed():
    """A released image that is unpinned can be deleted before its date."""
    free = tag("v1", "2018-01-01", policy="Released", expires_at="2018-06-30", can_delete_prior=True)

    assert {"app@a": "keep", "app:v1": "keep"} == decisions(image("a", free), now="2018-02-01")
    assert {"app@a": "recycle", "app:v1": "recycle"} == decisions(
        image("a", free, delete_requested=True), now="2018-02-01"
    )


def test_scenario_3_0_an_explicit_delete_of_the_manifest_is_refused_too():
    """Deleting a manifest would delete its pinned tag, so both refuse; a tag that is not pinned goes."""
    pinned = tag("v1", "2018-01-01", expires_at="2018-06-30", can_delete_prior=False)
    found = decisions(image("a", pinned, tag("dev", "2018-01-01"), delete_requested=True), now="2018-01-02")

    assert {"app@a": "refuse", "app:v1": "refuse", "app:dev": "recycle"} == found


def test_scenario_4_1_extension():
    """An image that still runs after six months and a day is not purged, and its renewal moves the date."""
    fields = as_fields(renewed(HALF_A_YEAR, parse_instant("2018-01-01")))
    released = image("a", tag("v1", "2018-01-01", **fields))
    now = "2018-07-02"

    assert {"app@a": "recycle", "app:v1": "recycle"} == decisions(released, now=now)
    assert {"app@a": "keep", "app:v1": "keep"} == decisions(released, now=now, running=["app:v1"])
    assert parse_instant("2019-01-02") == renewed(HALF_A_YEAR, parse_instant(now)).expires_at


def test_scenario_4_2_policy_update():
    """A policy that changes leaves what was assigned alone; to assign it again applies the new values."""
    fields = as_fields(renewed(HALF_A_YEAR, parse_instant("2018-01-01")))
    again = as_fields(renewed(A_YEAR, parse_instant("2018-04-01")))
    changed = {"policies": {"Released": {"years": 1}}}
    old, new = (image("a", tag("v1", "2018-01-01", **values)) for values in (fields, again))

    assert "recycle" == decisions(old, now="2018-07-01", policies=changed)["app:v1"]
    assert "keep" == decisions(new, now="2019-03-31", policies=changed)["app:v1"]
    assert "recycle" == decisions(new, now="2019-04-01", policies=changed)["app:v1"]


@pytest.mark.parametrize(
    ("policy", "found_running", "expected"),
    [
        (HALF_A_YEAR, "2018-01-01", "2018-07-01"),
        (HALF_A_YEAR, "2018-01-02", "2018-07-02"),
        (A_YEAR, "2018-02-02", "2019-02-02"),
        (A_YEAR, "2018-02-03", "2019-02-03"),
    ],
)
def test_scenario_5_0_rolling_expiration(policy, found_running, expected):
    """Each day on which an image is found running, its policy as it is then is applied to it again."""
    assert Assigned("Released", parse_instant(expected), can_delete_prior=False, recycle=True) == renewed(
        policy, parse_instant(found_running)
    )


def test_requirement_1_0_expiration_dates_are_on_tags_and_manifests():
    """A date on a tag or on a manifest without tags rules, whatever the policies say today."""
    policies = {"policies": {"Default": {"years": 9}, "Untagged": {"years": 9}}}
    values = {"policy": "Default", "expires_at": "2018-01-06", "can_delete_prior": True}
    images = [image("a", tag("dev", "2018-01-01", **values)), image("b", **values, pushed_at="2018-01-01")]

    assert {"recycle"} == set(decisions(*images, now="2018-01-06", policies=policies).values())
    assert {"keep"} == set(decisions(*images, now="2018-01-05", policies=policies).values())


def test_requirement_2_0_a_policy_that_is_gone_leaves_its_values():
    """Values that were copied rule even if their policy has gone; without values nobody can tell."""
    copied = tag("a", "2018-01-01", policy="Gone", expires_at="2018-01-02", can_delete_prior=True)
    named = tag("b", "2018-01-01", policy="Gone")
    found = judged(image("a", copied), image("b", named), now="2018-02-01")

    assert (ImageDecision.RECYCLE, "Gone") == (found["app:a"].decision, found["app:a"].policy)
    assert (ImageDecision.KEEP, ("unknown policy",)) == (found["app:b"].decision, found["app:b"].held_by)


def test_requirement_2_0_a_policy_that_is_only_named_counts_from_the_tag():
    """A tag that names a policy and has none of its values takes them from the policy as it is."""
    found = judged(image("a", tag("v1", "2018-01-01", policy="released")), now="2018-01-02")["app:v1"]

    assert ("Released", parse_instant("2018-06-30")) == (found.policy, found.deadline)
    assert ("pinned until 2018-06-30T00:00:00Z",) == found.held_by


def test_requirement_2_0_never_expires_and_may_be_deleted():
    """A policy without an end and without a pin is never purged, and may be deleted by hand."""
    policies = {
        "policies": {"Forever": {"never": True}},
        "assign": [{"repository": "*", "tag": "x", "policy": "Forever"}],
    }
    for fields in ({}, {"policy": "Forever", "expires_at": None, "can_delete_prior": True}):
        kept = judged(image("a", tag("x", "2018-01-01", **fields)), now="2099-01-01", policies=policies)
        asked = image("a", tag("x", "2018-01-01", **fields, delete_requested=True))

        assert (ImageDecision.KEEP, None) == (kept["app:x"].decision, kept["app:x"].deadline)
        assert ("no expiration date",) == kept["app:x"].held_by
        assert "recycle" == decisions(asked, now="2018-01-02", policies=policies)["app:x"]


def test_requirement_2_0_to_be_free_is_no_assignment():
    """A tag that is merely not pinned, and has neither a policy nor a date, gets its policy by the rules."""
    free = tag("dev", "2018-01-01", policy=None, expires_at=None, can_delete_prior=True)
    found = judged(image("a", free, can_delete_prior=True), now="2018-01-02")["app:dev"]

    assert ("Default", parse_instant("2018-01-06")) == (found.policy, found.deadline)


@pytest.mark.parametrize(("now", "expected"), [("2018-03-01", "refuse"), ("2018-04-01", "recycle")])
def test_requirement_3_0_image_pinning(now, expected):
    """A pinned image refuses to be deleted until its date, and not from its date on."""
    pinned = tag("v1", "2018-01-01", expires_at="2018-04-01", can_delete_prior=False, delete_requested=True)

    assert expected == decisions(image("a", pinned), now=now)["app:v1"]


@pytest.mark.parametrize("place", ["tag", "image"])
def test_requirement_4_0_never_delete(place):
    """A pin without a date keeps an image for ever and refuses every delete; on an image its tags too."""
    pin = {"can_delete_prior": False, "expires_at": None}
    on_tag, on_image = (pin, {}) if place == "tag" else ({}, pin)
    kept = judged(image("a", tag("v1", "2018-01-01", **on_tag), **on_image), now="2099-01-01")
    asked = image("a", tag("v1", "2018-01-01", **on_tag), **on_image, delete_requested=True)

    assert {(ImageDecision.KEEP, None)} == {(one.decision, one.deadline) for one in kept.values()}
    assert ("pinned: never delete",) == kept["app:v1"].held_by
    assert {"refuse"} == set(decisions(asked, now="2099-01-01").values())


def test_requirement_5_0_delete_by():
    """An image with a date and without a pin may go sooner, and goes at its date."""
    by = tag("v1", "2018-01-01", expires_at="2018-04-01")
    sooner = tag("v1", "2018-01-01", expires_at="2018-04-01", delete_requested=True)

    assert "keep" == decisions(image("a", by), now="2018-03-31T23:59:59Z")["app:v1"]
    assert "recycle" == decisions(image("a", by), now="2018-04-01")["app:v1"]
    assert "recycle" == decisions(image("a", sooner), now="2018-01-02")["app:v1"]


def test_requirement_6_0_what_expires_in_the_bin_is_deleted():
    """An image under the policy of the bin that has reached its date is deleted and not recycled."""
    values = {"policy": "Recycle Bin", "expires_at": "2018-01-16", "can_delete_prior": True}

    assert {"app@a": "keep"} == decisions(image("a", **values), now="2018-01-15")
    assert {"app@a": "delete"} == decisions(image("a", **values), now="2018-01-16")


def test_assigning_by_rules_and_names():
    """A new tag gets its policy from the first rule that matches it, counted from its move."""
    policies = {
        "policies": {"Test": {"months": 1}},
        "assign": [
            {"repository": "team/*", "tag": "v[0-9]+", "policy": "Released"},
            {"repository": "*", "tag": ".*-test", "policy": "Test"},
        ],
    }
    found = judged(
        image("a", tag("v1", "2018-01-31"), repository="team/app"),
        image("b", tag("v1-test", "2018-01-31"), repository="team/app"),
        image("c", tag("v10x", "2018-01-31"), repository="team/app"),
        image("d", tag("own", "2018-01-31", expires_at="2018-02-01")),
        now="2018-02-01",
        policies=policies,
    )

    assert {
        "team/app:v1": ("Released", "2018-07-30T00:00:00Z"),
        "team/app:v1-test": ("Test", "2018-02-28T00:00:00Z"),
        "team/app:v10x": ("Default", "2018-02-05T00:00:00Z"),
        "app:own": ("(none)", "2018-02-01T00:00:00Z"),
    } == {name: (one.policy, format_instant(one.deadline)) for name, one in found.items() if one.tag}


def test_every_digest_comes_before_its_tags_in_the_order_of_the_lines():
    """Judgements come in the order of the lines, a manifest first and then its tags."""
    found = judged(image("b", tag("z"), tag("y")), image("a", tag("x")), now="2018-01-01")

    assert ["app@b", "app:z", "app:y", "app@a", "app:x"] == list(found)
    assert digest("b") == found["app:z"].digest
