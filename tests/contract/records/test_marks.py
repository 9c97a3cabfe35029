"""Marks: what people assign to tags and manifests, in one transaction with the log."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, select, text

from ebbtide.core.errors import BadInput, EnvironmentProblem, NotFound, Refused
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.targets.oci.model import Quarantine, QuarantineState
from ebbtide.targets.oci.policies.policy import RELEASED, Assigned, Period, Policy, Unit
from ebbtide.targets.oci.records.mark_operations import (
    assigning,
    deleting_by,
    pinning,
    quarantining,
    renewing,
    unpinning,
)
from ebbtide.targets.oci.records.model import Mark, Target
from ebbtide.targets.oci.records.records import ImageRecords
from ebbtide.targets.oci.records.tables import metadata

UID = "0" * 32
DIGEST = f"sha256:{1:064x}"
OTHER = f"sha256:{2:064x}"
TAG = Target("team/app", "v1", DIGEST)
MANIFEST = Target("team/app", "", DIGEST)
HALF_A_YEAR = Policy("Released", Period(6, Unit.MONTHS), can_delete_prior=False)
A_YEAR = Policy("Released", Period(1, Unit.YEARS), can_delete_prior=False)


def rows(url, table):
    """Read a whole table, past all of our code."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(select(metadata.tables[table]))]
    engine.dispose()
    return sorted(found, key=repr)


def target(number: int) -> Target:
    """Make up a tag."""
    return Target(f"team/app{number % 7}", f"v{number}", f"sha256:{number:064x}")


def test_requirement_10_0_the_log_says_what_a_scan_had_copied(records):
    """Of what nobody has marked, the values before are the scan's, and a pinned tag keeps their policy."""
    copied = Assigned("Default", parse_instant("2018-01-06"), can_delete_prior=True, recycle=True)
    seen = {TAG.key: copied, MANIFEST.key: copied}
    first = records.change_mark(UID, TAG, pinning(), "alice", "pin", seen)
    second = records.change_mark(UID, TAG, unpinning, "bob", "unpin", seen)
    pending = records.change_mark(UID, MANIFEST, quarantining(QuarantineState.PENDING), "bob", "check", seen)
    records.put_marks(UID, [Mark(target(1), copied)], "system", "found running", {target(1).key: copied})
    entries = {entry.what: entry.before for entry in records.log(UID)}

    assert (copied, NEVER) == (first.before.assigned, second.before.assigned.expires_at)
    assert replace(copied, expires_at=NEVER, can_delete_prior=False) == first.after.assigned
    assert (None, None) == (pending.before, entries["check"])
    assert "2018-01-06T00:00:00Z" == entries["pin"]["expires_at"] == entries["found running"]["expires_at"]


def test_requirement_1_0_an_expiration_date_is_on_the_tag_or_the_manifest(records):
    """A tag and its manifest each have a date of their own; what nobody marked has none."""
    records.change_mark(UID, TAG, assigning("Default"), "alice", "assign Default")
    records.change_mark(UID, MANIFEST, assigning("Released"), "alice", "assign Released")

    assert parse_instant("2018-01-06") == records.mark(UID, TAG).assigned.expires_at
    assert parse_instant("2018-06-30") == records.mark(UID, MANIFEST).assigned.expires_at
    assert records.mark(UID, replace(TAG, tag="v2")) is None
    assert records.mark("1" * 32, TAG) is None


def test_requirement_2_0_assigning_copies_the_values(records, watch):
    """A policy may change, and what it was assigned to keeps what it got."""
    records.change_mark(UID, TAG, assigning("released"), "alice", "assign")
    before = records.mark(UID, TAG)
    records.put_policy(UID, Policy("Released", Period(1), recycle=False), "alice")
    records.rename_policy(UID, "Released", "Prod", "alice")
    records.remove_policy(UID, "Prod", "alice")

    assert Assigned("Released", parse_instant("2018-06-30"), False, True) == before.assigned
    assert before == records.mark(UID, TAG)


def test_requirement_3_0_a_pin_until_a_date(records):
    """A pin is can_delete_prior false with a date; the policy's name stays on it."""
    records.change_mark(UID, TAG, assigning("Default"), "alice", "assign")
    change = records.change_mark(UID, TAG, pinning(parse_instant("2019-01-01")), "alice", "pin")

    assert Assigned("Default", parse_instant("2019-01-01"), False, True) == change.after.assigned
    assert change.after == records.mark(UID, TAG)


def test_requirement_4_0_never_delete(records):
    """A pin for ever has no date that ever comes."""
    change = records.change_mark(UID, TAG, pinning(), "alice", "pin")

    assert (NEVER, False) == (change.after.assigned.expires_at, change.after.assigned.can_delete_prior)
    assert change.after == records.mark(UID, TAG)


def test_requirement_5_0_delete_by(records):
    """A date without a pin: it may be deleted sooner, and goes at the date."""
    change = records.change_mark(UID, TAG, deleting_by(parse_instant("2018-02-01")), "alice", "delete by")

    assert Assigned(None, parse_instant("2018-02-01"), can_delete_prior=True) == change.after.assigned


def test_requirement_3_0_a_pinned_image_gets_no_date_to_go_by(records, url):
    """What is pinned must be unpinned before it gets a date; the refusal changes nothing and is logged."""
    records.change_mark(UID, TAG, pinning(), "alice", "pin")
    before = rows(url, "image_marks")
    with pytest.raises(Refused, match="pinned for ever"):
        records.change_mark(UID, TAG, deleting_by(parse_instant("2018-02-01")), "alice", "delete by")

    assert before == rows(url, "image_marks")
    assert "pinned for ever" in next(records.log(UID)).refused


def test_requirement_9_0_what_is_unpinned_may_be_deleted_and_does_not_go_at_once(records, watch):
    """Without its pin a released image may be deleted sooner, and its policy counts from now."""
    records.change_mark(UID, TAG, assigning("Released"), "alice", "assign")
    watch.set("2019-01-01")
    change = records.change_mark(UID, TAG, unpinning, "alice", "unpin")

    assert Assigned("Released", parse_instant("2019-06-30"), True, True) == change.after.assigned


def test_scenario_3_0_released_images_are_kept_until_their_policy_is_changed(records):
    """A released image is pinned; another policy assigned to this very image lets it go."""
    records.change_mark(UID, TAG, assigning("Released"), "alice", "assign")
    change = records.change_mark(UID, TAG, assigning("Default"), "alice", "assign")

    assert change.before.is_pinned(parse_instant("2018-06-29T23:59:59Z"))
    assert not change.before.is_pinned(parse_instant("2018-06-30"))
    assert not change.after.is_pinned(parse_instant("2018-01-01"))


def test_scenario_4_1_extension_of_what_still_runs(records, watch):
    """Found running after six months and a day of its life, a release lives six months from then."""
    records.put_policy(UID, HALF_A_YEAR, "teja")
    records.change_mark(UID, TAG, assigning("Released"), "teja", "assign")
    watch.set("2018-06-30")
    count = records.change_marks(UID, [TAG], renewing, "system", "found running")

    assert 1 == count
    assert parse_instant("2018-12-30") == records.mark(UID, TAG).assigned.expires_at
    assert "system" == records.mark(UID, TAG).by


def test_scenario_4_2_policy_update_and_scenario_5_0_rolling_expiration(records, watch):
    """The seed's dates: 7/1/18, found running on 1/2 7/2/18, a year from 2/1 on, on 2/2 it is 2/2/19."""
    records.put_policy(UID, HALF_A_YEAR, "teja")
    records.change_mark(UID, TAG, assigning("Released"), "teja", "assign")
    dates = [records.mark(UID, TAG).assigned.expires_at]
    for day, policy in (("2018-01-02", None), ("2018-02-01", A_YEAR), ("2018-02-02", None)):
        watch.set(day)
        if policy is not None:
            records.put_policy(UID, policy, "teja")
        else:
            records.change_marks(UID, [TAG], renewing, "system", "found running")
        dates.append(records.mark(UID, TAG).assigned.expires_at)

    assert [*map(parse_instant, ("2018-07-01", "2018-07-02", "2018-07-02", "2019-02-02"))] == dates


def test_scenario_2_0_quarantine_failed_copies_its_policy_from_now(records, watch):
    """What fails its check gets the policy's values; if it passes after all, it gets back what it had."""
    records.change_mark(UID, MANIFEST, deleting_by(parse_instant("2020-01-01")), "alice", "delete by")
    watch.set("2018-01-08")
    failed = records.change_mark(UID, MANIFEST, quarantining(QuarantineState.FAILED), "scanner", "failed")
    passed = records.change_mark(UID, MANIFEST, quarantining(None), "scanner", "passed")

    assert Assigned("Quarantine Failed", parse_instant("2018-01-13"), True, False) == failed.after.assigned
    assert Quarantine(QuarantineState.FAILED, watch.now) == failed.after.quarantine
    assert failed.before.assigned == passed.after.assigned
    assert passed.after.quarantine is None


def test_a_mark_that_says_nothing_is_forgotten(records):
    """An image that was pending and passed has no mark left; the log still tells both."""
    records.change_mark(UID, MANIFEST, quarantining(QuarantineState.PENDING), "scanner", "pending")
    records.change_mark(UID, MANIFEST, quarantining(None), "scanner", "passed")

    assert [] == list(records.marks(UID))
    assert ["passed", "pending"] == [entry.what for entry in records.log(UID)]


def test_a_tag_that_moved_has_one_mark(records):
    """The mark of a tag is the tag's, whatever it stands for; the digest is that of the last change."""
    records.change_mark(UID, TAG, pinning(), "alice", "pin")
    change = records.change_mark(UID, replace(TAG, digest=OTHER), assigning("Default"), "alice", "assign")

    assert [change.after] == list(records.marks(UID))
    assert (DIGEST, OTHER) == (change.before.target.digest, change.after.target.digest)


def test_marks_come_in_the_order_of_their_bytes(records):
    """The stream has every mark of its registry once, in one order on both databases."""
    targets = [
        Target("b", "v1", DIGEST),
        Target("a", "v1", DIGEST),
        Target("B", "v1", DIGEST),
        Target("a", "", OTHER),
        Target("a", "", DIGEST),
        Target("a", "V", DIGEST),
        Target("a", "_", DIGEST),
    ]
    records.change_marks(UID, targets, pinning(), "alice", "pin")
    records.change_mark("1" * 32, TAG, pinning(), "alice", "pin")

    assert sorted(targets, key=lambda one: one.key) == [mark.target for mark in records.marks(UID)]


def test_what_is_put_is_read(records, watch):
    """Every field of a mark survives the database; its time and its user are those of the change."""
    whole = Mark(
        MANIFEST,
        Assigned("P", NEVER, can_delete_prior=False, recycle=False),
        Quarantine(QuarantineState.FAILED, parse_instant("2017-12-31T23:59:59.999999Z")),
        earlier=Assigned("Q", parse_instant("2018-03-01"), can_delete_prior=True),
    )
    bare = Mark(TAG, Assigned("P"))
    records.put_marks(UID, [whole, bare], "alice", "restore marks")

    assert replace(whole, at=watch.now, by="alice") == records.mark(UID, MANIFEST)
    assert replace(bare, at=watch.now, by="alice") == records.mark(UID, TAG)


def test_a_batch_is_all_or_nothing_and_each_is_logged(records, url):
    """Thousands go in one transaction; if the last one is wrong nothing is left of the others."""
    good = [target(number) for number in range(2500)]
    with pytest.raises(BadInput, match="not a digest"):
        records.change_marks(UID, [*good, replace(TAG, digest="sha256:1")], pinning(), "ci", "pin")
    after_failure = rows(url, "image_marks"), rows(url, "image_log")
    count = records.change_marks(UID, [*good, good[0]], assigning("Released"), "ci", "release")

    assert ([], []) == after_failure
    assert 2501 == count
    assert 2500 == sum(1 for _ in records.marks(UID))
    assert 2501 == sum(1 for _ in records.log(UID))


def test_what_comes_twice_in_a_batch_is_logged_in_its_order(records):
    """The second change of a thing begins from the first."""
    first = Mark(TAG, Assigned(None, parse_instant("2019-01-01")))
    second = Mark(TAG, Assigned(None, parse_instant("2020-01-01")))
    records.put_marks(UID, [first, second], "ci", "dates")
    newest, oldest = records.log(UID)

    assert (None, "2019-01-01T00:00:00Z") == (oldest.before, oldest.after["expires_at"])
    assert oldest.after == newest.before
    assert "2020-01-01T00:00:00Z" == newest.after["expires_at"]


def test_removing_a_mark(records):
    """What was assigned can be forgotten; where nothing was, nothing is logged."""
    records.change_mark(UID, TAG, pinning(), "alice", "pin")
    change = records.remove_mark(UID, TAG, "alice", "forget")
    records.remove_mark(UID, TAG, "alice", "forget again")

    assert (TAG, None) == (change.before.target, change.after)
    assert [] == list(records.marks(UID))
    assert ["forget", "pin"] == [entry.what for entry in records.log(UID)]


def test_a_stream_of_marks_is_not_all_in_memory_and_sees_one_moment(records):
    """Thousands of marks are read a part at a time, and what is changed meanwhile does not show."""
    wanted = (Mark(target(number), Assigned("Released", NEVER)) for number in range(6000))
    records.put_marks(UID, wanted, "ci", "many")
    tracemalloc.start()
    stream = records.marks(UID)
    first = next(stream)
    records.remove_mark(UID, target(5999), "alice", "meanwhile")
    left = sum(1 for _ in stream)
    _, streamed = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    everything = list(records.marks(UID))
    _, whole = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert "team/app0" == first.target.repository
    assert (5999, 5999) == (left, len(everything))
    assert streamed < whole / 2


@pytest.mark.parametrize(
    ("operation", "error", "words"),
    [
        (assigning("Relesed"), NotFound, "did you mean 'Released'"),
        (assigning("Released", parse_instant("2018-01-01")), BadInput, "is not ahead"),
        (pinning(parse_instant("2017-12-31")), BadInput, "is not ahead"),
        (deleting_by(parse_instant("2018-01-01")), BadInput, "is not ahead"),
        (quarantining(QuarantineState.FAILED), BadInput, "is a tag"),
    ],
)
def test_what_cannot_be_done_changes_nothing(records, url, operation, error, words):
    """A date that has come, an unknown policy or a tag in quarantine is an error in words."""
    with pytest.raises(error, match=words):
        records.change_mark(UID, TAG, operation, "alice", "try")

    assert [] == rows(url, "image_marks")


@pytest.mark.parametrize(
    "wrong",
    [
        Target("../app", "v1", DIGEST),
        Target("app", "-v1", DIGEST),
        Target("app", "v1", ""),
        Target("app", "", "sha256:x"),
    ],
)
def test_names_that_nothing_can_have(records, url, wrong):
    """A mark on what no registry can hold is refused."""
    with pytest.raises(BadInput, match="is no"):
        records.put_marks(UID, [Mark(wrong, Assigned("Released"))], "alice", "try")

    assert [] == rows(url, "image_marks")


def test_a_mark_is_in_one_registry(records):
    """All registries together have roles in common and no images."""
    with pytest.raises(BadInput, match="not in all"):
        records.change_mark("*", TAG, pinning(), "alice", "pin")


@pytest.mark.parametrize(
    "change",
    [
        lambda records: records.change_mark(UID, TAG, pinning(), "alice", "pin"),
        lambda records: records.put_policy(UID, RELEASED, "alice"),
        lambda records: records.remove_policy(UID, "Released", "alice"),
    ],
)
def test_requirement_10_0_without_its_log_no_change_is_made(records, url, change):
    """A change and its entry are one transaction: if the log cannot be written, nothing is changed."""
    records.put_policy(UID, Policy("Released", Period(1)), "alice")
    before = rows(url, "image_registries"), rows(url, "image_marks")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE image_log RENAME TO image_log_away"))
    with pytest.raises(EnvironmentProblem, match="image_log"):
        change(records)
    found = rows(url, "image_registries"), rows(url, "image_marks")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE image_log_away RENAME TO image_log"))
    engine.dispose()

    assert before == found


def test_it_is_durable(records, url, watch):
    """Another one who opens the database finds what was marked."""
    records.change_mark(UID, TAG, pinning(), "alice", "pin")
    other = ImageRecords(url, clock=watch)
    found = list(other.marks(UID))
    other.close()

    assert [TAG] == [mark.target for mark in found]
