"""The traps of the field that concern decisions, each by its number in the field notes."""

from __future__ import annotations

import pytest
from tests.worlds_of_images import decisions, image, judged, signature, tag

from ebbtide.core.instant import parse_instant

OLD, NOW = "2018-01-01", "2018-03-01"
PIN = {"can_delete_prior": False}


def going(*images, now=NOW, **world):
    """Name what goes."""
    found = decisions(*images, now=now, **world)
    return {name for name, decision in found.items() if decision in ("recycle", "delete")}


def test_trap_01_children_of_a_living_index_are_not_untagged():
    """A kept index keeps its children, those of indexes inside it too, though they have no tags."""
    nested = [
        image("a", tag("v1", NOW), children="b"),
        image("b", children="cd", untagged_since=OLD),
        image("c", untagged_since=OLD),
        image("d", pushed_at=OLD),
        image("e", untagged_since=OLD),
    ]
    found = judged(*nested, now=NOW)

    assert {"app@e"} == going(*nested)
    assert (f"index {found['app@b'].digest}",) == found["app@c"].held_by


def test_trap_01_children_go_with_their_index():
    """When the last tag of an index goes, so do the index and the children that nothing else keeps."""
    both = [
        image("a", tag("old", OLD), children="bc"),
        image("b", pushed_at=OLD),
        image("c", pushed_at=OLD),
        image("d", tag("new", NOW), children="c"),
    ]

    assert {"app@a", "app:old", "app@b"} == going(*both)


def test_trap_01_a_child_in_a_circle_ends():
    """Indexes that contain each other are no reason to run for ever; without a date they stay."""
    circle = [image("a", children="b"), image("b", children="a"), image("c", children="c")]
    dated = [image("a", children="b", untagged_since=OLD), image("b", children="a")]
    below = [*circle, image("d", untagged_since=OLD), image("e", children="ed")]

    assert set() == going(*circle)
    assert {"app@a", "app@b"} == going(*dated)
    assert set() == going(*below)
    assert ("nothing says when it may go",) == judged(image("c", children="c"), now=NOW)["app@c"].held_by[:1]


@pytest.mark.parametrize("holder", ["pin", "released", "running", "keep_newest", "quarantine"])
def test_trap_02_protection_goes_down(holder):
    """Whatever keeps the tag of an index keeps the index, its children, and the signatures of all of them."""
    fields = {"pin": PIN, "released": {"policy": "Released"}}.get(holder, {})
    quarantine = "pending" if holder == "quarantine" else None
    world = [
        image("a", tag("v1", OLD, **fields), children="b", quarantine=quarantine),
        image("b", untagged_since=OLD),
        image("c", subject="b", untagged_since=OLD),
        image("d", tag(signature("b"), OLD)),
    ]
    keep = {"keep_newest": [{"repository": "*", "tag": "v.*", "count": 1}]}
    protected = {
        "running": ["app:v1"] if holder == "running" else None,
        "policies": keep if holder == "keep_newest" else None,
    }

    assert set() == going(*world, **protected)
    assert len(world) + 2 == len(going(*[{**one, "quarantine": None} for one in plain(world)]))


def test_trap_02_a_pinned_manifest_keeps_its_names():
    """A pin on a digest keeps its tags until its date, though they got other values when they were seen."""
    copied = {"policy": "Default", "expires_at": "2018-01-06", "can_delete_prior": True}
    later = {"policy": "Default", "expires_at": "2018-06-01", "can_delete_prior": True}
    world = [image("a", tag("v1", OLD, **copied), tag("v2", OLD, **later), **PIN, expires_at="2018-04-01")]
    asked = [{**world[0], "tags": [{**one, "delete_requested": True} for one in world[0]["tags"]]}]

    assert set() == going(*world)
    assert ("pinned until 2018-04-01T00:00:00Z",) == judged(*world, now=NOW)["app:v1"].held_by
    assert {"app:v1": "refuse", "app:v2": "refuse", "app@a": "keep"} == decisions(*asked, now=NOW)
    assert {"app:v1"} == going(*world, now="2018-04-01")
    assert {"app:v1", "app:v2", "app@a"} == going(*asked, now="2018-04-01")


def plain(world):
    """Take all assigned values off the tags of a world."""
    return [
        {**one, "tags": [{"name": each["name"], "moved_at": each["moved_at"]} for each in one["tags"]]}
        for one in world
    ]


def test_trap_03_referrers_follow_their_subject():
    """A referrer without tags stays with its subject and goes with it, however old it is."""
    alive = [image("a", tag("v1", NOW)), image("b", subject="a", untagged_since=OLD)]
    dead = [image("a", tag("v1", OLD)), image("b", subject="a", untagged_since=NOW)]
    chain = [*dead, image("c", subject="b", pushed_at=NOW)]

    assert set() == going(*alive)
    assert {"app@a", "app:v1", "app@b"} == going(*dead)
    assert {"app@a", "app:v1", "app@b", "app@c"} == going(*chain)


def test_trap_03_an_unknown_subject_keeps():
    """A referrer whose subject is not in the list stays, and so does a tag named after an unknown digest."""
    world = [image("b", subject="a", untagged_since=OLD), image("c", tag(signature("f"), OLD))]
    found = judged(*world, now=NOW)

    assert set() == going(*world)
    assert ("unknown subject",) == found["app@b"].held_by == found[f"app:{signature('f')}"].held_by


@pytest.mark.parametrize("end", [".sig", ".att", ".sbom", ""])
def test_trap_03_signature_tags_follow_the_digest_they_name(end):
    """Tags named after a digest, and what they hold, stay and go with it, whatever their own age."""
    old_signature = image("b", tag(signature("a", end), OLD, expires_at="2018-01-02"), children="c")
    new_signature = image("b", tag(signature("a", end), NOW), children="c")
    inside = image("c", untagged_since=OLD)

    assert set() == going(image("a", tag("v1", NOW)), old_signature, inside)
    assert {"app@a", "app:v1", "app@b", f"app:{signature('a', end)}", "app@c"} == going(
        image("a", tag("v1", OLD)), new_signature, inside
    )


def test_trap_03_a_pin_on_a_signature_holds_it_alone():
    """A pinned signature stays though what it signs goes."""
    pinned = image("b", tag(signature("a"), OLD, **PIN))

    assert {"app@a", "app:v1"} == going(image("a", tag("v1", OLD)), pinned)


def test_trap_03_a_tag_that_only_looks_like_a_signature_is_ordinary():
    """A short name that is nobody's digest is a tag like others."""
    assert {"app@a", "app:sha256-abc"} == going(image("a", tag("sha256-abc", OLD)))


def test_trap_03_a_signature_that_is_asked_for_goes():
    """Somebody may delete a signature while what it signs stays, also one of an unknown subject."""
    asked = image("b", subject="a", delete_requested=True)
    orphan = image("c", subject="f", delete_requested=True)
    signed = image("d", tag(signature("a"), NOW, delete_requested=True))

    assert {"app@b", "app@c", "app@d", f"app:{signature('a')}"} == going(
        image("a", tag("v1", NOW)), asked, orphan, signed
    )


def test_trap_04_a_tag_goes_and_its_digest_stays():
    """Of two tags on a digest one may go; the digest lives while any of its tags does."""
    found = judged(image("a", tag("new", NOW), tag("old", OLD)), now=NOW)

    assert {"app@a": "keep", "app:new": "keep", "app:old": "recycle"} == {
        name: str(one.decision) for name, one in found.items()
    }
    assert ("tag new",) == found["app@a"].held_by
    assert parse_instant("2018-03-06") == found["app@a"].deadline


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (image("a", tag("v1")), "app:v1"),
        (image("a"), "app@a"),
        (image("a", pushed_at=OLD), "app@a"),
        (image("a", quarantine="failed", untagged_since=OLD), "app@a"),
        (image("a", tag("v1", OLD), quarantine="failed"), "app:v1"),
        (image("a", policy="Default", untagged_since=OLD), "app@a"),
    ],
)
def test_trap_05_an_unknown_time_holds(one, name):
    """Where the clock that counts is unknown the image stays, and says so; another clock is no substitute."""
    found = judged(one, now="2099-01-01")

    assert ("keep", ("unknown time",), None) == (
        found[name].decision,
        found[name].held_by,
        found[name].deadline,
    )
    assert {"keep"} == {str(each.decision) for each in found.values()}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"untagged_since": "2018-02-24"}, "2018-03-01"),
        ({"untagged_since": "2018-02-24", "pushed_at": OLD}, "2018-03-01"),
        ({"untagged_since": OLD, "pushed_at": "2018-02-25"}, "2018-03-02"),
    ],
)
def test_trap_05_untagged_counts_from_the_last_tag(fields, expected):
    """A manifest without tags counts from when the last one left, or from a later push."""
    found = judged(image("a", **fields), now=NOW)["app@a"]

    assert ("Untagged", parse_instant(expected)) == (found.policy, found.deadline)
    assert ("recycle" if expected == NOW else "keep") == found.decision


def test_trap_06_a_date_of_old_content_does_not_hit_the_new():
    """A date that had come before the tag was moved was for other content: the policy counts anew."""
    moved = tag("latest", "2018-02-28", policy="Default", expires_at="2018-01-06", can_delete_prior=True)
    bare = tag("next", "2018-02-28", expires_at="2018-01-06")
    released = tag("v1", "2018-02-28", policy="Released", expires_at="2018-01-06", can_delete_prior=False)
    found = judged(image("a", moved, bare, released), now=NOW)

    assert [parse_instant(date) for date in ("2018-03-05", "2018-03-05", "2018-08-27")] == [
        found[name].deadline for name in ("app:latest", "app:next", "app:v1")
    ]


def test_trap_06_an_overwritten_tag_leaves_an_untagged_manifest():
    """A date on a manifest that had come while tags held it is spent: Untagged counts from the last tag."""
    spent = image("a", untagged_since="2018-02-28", expires_at="2018-01-06", policy="Default")
    coming = image("b", untagged_since="2018-02-20", expires_at="2018-03-01", can_delete_prior=True)
    pinned = image("c", untagged_since="2018-02-01", expires_at="2018-03-02", can_delete_prior=False)
    found = judged(spent, coming, pinned, now=NOW)

    assert ("Untagged", parse_instant("2018-03-05")) == (found["app@a"].policy, found["app@a"].deadline)
    assert ("recycle", "keep") == (found["app@b"].decision, found["app@c"].decision)


def test_trap_06_a_new_tag_cancels_the_end_of_an_untagged_manifest():
    """A manifest that was to go for want of tags and was tagged again lives by its tag."""
    values = {"policy": "Untagged", "expires_at": "2018-02-01", "can_delete_prior": True}

    assert {"app@a": "keep", "app:v1": "keep"} == decisions(image("a", tag("v1", NOW), **values), now=NOW)
    assert {"app@a": "recycle", "app:v1": "recycle"} == decisions(
        image("a", tag("v1", OLD), **values), now=NOW
    )


def test_trap_06_a_new_tag_does_not_take_the_terms_of_an_untagged_manifest():
    """A tag put on a manifest before the date that it got for want of tags has its own policy."""
    values = {"policy": "Untagged", "expires_at": "2018-02-01", "can_delete_prior": True}
    policies = {"assign": [{"repository": "*", "tag": "v.*", "policy": "Released"}]}
    found = judged(image("a", tag("v1", "2018-01-31"), **values), now=NOW, policies=policies)

    assert {"Released"} == {one.policy for one in found.values()}
    assert {"keep"} == {str(one.decision) for one in found.values()}


def test_trap_06_a_date_at_the_very_move_rules():
    """Only a date that had come before the move is another content's."""
    assert {"app@a", "app:v1"} == going(image("a", tag("v1", NOW, expires_at=NOW)))


def test_trap_07_a_child_of_two_indexes_stays_with_either():
    """A manifest in several indexes lives until the last of them goes, and no other repository counts."""
    world = [
        image("a", tag("old", OLD), children="c"),
        image("b", tag("new", NOW), children="c"),
        image("c"),
        image("c", repository="other", untagged_since=OLD),
    ]

    assert {"app@a", "app:old", "other@c"} == going(*world)


KEEP_TWO = {"keep_newest": [{"repository": "*", "tag": "dev-.*", "count": 2}]}


def test_trap_12_keep_newest_counts_all_that_match_in_each_repository():
    """Held are the newest of all tags that match, due or not, in each repository by itself."""
    world = [
        image("a", tag("dev-1", "2018-01-01"), tag("dev-4", NOW)),
        image("b", tag("dev-2", "2018-01-02")),
        image("c", tag("dev-3", "2018-01-03"), tag("other", NOW)),
        image("d", tag("dev-0", OLD), repository="team/x"),
    ]

    assert {"app:dev-1", "app:dev-2", "app@b"} == going(*world, policies=KEEP_TWO)


def test_trap_12_ties_are_broken_by_creation_date():
    """Of tags moved at one time those of the images built last are held; without a date all are."""
    built = {"a": "2017-01-03", "b": "2017-01-01", "c": "2017-01-02"}
    world = [image(letter, tag(f"dev-{letter}", OLD), created_at=date) for letter, date in built.items()]
    undated = [image(letter, tag(f"dev-{letter}", OLD)) for letter in built]

    assert (
        {"app@b", "app:dev-b"} == going(*world, policies=KEEP_TWO) == going(*world[::-1], policies=KEEP_TWO)
    )
    assert set() == going(*undated, policies=KEEP_TWO)


def test_trap_12_unknown_times_and_signatures_take_nobodys_place():
    """A tag of unknown time is held beside the newest, and the tags of signatures are not counted."""
    keep = {"keep_newest": [{"repository": "*", "tag": ".*", "count": 1}]}
    world = [
        image("a", tag("dev", expires_at=OLD)),
        image("b", tag("x", OLD)),
        image("c", tag("y", "2018-01-02")),
        image("d", tag(signature("c"), NOW)),
    ]

    assert {"app@b", "app:x"} == going(*world, policies=keep)


def test_trap_12_the_newest_may_be_deleted_by_hand():
    """What is kept for being new goes if somebody asks, and the next takes its place."""
    world = [image("a", tag("dev-2", NOW, delete_requested=True)), image("b", tag("dev-1", OLD))]
    keep = {"keep_newest": [{"repository": "*", "tag": ".*", "count": 1}]}

    assert {"app@a", "app:dev-2"} == going(*world, policies=keep)


@pytest.mark.parametrize(
    ("now", "expected"),
    [("2018-01-05T23:59:59.999999Z", set()), ("2018-01-06T00:00:00Z", {"app@a", "app:v1", "app@b"})],
)
def test_trap_13_the_deadline_itself_is_due(now, expected):
    """Tags and manifests alike go at their deadline and not a microsecond earlier."""
    assert expected == going(image("a", tag("v1", OLD)), image("b", untagged_since=OLD), now=now)


def test_trap_15_a_rule_of_the_newest_makes_nothing_else_go():
    """To keep some is no order to delete others: what has not expired stays."""
    world = [image("a", tag("dev-1", "2018-02-27")), image("b", tag("dev-2", NOW))]
    keep = {"keep_newest": [{"repository": "*", "tag": "dev-2", "count": 1}]}

    assert set() == going(*world, policies=keep)


def test_trap_16_values_stay_when_their_policy_changes():
    """A shorter policy does not shorten what was assigned, nor a bin that is switched off its way there."""
    values = {"policy": "Default", "expires_at": NOW, "can_delete_prior": True, "recycle": True}
    policies = {"policies": {"Default": {"days": 1, "recycle": False}}}

    assert set() == going(image("a", tag("v1", OLD, **values)), now="2018-02-28", policies=policies)
    assert "recycle" == decisions(image("a", tag("v1", OLD, **values)), now=NOW, policies=policies)["app:v1"]


@pytest.mark.parametrize(
    "running",
    [
        ["app:v1"],
        ["registry.example.com:5000/app:v1"],
        [f"localhost/app@sha256:{'a' * 64}"],
        [f"sha256:{'a' * 64}"],
        [f"app:gone@sha256:{'a' * 64}"],
    ],
)
@pytest.mark.parametrize("repository", ["app", "hub.example.com/app"])
def test_trap_19_both_tag_and_digest_protect(running, repository):
    """What runs by a tag or a digest stays, with or without a host on either side."""
    assert set() == going(image("a", tag("v1", OLD), repository=repository), running=running)


@pytest.mark.parametrize("running", ["other:v1", f"other@sha256:{'a' * 64}", "app:v2", "team/app:v1", "app"])
def test_trap_19_other_names_do_not_protect(running):
    """Another repository or another tag is something else; no tag means latest."""
    assert {"app@a", "app:v1"} == going(image("a", tag("v1", OLD)), running=[running])


@pytest.mark.parametrize("running", [f"app@sha256:{'c' * 64}", "app:arm"])
def test_trap_19_a_running_child_protects_the_indexes_around_it(running):
    """What runs holds the indexes that it is in, their tags, and so its siblings, which are pulled next."""
    world = [
        image("a", tag("v1", OLD), tag("v1.0", OLD), children="b"),
        image("b", children="cd"),
        image("c", tag("arm", OLD)),
        image("d", untagged_since=OLD),
        image("e", tag("other", OLD), children="d"),
    ]

    assert {"app@e", "app:other"} == going(*world, running=[running])


def test_trap_19_a_pinned_child_keeps_itself_alone():
    """A pin on a child is no pin on the index: the index goes, and the child is whole without it."""
    world = [image("a", tag("v1", OLD), children="bc"), image("b", **PIN), image("c", tag("arm", NOW))]

    assert {"app@a", "app:v1"} == going(*world)


def test_trap_19_a_running_tag_leaves_its_siblings_alone():
    """What runs by a tag needs this tag and the digest, not other names of it; by digest all names stay."""
    world = [image("a", tag("v1", OLD), tag("old", OLD))]

    assert {"app:old"} == going(*world, running=["app:v1"])
    assert set() == going(*world, running=["app:v1", f"app@sha256:{'a' * 64}"])


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        ({"images": [], "scanned_at": "2018-02-28T00:00:00Z"}, ()),
        ({"images": [], "scanned_at": "2018-02-27T23:59:59Z"}, ("the running scan is too old",)),
        ({"images": [], "failed": True}, ("the running scan failed: it says so",)),
        ({"failed": "timeout"}, ("the running scan failed: timeout",)),
        (
            {"items": [], "metadata": {"continue": "x"}},
            ("the running scan failed: its pod list is not complete",),
        ),
    ],
)
def test_trap_19_a_scan_that_cannot_be_trusted_stops_the_purge(running, expected):
    """With a scan that failed or is older than a day nothing goes, and all that would go says why."""
    found = judged(image("a", tag("v1", OLD)), image("b", tag("v2", NOW)), now=NOW, running=running)

    assert expected == found["app:v1"].held_by
    assert ("keep" if expected else "recycle") == found["app:v1"].decision == found["app@a"].decision
    assert ((), "keep") == (found["app:v2"].held_by, found["app:v2"].decision)


def test_trap_19_a_request_is_refused_where_the_image_runs_or_nobody_knows():
    """A delete by hand is refused for what runs, and while the scan cannot be trusted."""
    asked = image("a", tag("v1", NOW), delete_requested=True)

    for running in (["app:v1"], {"failed": True}):
        assert {"app@a": "refuse", "app:v1": "refuse"} == decisions(asked, now=NOW, running=running)


def test_trap_20_pending_quarantine_holds():
    """What waits for its check stays, and refuses to be deleted."""
    waiting = image("a", tag("v1", OLD), quarantine="pending")
    found = judged(waiting, now=NOW)

    assert ("quarantine pending",) == found["app:v1"].held_by
    assert {"refuse"} == set(decisions({**waiting, "delete_requested": True}, now=NOW).values())
    assert set() == going(image("b", untagged_since=OLD, quarantine={"status": "pending", "at": OLD}))


def test_trap_20_quarantine_has_its_own_clock_and_a_pin_beats_it():
    """A failed check counts from when it failed, unless a pin or a date assigned for it says otherwise."""
    failed = {"state": "failed", "since": "2018-02-28"}
    dated = {"policy": "Quarantine Failed", "expires_at": "2018-02-28", "can_delete_prior": True}
    world = [
        image("a", tag("a", OLD), quarantine=failed),
        image("b", tag("b", OLD, expires_at="2018-01-05"), quarantine=failed),
        image("c", tag("c", OLD, **PIN), quarantine=failed),
        image("d", tag("d", OLD, **dated), quarantine=failed),
        image("e", quarantine=failed, **PIN),
        image("f", policy="Quarantine Failed", quarantine=failed, pushed_at=OLD),
    ]

    assert {"app:d", "app@d"} == going(*world)
    assert {"delete"} == {decisions(*world, now="2018-03-05")[name] for name in ("app:a", "app@b", "app@f")}
    assert {"keep"} == {decisions(*world, now="2099-01-01")[name] for name in ("app:c", "app@c", "app@e")}


def test_what_an_index_needs_is_refused():
    """A child of an index that stays cannot be deleted by hand; with its index it can."""
    child = image("b", delete_requested=True)
    index = image("a", tag("v1", NOW), children="b")

    assert "refuse" == decisions(index, child, now=NOW)["app@b"]
    assert {"app@a", "app:v1", "app@b"} == going({**index, "delete_requested": True}, child)


def test_what_is_recycled_is_recycled_whole():
    """A manifest goes through the bin if one of its tags or indexes does, so that it can come back whole."""
    policies = {
        "policies": {"Scrap": {"days": 1, "recycle": False}},
        "assign": [{"repository": "*", "tag": "tmp.*", "policy": "Scrap"}],
    }
    world = [
        image("a", tag("tmp", OLD), tag("dev", OLD), children="b"),
        image("b", tag("tmp2", OLD)),
        image("c", tag("tmp3", OLD)),
    ]

    assert {
        "app@a": "recycle",
        "app:tmp": "delete",
        "app:dev": "recycle",
        "app@b": "recycle",
        "app:tmp2": "delete",
        "app@c": "delete",
        "app:tmp3": "delete",
    } == decisions(*world, now=NOW, policies=policies)


def test_what_is_not_in_the_list_is_no_reason_to_delete():
    """An index whose children are unknown lives and dies by its own tag."""
    assert set() == going(image("a", tag("v1", NOW), children="xyz"))
    assert {"app@a", "app:v1"} == going(image("a", tag("v1", OLD), children="xyz"))
