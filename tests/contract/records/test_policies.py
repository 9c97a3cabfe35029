"""The policies of a registry, kept as one document: changed, renamed, removed, replaced."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, text
from tests.contract.records.test_marks import UID, rows

from ebbtide.core.errors import AlreadyExists, BadInput, EnvironmentProblem, MetadataError, NotFound, Refused
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.policy import Period, Policies, Policy, Unit
from ebbtide.targets.oci.records.records import ImageRecords

PROD = Policy("Prod", Period(6, Unit.MONTHS), can_delete_prior=False)
DOCUMENT = read_policies(
    {
        "policies": [
            {"name": "Prod", "months": 6, "can_delete_prior": False},
            {"name": "Default", "days": 9},
        ],
        "assign": [{"repository": "team/*", "tag": "v.*", "policy": "Prod"}],
        "keep_newest": [{"repository": "*", "tag": ".*", "count": 3}],
    }
)


def test_requirement_2_0_a_registry_begins_with_the_given_policies(records):
    """Where nobody has changed anything there are the seed's policies, and nobody to name for it."""
    found = records.stored_policies(UID)

    assert Policies() == found.policies
    assert (None, "") == (found.updated_at, found.updated_by)


def test_requirement_2_0_policies_are_stored_for_each_registry(records, watch):
    """A document is one registry's; another keeps its own."""
    records.save_policies(UID, DOCUMENT, "teja")
    found = records.stored_policies(UID)

    assert DOCUMENT == found.policies
    assert (watch.now, "teja") == (found.updated_at, found.updated_by)
    assert Policies() == records.policies("1" * 32)


def test_requirement_2_0_a_policy_is_added_and_changed(records):
    """A customer adds policies; a second put changes the values and keeps the spelling of the name."""
    records.put_policy(UID, PROD, "teja")
    records.put_policy(UID, Policy("prod", Period(1, Unit.YEARS)), "teja")

    assert Policy("Prod", Period(1, Unit.YEARS)) == records.policies(UID).find("PROD")


@pytest.mark.parametrize("name", ["Default", "recycle-bin", "Quarantine_Failed", "UNTAGGED"])
def test_requirement_2_0_system_policies_stay(records, url, name):
    """They can be changed, and neither removed nor renamed; the refusal is logged."""
    records.put_policy(UID, Policy(name, Period(99)), "teja")
    before = rows(url, "image_registries")[0][2:]
    for attempt in (
        lambda: records.remove_policy(UID, name, "teja"),
        lambda: records.rename_policy(UID, name, "Mine", "teja"),
    ):
        with pytest.raises(Refused, match="system policy"):
            attempt()

    assert Period(99) == records.policies(UID).find(name).period
    assert before == rows(url, "image_registries")[0][2:]
    assert [True, True, False] == [bool(entry.refused) for entry in records.log(UID)]


def test_requirement_2_0_released_may_be_renamed_and_removed(records):
    """Released is given and the customer's own: renamed, it is not there under its old name."""
    records.rename_policy(UID, "Released", "Prod", "teja")
    renamed = records.policies(UID)
    records.remove_policy(UID, "Prod", "teja")

    assert Policy("Prod", Period(180), can_delete_prior=False) == renamed.find("Prod")
    assert renamed.find("Released") is None
    assert {"default", "recycle bin", "quarantine failed", "untagged"} == {*records.policies(UID).named}


def test_assign_rules_follow_a_new_name(records):
    """Tags that a rule gives the policy to get it under its new name."""
    records.save_policies(UID, DOCUMENT, "teja")
    change = records.rename_policy(UID, "prod", "Live", "teja")

    assert ["Live"] == [rule.policy for rule in records.policies(UID).assign]
    assert "Live" == records.policies(UID).for_tag("team/app", "v1").name
    assert ["Prod", "assign rules"] == [one.subject for one in change.differences]


def test_a_policy_that_a_rule_names_cannot_be_removed(records):
    """Its tags would have no policy; without the rule it can go."""
    records.save_policies(UID, DOCUMENT, "teja")
    with pytest.raises(Refused, match="an assign rule gives it to tags"):
        records.remove_policy(UID, "Prod", "teja")
    records.save_policies(UID, Policies(DOCUMENT.named), "teja")
    records.remove_policy(UID, "Prod", "teja")

    assert records.policies(UID).find("Prod") is None


@pytest.mark.parametrize(
    ("attempt", "error", "words"),
    [
        (lambda r: r.remove_policy(UID, "Relased", "teja"), NotFound, "did you mean 'Released'"),
        (lambda r: r.rename_policy(UID, "Nothing", "New", "teja"), NotFound, "no policy 'Nothing'"),
        (lambda r: r.rename_policy(UID, "Released", "default", "teja"), AlreadyExists, "'Default' already"),
        (lambda r: r.rename_policy(UID, "Released", " ", "teja"), BadInput, "not a valid name for a policy"),
        (
            lambda r: r.put_policy(UID, Policy("a\x00b", Period(1)), "teja"),
            BadInput,
            "not a valid name for a policy",
        ),
        (
            lambda r: r.put_policy(UID, Policy("x" * 129, Period(1)), "teja"),
            BadInput,
            "not a valid name for a policy",
        ),
        (lambda r: r.put_policy(UID, Policy("X", Period(0)), "teja"), BadInput, "days is 0"),
        (lambda r: r.save_policies(UID, Policies({}), "teja"), BadInput, "system policy"),
        (lambda r: r.put_policy(UID, PROD, ""), BadInput, "not a valid name for a user"),
    ],
)
def test_what_cannot_be_kept(records, url, attempt, error, words):
    """What is misspelt or would not read back is an error in words, and changes nothing."""
    with pytest.raises(error, match=words):
        attempt(records)

    assert Policies() == records.policies(UID)
    assert [] == rows(url, "image_log")


def test_requirement_10_0_every_difference_is_logged_with_who_and_when(records, watch):
    """A new document leaves an entry for each policy and each kind of rules that it changes."""
    records.put_policy(UID, PROD, "teja")
    watch.set("2018-02-01")
    records.save_policies(UID, DOCUMENT, "maria")
    entries = list(records.log(UID))

    assert [
        ("keep_newest rules", "maria", watch.now),
        ("assign rules", "maria", watch.now),
        ("Default", "maria", watch.now),
    ] == [(entry.subject, entry.by, entry.at) for entry in entries[:3]]
    assert (5, 9) == (entries[2].before["days"], entries[2].after["days"])
    assert ("Prod", None, 6) == (entries[3].subject, entries[3].before, entries[3].after["months"])


def test_what_changes_nothing_is_not_logged(records):
    """To save what is there leaves no entry, and nobody has changed it."""
    records.save_policies(UID, DOCUMENT, "teja")
    change = records.save_policies(UID, DOCUMENT, "maria")

    assert () == change.differences
    assert "teja" == records.stored_policies(UID).updated_by
    assert {"teja"} == {entry.by for entry in records.log(UID)}


def test_several_at_once_lose_nothing(url, watch):
    """Each of several who add policies at the same moment finds the others' in the document."""

    def put(number):
        opened = ImageRecords(url, clock=watch)
        for part in range(5):
            opened.put_policy(UID, Policy(f"P{number}-{part}", Period(1)), f"user{number}")
        opened.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(4)))
    opened = ImageRecords(url, clock=watch)
    found, entries = opened.policies(UID), list(opened.log(UID))
    opened.close()

    assert 5 + 20 == len(found.named)
    assert 20 == len(entries)


def test_damaged_policies_stop_everything(records, url):
    """Policies that cannot be read are a reason to stop, and no reason to go by the given ones."""
    records.save_policies(UID, DOCUMENT, "teja")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE image_registries SET policies = '{\"policies\": 5}'"))
    engine.dispose()
    with pytest.raises(MetadataError, match="cannot be read"):
        records.policies(UID)


def test_policies_that_cannot_be_read_can_be_replaced(records, url):
    """A pattern that only an earlier version accepted stops changes, but not a whole new document."""
    records.save_policies(UID, DOCUMENT, "teja")
    engine = create_engine(url)
    with engine.begin() as connection:
        old = connection.execute(text("SELECT policies FROM image_registries")).scalar_one()
        values = {"new": old.replace('"v.*"', '"v(?!1).*"')}
        connection.execute(text("UPDATE image_registries SET policies = :new"), values)
    engine.dispose()
    with pytest.raises(MetadataError, match="ebb image policy load"):
        records.put_policy(UID, PROD, "teja")
    change = records.save_policies(UID, DOCUMENT, "teja")

    assert DOCUMENT == records.policies(UID)
    assert "(?!1)" in change.differences[0].what


def test_newer_tables_are_refused(records, url):
    """Tables that a newer Ebbtide made are left alone."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE image_records_about SET version = 99"))
    engine.dispose()
    with pytest.raises(EnvironmentProblem, match="version 99"):
        ImageRecords(url)
