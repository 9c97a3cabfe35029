"""What becomes of tags that no assign rule matches: `unmatched` in the policy document."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.property.registry_worlds import DOCUMENTS, NOW, registry_world
from tests.worlds_of_images import image, judged, tag

from ebbtide.core.errors import PolicyError, Refused
from ebbtide.core.instant import days_after
from ebbtide.targets.oci.model import GOES, Image, Tag
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.document import policies_hash, read_policies, write_policies
from ebbtide.targets.oci.policies.policy import KEEP, Assigned
from ebbtide.targets.oci.policy_suite import registry_case, run_cases
from ebbtide.targets.oci.purge.marks import marked_tag
from ebbtide.targets.oci.records.mark_operations import restoring, unpinning
from ebbtide.targets.oci.records.model import Mark, Target
from ebbtide.targets.oci.records.policies import differences, with_new_name, without_policy

ASSIGN = [{"repository": "app", "tag": "v.*", "policy": "Released"}]


def due(policies, images, running):
    """Name what goes, and say of each whether it goes for want of a rule."""
    return {
        (one.repository, one.digest, one.tag): one.unmatched
        for one in judge(policies, images, NOW, running)
        if str(one.decision) in GOES
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_due_for_want_of_a_rule_is_what_would_stay_if_such_tags_were_kept(document):
    """On every drawn registry the flag of what goes equals the difference that `keep` makes."""
    found = 0
    for number in range(250):
        world = registry_world({**document, "unmatched": "Scrap"}, range(number, number + 1))
        kept = replace(world.policies, unmatched=KEEP)
        now = due(world.policies, world.images, world.running)
        then = due(kept, world.images, world.running)

        assert {name for name, flagged in now.items() if flagged} == now.keys() - then.keys(), number
        assert then.keys() <= now.keys(), number
        assert not any(then.values()), number
        found += len(now.keys() - then.keys())
    assert found > 20


@pytest.mark.parametrize("document", DOCUMENTS)
def test_keep_keeps_every_tag_that_nothing_speaks_of(document):
    """With `keep` a tag that no rule matches goes only if somebody assigned something or asked for it."""
    world = registry_world({**document, "unmatched": "keep"}, range(300))
    gone = {(one[0], one[2]) for one in due(world.policies, world.images, world.running) if one[2]}
    silent = 0
    for one in world.images:
        for name in one.tags:
            spoken = not name.copied and (name.assigned.policy or name.assigned.expires_at)
            if spoken or name.assigned.can_delete_prior is False or name.delete_requested:
                continue
            if one.assigned.policy or one.assigned.expires_at or one.quarantine or one.delete_requested:
                continue
            if any(rule.matches(one.repository, name.name) for rule in world.policies.assign):
                continue
            if name.name.startswith("sha256-"):
                continue
            silent += 1
            assert (one.repository, name.name) not in gone
    assert silent > 100


def test_a_tag_that_a_scan_gave_default_is_kept_and_one_that_somebody_did_is_not():
    """Values that a scan copied for want of a rule do not beat `keep`; those that a person assigned do."""
    expired = Assigned("Default", days_after(NOW, -9), can_delete_prior=True, recycle=True)
    images = [
        Image("app", "sha256:" + "a" * 64, (Tag("scanned", days_after(NOW, -14), expired, copied=True),)),
        Image("app", "sha256:" + "b" * 64, (Tag("chosen", days_after(NOW, -14), expired),)),
    ]
    kept, usual = (read_policies(document) for document in ({"unmatched": "keep"}, {}))

    assert {None, "chosen"} == {tag for _, _, tag in due(kept, images, None)}
    assert {None, "chosen", "scanned"} == {tag for _, _, tag in due(usual, images, None)}


def test_kept_for_want_of_a_rule_says_so_and_may_be_deleted_by_hand():
    """What is kept names the reason, and goes at once when somebody asks for it."""
    kept = judged(image("a", tag("x", "2018-01-01")), now="2019-01-01", policies={"unmatched": "keep"})
    asked = judged(
        image("a", tag("x", "2018-01-01", delete_requested=True)),
        now="2019-01-01",
        policies={"unmatched": "keep"},
    )

    assert ("unmatched: no rule matches",) == kept["app:x"].held_by
    assert ("keep", None) == (kept["app:x"].policy, kept["app:x"].deadline)
    assert ("recycle", False) == (str(asked["app:x"].decision), asked["app:x"].unmatched)


def test_another_policy_for_what_no_rule_matches():
    """The name of a policy gives its days to tags that no rule matches, and to no others."""
    policies = {"policies": {"Long": {"days": 30}}, "unmatched": "long", "assign": ASSIGN}
    found = judged(
        image("a", tag("x", "2018-01-01")),
        image("b", tag("v1", "2018-01-01")),
        now="2018-02-01",
        policies=policies,
    )

    assert ("Long", "2018-01-31", True) == (
        found["app:x"].policy,
        f"{found['app:x'].deadline:%Y-%m-%d}",
        found["app:x"].unmatched,
    )
    assert ("Released", False) == (found["app:v1"].policy, found["app:v1"].unmatched)


@pytest.mark.parametrize("value", ["keep", "Released", "Default", None])
def test_it_reads_back_as_it_was_written(value):
    """Every value survives writing and reading, and the default leaves the hash of older documents alone."""
    policies = read_policies({"assign": ASSIGN, **({} if value is None else {"unmatched": value})})

    assert policies == read_policies(write_policies(policies))
    assert (policies_hash(read_policies({"assign": ASSIGN})) == policies_hash(policies)) == (
        value in (None, "Default")
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"unmatched": "Gone"}, "there is no policy 'Gone'"),
        ({"unmatched": 5}, "unmatched"),
        ({"unmatched": "keep", "policies": {"Keep": {"days": 1}}}, "also a policy"),
    ],
)
def test_what_it_cannot_be_is_an_error(document, words):
    """A policy that does not exist, a number, and a name that could mean two things are refused."""
    with pytest.raises(PolicyError, match=words):
        read_policies(document)


def test_a_policy_that_it_names_is_not_removed_and_may_be_renamed():
    """A document never names a policy that is gone; a change of it is one difference in the log."""
    policies = read_policies({"policies": {"Long": {"days": 30}}, "unmatched": "Long"})
    renamed = with_new_name(policies, "Long", "Longer")
    with pytest.raises(Refused, match="cannot be removed"):
        without_policy(policies, "Long")
    changes = [one.subject for one in differences(policies, replace(policies, unmatched=KEEP))]

    assert "Longer" == renamed.unmatched
    assert ["unmatched"] == changes


@pytest.mark.parametrize("operation", [restoring, unpinning])
def test_what_is_kept_gets_no_policy_when_it_is_restored_or_unpinned(operation):
    """A tag that no rule matches has no date after a restore or without its pin, so that it is kept."""
    kept = read_policies({"unmatched": "keep", "assign": ASSIGN})
    target = Target("app", "x", f"sha256:{'a' * 64}")
    expired = Mark(target, Assigned("Gone", days_after(NOW, -9), can_delete_prior=True))
    found = operation(expired, kept, NOW)

    assert Assigned() == found.assigned
    assert (
        "Released" == operation(replace(expired, target=replace(target, tag="v1")), kept, NOW).assigned.policy
    )


def test_a_renewal_by_the_purge_is_no_choice_of_a_person():
    """What the purge renewed while it ran is kept for want of a rule as it was before."""
    kept = Mark(Target("app", "x", f"sha256:{'a' * 64}"), Assigned("Default", NOW), by="system")
    chosen = replace(kept, by="olga")

    assert (True, False) == tuple(marked_tag(Tag("x"), kept.target, mark).copied for mark in (kept, chosen))


def test_a_policy_test_may_set_it():
    """A case of kind registry takes the document with `unmatched`."""
    case = {
        "name": "keep",
        "kind": "registry",
        "policies": {"unmatched": "keep"},
        "images": [image("a", tag("x", "2018-01-01"))],
        "now": "2020-01-01",
        "expect": {"app:x": "keep"},
    }

    assert [True] == [one.passed for one in run_cases([registry_case(case, "suite")])]
