"""The log, the notifications of a registry, and where its last scan is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.contract.records.test_marks import DIGEST, TAG, UID

from ebbtide.core.errors import BadInput
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.records.mark_operations import assigning, pinning, unpinning
from ebbtide.targets.oci.records.model import Action, Event, LogKind, Role, Snapshot
from ebbtide.targets.oci.records.records import ImageRecords

OTHER_UID = "1" * 32
PUSH = Event(Action.PUSH, "team/app", "v1", DIGEST, parse_instant("2018-01-01T00:00:00.000001Z"))
GONE = Event(Action.DELETE, "team/app", "v1", "", parse_instant("2018-01-02"))


def test_requirement_10_0_who_when_before_and_after(records, watch):
    """Each change of an image says who made it and when, and the values before and after."""
    records.change_mark(UID, TAG, assigning("Released"), "alice", "assign Released")
    watch.set("2018-01-02")
    records.change_mark(UID, TAG, unpinning, "bob", "unpin")
    last, first = records.log(UID)

    assert (watch.now, "bob", LogKind.IMAGE, "team/app:v1", "unpin", "") == (
        last.at,
        last.by,
        last.kind,
        last.subject,
        last.what,
        last.refused,
    )
    assert ("alice", None) == (first.by, first.before)
    assert first.after == last.before
    assert (False, "2018-06-30T00:00:00Z") == (last.before["can_delete_prior"], last.before["expires_at"])
    assert (True, "2018-07-01T00:00:00Z") == (last.after["can_delete_prior"], last.after["expires_at"])


def test_the_log_is_asked_about_one_thing(records):
    """A subject, a kind or a limit narrows it; another registry's entries are never in it."""
    for number in range(3):
        records.change_mark(UID, replace(TAG, tag=f"v{number}"), pinning(), "alice", f"pin {number}")
    records.note_purge(UID, 7, "nothing was due")
    records.change_mark(OTHER_UID, TAG, pinning(), "alice", "elsewhere")

    assert ["pin 1"] == [entry.what for entry in records.log(UID, subject="team/app:v1")]
    assert ["nothing was due", "pin 2"] == [entry.what for entry in records.log(UID, limit=2)]
    assert ["run 7"] == [entry.subject for entry in records.log(UID, kind=LogKind.PURGE)]
    assert [] == list(records.log(UID, subject="team/app"))


def test_what_is_granted_in_all_registries_is_in_the_log_of_each(records):
    """Who reads a registry's log sees who came to have a say in it."""
    records.grant("*", "pia", Role.POLICY_WRITER, "operator")

    assert ["operator", "pia"] == sorted(entry.subject for entry in records.log(UID))


def test_a_limit_that_shows_nothing(records):
    """Zero entries is an error and no answer."""
    with pytest.raises(BadInput, match="limit of 0"):
        records.log(UID, limit=0)


def test_notifications_are_kept_once_in_their_order(records):
    """What a registry sends twice is kept once; ids grow."""
    records.add_events(UID, [PUSH, GONE, PUSH])
    records.add_events(UID, [GONE, replace(PUSH, tag="")])
    records.add_events(OTHER_UID, [PUSH])
    found = list(records.events(UID))

    assert [PUSH, GONE, replace(PUSH, tag="")] == [replace(event, id=0) for event in found]
    assert [event.id for event in found] == sorted({event.id for event in found})
    assert [found[2]] == list(records.events(UID, after=found[1].id))


def test_forgotten_notifications_do_not_come_again(records):
    """What a scan has folded in is forgotten up to its id, and new ids are larger than all before."""
    records.add_events(OTHER_UID, [PUSH])
    records.add_events(UID, [PUSH, GONE])
    last = [event.id for event in records.events(UID)][-1]
    records.forget_events(UID, last)
    left = list(records.events(UID))
    records.add_events(UID, [replace(PUSH, tag="v2")])

    assert [] == left
    assert 1 == len(list(records.events(OTHER_UID)))
    assert all(event.id > last for event in records.events(UID))
    assert ["v2"] == [event.tag for event in records.events(UID)]


@pytest.mark.parametrize(
    "wrong", [replace(PUSH, repository="../x"), replace(PUSH, tag="-"), replace(PUSH, digest="sha256:1")]
)
def test_a_notification_that_names_nothing(records, wrong):
    """What could not be in a registry is refused with all that came along."""
    with pytest.raises(BadInput, match="is no"):
        records.add_events(UID, [PUSH, wrong])

    assert [] == list(records.events(UID))


def test_listeners_at_once_and_a_reader_who_forgets(url, watch):
    """A reader who forgets up to the last id that it saw misses nothing of what others write meanwhile."""
    seen = []

    def write(number):
        opened = ImageRecords(url, clock=watch)
        for part in range(10):
            opened.add_events(UID, [replace(PUSH, tag=f"t{number}-{part}-{one}") for one in range(3)])
        opened.close()

    def read():
        opened = ImageRecords(url, clock=watch)
        while len(seen) < 60:
            found = list(opened.events(UID))
            seen.extend(event.tag for event in found)
            opened.forget_events(UID, max((event.id for event in found), default=0))
        opened.close()

    ImageRecords(url, clock=watch).close()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(read), *(pool.submit(write, number) for number in range(2))]
        for one in waiting:
            one.result(timeout=300)

    assert 60 == len(seen) == len(set(seen))


def test_the_last_scan(records):
    """There is one for each registry: the last that was recorded."""
    first = Snapshot("snap-1", parse_instant("2018-01-01"), 10, 30, 0)
    second = Snapshot("snap-2", parse_instant("2018-01-02"), 1_000_000, 3_000_000, 77)
    before = records.snapshot(UID)
    records.record_snapshot(UID, first)
    records.record_snapshot(UID, second)

    assert before is None
    assert second == records.snapshot(UID)
    assert records.snapshot(OTHER_UID) is None
