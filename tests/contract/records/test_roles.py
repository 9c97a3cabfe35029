"""Roles: checked where a change is made; refusals leave everything as it was, and are in the log."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, update
from tests.contract.records.test_marks import TAG, UID, rows

from ebbtide.core.errors import BadInput, Forbidden, NotFound, Refused
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.policies.policy import Assigned, Period, Policies, Policy
from ebbtide.targets.oci.records.mark_operations import assigning, pinning, renewing, unpinning
from ebbtide.targets.oci.records.model import EVERYWHERE, LogKind, Mark, Role, Target
from ebbtide.targets.oci.records.records import ImageRecords
from ebbtide.targets.oci.records.tables import registries

OTHER_UID = "1" * 32
POLICY, IMAGE = Role.POLICY_WRITER, Role.IMAGE_WRITER
TABLES = ("image_marks", "image_roles")
POLICY_CHANGES = {
    "save": lambda records, by: records.save_policies(UID, Policies(), by),
    "put": lambda records, by: records.put_policy(UID, Policy("New", Period(1)), by),
    "remove": lambda records, by: records.remove_policy(UID, "Released", by),
    "rename": lambda records, by: records.rename_policy(UID, "Released", "Prod", by),
    "grant": lambda records, by: records.grant(UID, by, IMAGE, by),
    "revoke": lambda records, by: records.revoke(UID, "ines", IMAGE, by),
    "require": lambda records, by: records.require(UID, POLICY, by, "change something"),
}
IMAGE_CHANGES = {
    "assign": lambda records, by: records.change_mark(UID, TAG, assigning("Default"), by, "assign"),
    "pin": lambda records, by: records.change_mark(UID, TAG, pinning(), by, "pin"),
    "unpin": lambda records, by: records.change_mark(UID, TAG, unpinning, by, "unpin"),
    "many": lambda records, by: records.change_marks(UID, [TAG], pinning(), by, "pin"),
    "put": lambda records, by: records.put_marks(UID, [Mark(TAG, Assigned("Default"))], by, "put"),
    "forget": lambda records, by: records.remove_mark(UID, TAG, by, "forget"),
    "purge": lambda records, by: records.note_purge(UID, 7, "a purge", by),
    "require": lambda records, by: records.require(UID, IMAGE, by, "empty the bin"),
}


@pytest.fixture
def closed(records):
    """Give records of a registry in which pia may change policies and ines images."""
    records.grant(UID, "pia", POLICY, "operator")
    records.revoke(UID, "operator", POLICY, "pia")
    records.grant(UID, "ines", IMAGE, "pia")
    records.change_mark(UID, TAG, pinning(), "ines", "pin")
    return records


def state(url):
    """Read all that a refusal must leave as it was."""
    policies = [row[2:] for row in rows(url, "image_registries") if row[2] is not None]
    return policies, *(rows(url, table) for table in TABLES)


@pytest.mark.parametrize("name", sorted({*POLICY_CHANGES} - {"grant", "revoke"}))
def test_requirement_11_0_without_any_grant_the_operator_may_change_policies(records, name):
    """As long as nobody has a role, who can open the database is not stopped by roles."""
    POLICY_CHANGES[name](records, "operator")

    assert not any(entry.refused for entry in records.log(UID))


@pytest.mark.parametrize("name", sorted(IMAGE_CHANGES))
def test_requirement_11_0_without_any_grant_the_operator_may_change_images(records, name):
    """The same for images."""
    IMAGE_CHANGES[name](records, "operator")

    assert not any(entry.refused for entry in records.log(UID))


@pytest.mark.parametrize("by", ["ines", "operator", "PIA", "pia2"])
@pytest.mark.parametrize("name", sorted(POLICY_CHANGES))
def test_requirement_11_0_policies_are_for_purge_policy_writers(closed, url, name, by):
    """Without the role nobody changes policies or roles; nothing is changed, and the log has it."""
    before = state(url)
    with pytest.raises(Forbidden, match=f"{by} may not"):
        POLICY_CHANGES[name](closed, by)
    entry = next(closed.log(UID))

    assert before == state(url)
    assert by == entry.by
    assert f"{by} may not" in entry.refused
    assert "needs the role purge-policy-writer" in entry.refused


@pytest.mark.parametrize("by", ["pia", "operator"])
@pytest.mark.parametrize("name", sorted(IMAGE_CHANGES))
def test_requirement_11_0_images_are_for_image_purge_writers(closed, url, name, by):
    """Who may change policies may not for that change images; nothing is changed, and the log has it."""
    before = state(url)
    with pytest.raises(Forbidden, match="image-purge-writer"):
        IMAGE_CHANGES[name](closed, by)

    assert before == state(url)
    assert (by, True) == ((entry := next(closed.log(UID))).by, bool(entry.refused))


@pytest.mark.parametrize("name", sorted({*IMAGE_CHANGES}))
def test_requirement_11_0_who_has_the_role_may(closed, name):
    """An image-purge-writer changes images, and nothing is refused."""
    IMAGE_CHANGES[name](closed, "ines")

    assert not any(entry.refused for entry in closed.log(UID))


def test_requirement_11_0_a_grant_is_for_one_registry_or_for_all(closed):
    """What is granted in one registry says nothing about another; what is granted in all counts in each."""
    closed.grant(OTHER_UID, "otto", POLICY, "operator")
    closed.grant(OTHER_UID, "pia", POLICY, "otto")
    closed.grant(EVERYWHERE, "pia", POLICY, "pia")
    closed.grant(EVERYWHERE, "bot", IMAGE, "pia")
    with pytest.raises(Forbidden):
        closed.change_mark(OTHER_UID, TAG, pinning(), "ines", "pin")
    closed.change_mark(OTHER_UID, TAG, pinning(), "bot", "pin")
    closed.change_mark("2" * 32, TAG, pinning(), "bot", "pin")

    assert [("bot", EVERYWHERE), ("ines", UID)] == [
        (grant.member, grant.uid) for grant in closed.grants(UID) if grant.role is IMAGE
    ]


def test_nobody_grants_for_all_to_get_into_a_closed_registry(closed, url):
    """Who grants for all registries must be allowed to in each that somebody has closed."""
    before = state(url)
    with pytest.raises(Forbidden, match="mallory may not"):
        closed.grant(EVERYWHERE, "mallory", POLICY, "mallory")

    assert before == state(url)
    assert "mallory" == next(closed.log(UID)).by


@pytest.mark.parametrize("role", [POLICY, IMAGE])
@pytest.mark.parametrize("uid", [UID, EVERYWHERE])
def test_the_first_grant_locks_nobody_out(records, uid, role):
    """Whoever makes the first grant gets the role that allows granting, and the log says so."""
    records.grant(uid, "ines", role, "operator")
    records.grant(uid, "otto", IMAGE, "operator")
    entries = [(entry.subject, entry.what) for entry in records.log(uid)]

    assert {("operator", POLICY), ("ines", role), ("otto", IMAGE)} == {
        (grant.member, grant.role) for grant in records.grants(uid)
    }
    assert ("operator", "grant purge-policy-writer (with the first grant)") in entries
    assert ("ines", f"grant {role}") in entries
    with pytest.raises(Forbidden, match="mallory may not"):
        records.grant(uid, "mallory", POLICY, "mallory")


def test_who_grants_the_first_role_to_themself(records):
    """One grant of the role that allows granting is one entry in the log."""
    records.grant(UID, "operator", POLICY, "operator")

    assert ["grant purge-policy-writer"] == [entry.what for entry in records.log(UID)]


def test_a_second_grant_gives_the_granter_nothing(closed):
    """Only the first grant of a registry comes with a role for the granter."""
    closed.grant(EVERYWHERE, "pia", POLICY, "pia")
    closed.grant(OTHER_UID, "ines", IMAGE, "pia")

    assert [] == [
        grant for grant in closed.grants(OTHER_UID) if grant.uid == OTHER_UID and grant.member == "pia"
    ]


def test_changes_of_roles_wait_for_each_other_in_all_registries(closed, url):
    """While somebody is at work on the roles for all, nobody judges by them in one registry."""
    engine = create_engine(url)
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            lock = update(registries).where(registries.c.uid == EVERYWHERE)
            connection.execute(lock.values(changes=registries.c.changes + 1))
            waiting = pool.submit(closed.grant, UID, "otto", IMAGE, "pia")
            with pytest.raises(TimeoutError):
                waiting.result(timeout=1)
        done = waiting.result(timeout=300)
    engine.dispose()

    assert ([], [IMAGE]) == done


def test_the_last_policy_writer_goes_last(closed):
    """While others have a role one stays who can change that; after the last one the registry is open."""
    with pytest.raises(Refused, match="no user would have"):
        closed.revoke(UID, "pia", POLICY, "pia")
    closed.revoke(UID, "ines", IMAGE, "pia")
    before, after = closed.revoke(UID, "pia", POLICY, "pia")

    assert ([POLICY], []) == (before, after)
    assert [] == closed.grants(UID)


def test_a_policy_writer_for_all_is_needed_by_each_registry(records):
    """The last one for all stays while a registry has grants and no policy writer of its own."""
    records.grant(EVERYWHERE, "pia", POLICY, "pia")
    records.grant(UID, "ines", IMAGE, "pia")
    with pytest.raises(Refused, match="no user would have"):
        records.revoke(EVERYWHERE, "pia", POLICY, "pia")
    records.grant(UID, "pia", POLICY, "pia")
    records.revoke(EVERYWHERE, "pia", POLICY, "pia")

    assert [UID, UID] == [grant.uid for grant in records.grants(UID)]


def test_requirement_10_0_grants_are_logged_with_before_and_after(closed):
    """The log says who granted what to whom, and what they had before."""
    closed.grant(UID, "ines", POLICY, "pia")
    closed.grant(UID, "ines", POLICY, "pia")
    entries = list(closed.log(UID, subject="ines"))

    assert [
        ("pia", "grant purge-policy-writer", [str(IMAGE)], [str(IMAGE), str(POLICY)]),
        ("pia", "grant image-purge-writer", [], [str(IMAGE)]),
    ] == [(entry.by, entry.what, entry.before, entry.after) for entry in entries]


@pytest.mark.parametrize("name", sorted(POLICY_CHANGES))
@pytest.mark.parametrize("roles", ["open", "closed"])
def test_the_purge_changes_no_policies(request, url, name, roles):
    """`system` may not change policies or roles, whoever has which."""
    records = request.getfixturevalue("closed" if roles == "closed" else "records")
    before = state(url)
    with pytest.raises(Forbidden, match="system may not"):
        POLICY_CHANGES[name](records, "system")

    assert before == state(url)


@pytest.mark.parametrize("operation", [unpinning, assigning("Default")])
def test_the_purge_takes_no_pin_with_a_date_away(closed, url, operation):
    """The same for a release that is pinned until its date; from the date on it is no pin any more."""
    target = Target("team/app", "v2", TAG.digest)
    closed.change_mark(UID, target, assigning("Released"), "ines", "assign")
    before = state(url)
    with pytest.raises(Forbidden, match="system may not unpin team/app:v2"):
        closed.change_mark(UID, target, operation, "system", "renew")

    assert before == state(url)


@pytest.mark.parametrize(
    "operation",
    [unpinning, assigning("Default"), assigning("Released"), pinning(parse_instant("2019-01-01"))],
)
def test_the_purge_takes_no_pin_away(closed, url, operation):
    """`system` may not unpin, nor give a date to what is never deleted; not even among many."""
    before = state(url)
    others = [Target("team/app", f"x{number}", TAG.digest) for number in range(3)]
    with pytest.raises(Forbidden, match="system may not unpin"):
        closed.change_marks(UID, [*others, TAG], operation, "system", "renew")

    assert before == state(url)
    assert "system may not unpin team/app:v1" in next(closed.log(UID)).refused


def test_the_purge_renews_and_notes(closed, watch):
    """`system` needs no grant to assign policies again and to say what a purge did."""
    target = Target("team/app", "v2", TAG.digest)
    closed.change_mark(UID, target, assigning("Released"), "ines", "assign")
    watch.set("2018-01-02")
    closed.change_marks(UID, [target], renewing, "system", "found running")
    closed.note_purge(UID, 7, "2 recycled, 1 deleted")
    newest, renewed, *_ = closed.log(UID)

    assert ("system", LogKind.PURGE, "run 7", "2 recycled, 1 deleted") == (
        newest.by,
        newest.kind,
        newest.subject,
        newest.what,
    )
    assert ("system", "2018-07-01T00:00:00Z") == (renewed.by, renewed.after["expires_at"])


@pytest.mark.parametrize("member", ["", " x", "a\nb", "x" * 257])
def test_names_that_no_user_has(records, member):
    """A name that would not be told from another is refused."""
    with pytest.raises(BadInput, match="not a valid name for a user"):
        records.grant(UID, member, POLICY, "operator")


def test_system_is_nobody(records):
    """The name of the purge gets no role."""
    with pytest.raises(Refused, match="system gets no role"):
        records.grant(UID, "system", POLICY, "operator")


def test_what_was_not_granted_cannot_be_revoked(closed):
    """Taking away what is not there is an error in words."""
    with pytest.raises(NotFound, match="ines does not have purge-policy-writer"):
        closed.revoke(UID, "ines", POLICY, "pia")


GRANTS = """
import sys
from ebbtide.core.errors import EbbtideError
from ebbtide.targets.oci.records.model import Role
from ebbtide.targets.oci.records.records import ImageRecords

records = ImageRecords(sys.argv[1])
sys.stdin.readline()
try:
    records.grant("0" * 32, sys.argv[2], Role.POLICY_WRITER, sys.argv[2])
    print("done")
except EbbtideError as refused:
    print(type(refused).__name__)
"""


def test_two_processes_that_grant_at_once(url, watch):
    """Of those who make the first grant at the same moment, each for itself, one is first."""
    ImageRecords(url, clock=watch).close()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", GRANTS, url, f"user{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = sorted(process.communicate(timeout=300)[0].strip() for process in running)
    opened = ImageRecords(url, clock=watch)
    found, refused = opened.grants(UID), [entry for entry in opened.log(UID) if entry.refused]
    opened.close()

    assert ["Forbidden", "Forbidden", "done"] == said
    assert (1, 2) == (len(found), len(refused))
