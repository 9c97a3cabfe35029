"""Names of registries, and records that earlier versions kept under several spellings of one name."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, text
from tests.contract.records.test_marks import TAG

from ebbtide.core.errors import Forbidden, MetadataError, Refused
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.state.runs import Ledger
from ebbtide.targets.oci.client.address import canonical_name, name_uid, spelled_uid
from ebbtide.targets.oci.model import Quarantine, QuarantineState
from ebbtide.targets.oci.policies.policy import Assigned, Period, Policy
from ebbtide.targets.oci.records.identity import stricter
from ebbtide.targets.oci.records.mark_operations import assigning, pinning
from ebbtide.targets.oci.records.model import Action, Event, Mark, Role, Snapshot, Target

NOW = parse_instant("2018-01-01")
DAY = timedelta(days=1)
FIRST, SECOND, THIRD = "oci://localhost:5000", "oci://127.0.0.1:5000", "oci://127.0.0.1:05000"
ONE, TWO, THREE = (spelled_uid(text) for text in (FIRST, SECOND, THIRD))
NAME = canonical_name(FIRST)
OTHER = Target("team/app", "v2", TAG.digest)
POLICY, IMAGE = Role.POLICY_WRITER, Role.IMAGE_WRITER
DATES = st.sampled_from([None, NOW - DAY, NOW + DAY, NOW + 9 * DAY, NEVER])
QUARANTINES = st.none() | st.builds(Quarantine, st.sampled_from(QuarantineState), st.just(NOW))
MARKS = st.builds(
    Mark,
    st.just(TAG),
    st.builds(Assigned, st.sampled_from([None, "Default"]), DATES, st.sampled_from([None, True, False])),
    QUARANTINES,
    st.sampled_from([NOW - DAY, NOW]),
)


def test_a_name_that_nobody_used(records):
    """It has the uid that is made of it, and nothing is recorded of it."""
    assert name_uid(NAME) == records.uid_of(NAME)
    assert records.identity(NAME) is None


def test_one_spelling_keeps_its_uid(records):
    """Where records were kept under one spelling, nothing moves."""
    records.change_mark(TWO, TAG, pinning(), "teja", "pin")

    assert TWO == records.uid_of(NAME)


def test_spellings_are_merged(records):
    """Pins are united, the log is one, notifications are kept, and the newest scan stays the current one."""
    records.change_mark(ONE, TAG, assigning("Default"), "teja", "assign")
    records.change_mark(TWO, TAG, pinning(), "teja", "pin")
    records.change_mark(THREE, OTHER, pinning(), "teja", "pin")
    records.put_policy(ONE, Policy("Mine", Period(3)), "teja")
    records.grant(TWO, "pia", POLICY, "pia")
    records.record_snapshot(ONE, Snapshot("old", NOW - DAY, 1, 1, 7))
    records.record_snapshot(TWO, Snapshot("new", NOW, 2, 2, 7))
    told = [
        Event(Action.PUSH, "app", "v1", TAG.digest, NOW),
        Event(Action.PUSH, "app", "v2", TAG.digest, NOW),
    ]
    records.add_events(ONE, told)
    records.add_events(TWO, told[:1])
    last = max(event.id for uid in (ONE, TWO) for event in records.events(uid))
    uid = records.uid_of(NAME)

    assert (TWO, TWO) == (uid, records.uid_of(NAME))
    assert {TAG.key, OTHER.key} == {mark.target.key for mark in records.marks(uid) if mark.is_pinned(NOW)}
    assert records.policies(uid).find("Mine") is not None
    assert [("pia", POLICY)] == [(grant.member, grant.role) for grant in records.grants(uid)]
    assert "new" == records.snapshot(uid).folder
    assert {"v1", "v2"} == {event.tag for event in records.events(uid)}
    assert all(event.id > last for event in records.events(uid) if event.tag == "v2")
    assert 2 == sum(entry.what == "pin" for entry in records.log(uid))
    assert [] == [*records.marks(ONE), *records.marks(THREE), *records.grants(ONE)]


def test_merged_runs_are_folded_again(url, records):
    """The table of removed items of the records that stay gets the outcomes of runs that were merged in."""
    ledger = Ledger(url)
    run_id = ledger.begin("oci://x", ONE, "registry", "", NOW)
    ledger.finish_batch(run_id, 0, ledger.start_batch(run_id, 0))
    ledger.mark_folded(ledger.finished_attempts(ONE, folded=False))
    records.change_mark(ONE, TAG, pinning(), "teja", "pin")
    records.record_snapshot(TWO, Snapshot("new", NOW, 2, 2, 7))
    uid = records.uid_of(NAME)
    found = [one.run_id for one in ledger.finished_attempts(uid, folded=False)]
    ledger.close()

    assert TWO == uid
    assert [run_id] == found


def test_runs_of_an_earlier_ledger_are_folded_again(url, records):
    """Records are merged as well while the ledger beside them has not been upgraded yet."""
    ledger = Ledger(url)
    run_id = ledger.begin("oci://x", ONE, "registry", "", NOW)
    ledger.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE batch_attempts"))
        connection.execute(text("CREATE TABLE waves (run_id INTEGER, wave INTEGER, state VARCHAR(16))"))
        connection.execute(text("INSERT INTO waves VALUES (:run_id, 0, 'folded')"), {"run_id": run_id})
    records.change_mark(ONE, TAG, pinning(), "teja", "pin")
    records.record_snapshot(TWO, Snapshot("new", NOW, 2, 2, 7))
    records.uid_of(NAME)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT state FROM waves")).scalars().all()
    engine.dispose()

    assert ["counted"] == found


@pytest.mark.parametrize("what", ["roles", "policies"])
def test_records_that_contradict_each_other_are_not_merged(records, what):
    """Nobody gets a role or a policy by a merge; the error names both sides, and nothing has moved."""
    for uid, who in ((ONE, "pia"), (TWO, "mallory")):
        if what == "roles":
            records.grant(uid, who, POLICY, who)
        else:
            records.put_policy(uid, Policy(who, Period(3)), who)
    with pytest.raises(MetadataError, match=f"the {what} of one registry") as stopped:
        records.uid_of(NAME)

    assert {FIRST, SECOND} == {line.partition(": ")[0] for line in stopped.value.details}
    if what == "roles":
        assert ["pia"] == [grant.member for grant in records.grants(ONE)]
        records.revoke(TWO, "mallory", POLICY, "mallory")
        assert ["pia"] == [grant.member for grant in records.grants(records.uid_of(NAME))]


@given(MARKS, MARKS)
def test_of_two_marks_the_stricter_wins(one, other):
    """It is pinned if either was, has the later date of those that are alike, and a pending check holds."""
    merged = stricter(one, other, NOW)
    pins = [mark for mark in (one, other) if mark.is_pinned(NOW)]
    pending = [mark for mark in (one, other) if mark.quarantine and mark.quarantine.state == "pending"]
    dates = [mark.assigned.expires_at or NEVER for mark in pins]

    assert bool(pins) == merged.is_pinned(NOW)
    assert not pins or max(dates) == (merged.assigned.expires_at or NEVER)
    assert not pending or merged.quarantine == pending[0].quarantine
    assert merged.assigned in (one.assigned, other.assigned)


def test_another_name_takes_its_records_along(records):
    """What was recorded of a name before it was recognised counts for the registry that it names."""
    alias = "oci://alias.example"
    records.remember(NAME, records.uid_of(NAME), "m1", FIRST, "teja", "")
    records.change_mark(name_uid(alias), TAG, pinning(), "teja", "pin")
    records.remember(alias, records.uid_of(NAME), "m1", alias, "teja", f"recognise another name of {NAME}")

    assert records.uid_of(NAME) == records.uid_of(alias)
    assert [TAG] == [mark.target for mark in records.marks(records.uid_of(NAME))]
    assert [NAME, alias] == sorted((one.name for one in records.names_of_marker("m1")), reverse=True)


def test_an_unknown_registry_is_refused_while_others_have_roles(records):
    """A role for all registries counts at an unknown one, too, and asks for nothing else."""
    unknown, uid = "oci://new.example", name_uid("oci://new.example")
    records.check_known(unknown, uid, "teja", "pin")
    records.grant(ONE, "pia", POLICY, "pia")
    with pytest.raises(Refused, match="other registries have roles"):
        records.check_known(unknown, uid, "teja", "pin")
    refused = next(records.log(uid))
    records.check_known(unknown, uid, "teja", "pin", adopt=True)
    records.check_known(NAME, ONE, "teja", "pin")
    records.remember(unknown, uid, "", unknown, "teja", "adopt the registry")
    records.check_known(unknown, uid, "teja", "pin")

    assert ("teja", "pin", True) == (refused.by, refused.what, bool(refused.refused))
    assert "adopt the registry" == next(records.log(uid)).what


def test_whoever_adopts_must_be_allowed_to_grant(records):
    """A registry whose roles others have cannot be adopted anew."""
    records.grant(ONE, "pia", POLICY, "pia")
    with pytest.raises(Forbidden, match="mallory may not adopt"):
        records.check_may_adopt(NAME, ONE, "mallory")
    records.check_may_adopt(NAME, ONE, "pia")
