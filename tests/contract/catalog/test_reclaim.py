"""The reclaim queue: every drop queues its address, and only what nothing needs is ever fenced."""

from datetime import timedelta

import pyarrow as pa
import pytest
import sqlalchemy

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import LiveObjectMissing, ObjectGone, Refused
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.lake.catalog import commits, reclaim_queue
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.ranges import ENTRIES
from ebbtide.targets.lake.reaper import Reaped, Reaper, ReapOptions

NO_GRACE = ReapOptions(grace=timedelta(0))


def queued(catalog, repo="lake"):
    """Give what waits in the queue: address to reason."""
    return {row.address: row.reason for row in catalog.reclaim_queue(catalog.reclaim_target(repo))}


def stored(catalog):
    """List the data objects in the store."""
    return {key for batch in catalog.store("lake").list("repos/") for key in batch.column("key").to_pylist()}


def reap(catalog, options=NO_GRACE, remover=None, repo="lake"):
    """Reap all that is due."""
    return Reaper(catalog, options, remover).reap(catalog.reclaim_target(repo))


def upload(catalog, key, branch="main"):
    """Upload an object and give its address."""
    return catalog.upload("lake", branch, key, key.encode()).address


def commit(catalog, branch="main"):
    """Commit what is staged."""
    return catalog.commit("lake", branch, "m")


DROPS = {
    "overwritten": lambda catalog: upload(catalog, "a"),
    "deleted": lambda catalog: catalog.delete("lake", "main", "a"),
    "reset": lambda catalog: catalog.reset("lake", "main"),
}
OVERWRITES = {
    "upload_many": lambda catalog: catalog.upload_many("lake", "main", [("a", b"")]),
    "stage": lambda catalog: catalog.stage("lake", "main", "a", "s3://other/a", 1),
    "copy onto it": lambda catalog: catalog.copy("lake", "main", "other", "a"),
    "move onto it": lambda catalog: catalog.move("lake", "main", "other", "a"),
    "copy of data onto it": lambda catalog: catalog.copy("lake", "main", "x", "a", source_ref="b1"),
}


@pytest.mark.parametrize("reason", DROPS)
def test_a_drop_queues_the_address_with_its_reason(catalog, reason):
    """What overwrites, deletes or resets a staged key queues its object, and that alone is reaped."""
    kept = upload(catalog, "kept")
    commit(catalog)
    lost = upload(catalog, "a")
    DROPS[reason](catalog)

    assert {lost: reason} == queued(catalog)
    assert {"deleted": 1} == reap(catalog).outcomes
    assert lost not in stored(catalog)
    assert kept in stored(catalog)
    assert all(entry.address in stored(catalog) for entry in catalog.ls("lake", "main"))
    assert {} == queued(catalog)


@pytest.mark.parametrize("how", OVERWRITES)
def test_every_way_to_overwrite_queues(catalog, how):
    """Whatever takes a staged key's place queues the object that was there."""
    catalog.create_branch("lake", "b1", "main")
    upload(catalog, "x", "b1")
    upload(catalog, "other")
    lost = upload(catalog, "a")
    OVERWRITES[how](catalog)

    assert queued(catalog)[lost] == "overwritten"
    reap(catalog)
    assert lost not in stored(catalog)
    assert all(entry.address in stored(catalog) for entry in catalog.ls("lake", "b1"))


def test_twice_the_same_key_in_one_batch_queues_the_first(catalog):
    """Of two uploads of one key in one call the first is nobody's at once."""
    catalog.upload_many("lake", "main", [("a", b"1"), ("b", b""), ("a", b"2")])

    assert 1 == len(queued(catalog))
    reap(catalog)
    assert 2 == len(stored(catalog))
    assert b"2" == catalog.read("lake", "main", "a")


def test_a_reset_of_a_prefix_queues_that_prefix(catalog):
    """A reset of some keys leaves the others alone."""
    kept, lost = upload(catalog, "b/1"), upload(catalog, "a/1")
    catalog.reset("lake", "main", "a/")
    reap(catalog)

    assert {kept} == stored(catalog)
    assert lost != kept


def test_a_deleted_branch_queues_what_was_staged_and_never_linked(catalog):
    """What only a deleted branch had goes; what it had committed stays."""
    catalog.create_branch("lake", "b1", "main")
    held = upload(catalog, "held", "b1")
    commit(catalog, "b1")
    lost = upload(catalog, "lost", "b1")
    given = catalog.get_physical_address("lake", "b1", "never")
    catalog.store("lake").write(given.address, b"")
    catalog.delete_branch("lake", "b1")

    assert {lost: "branch deleted", given.address: "branch deleted"} == queued(catalog)
    reap(catalog)
    assert {held} == stored(catalog)


def test_a_deleted_repository_queues_what_was_staged(catalog):
    """Its staged objects go; what it had committed, shared or not, is left to `ebb plan --deleted`."""
    store = catalog.store("lake")
    held = upload(catalog, "held")
    commit(catalog)
    catalog.copy("lake", "main", "held", "shared")
    lost = upload(catalog, "lost")
    catalog.delete_repository("lake")
    done = reap(catalog)
    left = [key for batch in store.list("repos/") for key in batch.column("key").to_pylist()]

    assert ({"deleted": 1}, 1) == (done.outcomes, done.needed)
    assert [held] == left
    assert lost != held
    catalog.forget_deleted(catalog.deleted_repository("lake").uid)
    with catalog._database.reading() as connection:
        for table in ("catalog_reclaim", "catalog_shared", "catalog_imports"):
            assert 0 == connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar()  # noqa: S608


def test_a_commit_queues_what_it_overwrote(catalog, monkeypatch):
    """A row of a commit that crashed, overwritten since, is in no commit: the next commit queues it."""
    lost = upload(catalog, "a")
    real = commits.apply_changes

    def crash(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(commits, "apply_changes", crash)
    with pytest.raises(KeyboardInterrupt):
        commit(catalog)
    monkeypatch.setattr(commits, "apply_changes", real)
    kept = upload(catalog, "a")
    before = queued(catalog)
    commit(catalog)

    assert {} == before
    assert {lost: "overwritten before the commit"} == queued(catalog)
    reap(catalog)
    assert {kept} == stored(catalog)


def test_an_upload_that_is_never_linked_goes_when_its_token_has_expired(catalog, clock):
    """While a token is open its object stays; then the reaper finds it, and the token still says why not."""
    given = catalog.get_physical_address("lake", "main", "k")
    catalog.store("lake").write(given.address, b"x")
    early = reap(catalog)
    clock.advance(hours=24)
    late = reap(catalog)

    assert (0, {"deleted": 1}) == (early.batches, late.outcomes)
    with pytest.raises(Refused, match="expired at"):
        catalog.link_physical_address("lake", "main", "k", given.token, size=1)
    assert 0 == reap(catalog).batches


def test_a_token_that_is_forgotten_queues_its_upload(catalog, clock):
    """A token that expired long ago goes when the next is issued; its object is queued with it."""
    given = catalog.get_physical_address("lake", "main", "k")
    linked = catalog.get_physical_address("lake", "main", "l")
    catalog.store("lake").write(linked.address, b"")
    catalog.link_physical_address("lake", "main", "l", linked.token, size=0)
    clock.advance(days=9)
    catalog.get_physical_address("lake", "main", "m")

    assert {given.address: "never linked"} == queued(catalog)


def test_a_link_of_what_is_fenced_is_refused(catalog, open_catalog, clock):
    """A reaper whose clock is ahead fences an upload; the link, in time by its own clock, is told so."""
    given = catalog.get_physical_address("lake", "main", "k")
    catalog.store("lake").write(given.address, b"x")
    hasty = open_catalog(clock=lambda: clock() + timedelta(days=2))
    target = hasty.reclaim_target("lake")
    hasty.tidy_queue(target, timedelta(days=7))
    fenced = hasty.fence_batch(target, "me", limit=9, grace=timedelta(0), lease=timedelta(0))

    with pytest.raises(ObjectGone, match=r"the reaper took it.*never linked"):
        catalog.link_physical_address("lake", "main", "k", given.token, size=1)
    assert (given.address,) == fenced.addresses


@pytest.mark.parametrize("lock", ["the link alone", "the commit alone", "both"])
def test_what_waits_and_is_linked_all_the_same_stays(catalog, open_catalog, clock, monkeypatch, lock):
    """A reaper whose clock is ahead queues an upload; linked in time and committed, it is never taken."""
    given = catalog.get_physical_address("lake", "main", "k")
    catalog.store("lake").write(given.address, b"x")
    hasty = open_catalog(clock=lambda: clock() + timedelta(days=2))
    hasty.tidy_queue(hasty.reclaim_target("lake"), timedelta(days=7))
    waiting = queued(catalog)
    with monkeypatch.context() as broken:
        if lock == "the commit alone":
            broken.setattr(reclaim_queue, "dequeue", lambda *_: None)
        catalog.link_physical_address("lake", "main", "k", given.token, size=1)
    with monkeypatch.context() as broken:
        if lock == "the link alone":
            broken.setattr(reclaim_queue, "note_commit", lambda *_: None)
        commit(catalog)

    assert {given.address: "never linked"} == waiting
    assert {} == queued(catalog)
    assert 0 == reap(hasty).batches
    assert b"x" == catalog.read("lake", "main", "k")


SHARES = {
    "a staged copy": lambda catalog: catalog.copy("lake", "main", "a", "b"),
    "a move": lambda catalog: catalog.move("lake", "main", "a", "b"),
}


@pytest.mark.parametrize("how", SHARES)
@pytest.mark.parametrize("first", ["committed before", "committed with it", "never committed"])
def test_a_shared_object_goes_with_its_last_reference(catalog, how, first):
    """An object with two entries stays while one of them is staged, and for ever if one was committed."""
    address = upload(catalog, "a")
    if first == "committed before":
        commit(catalog)
    SHARES[how](catalog)
    if first == "committed with it":
        commit(catalog)
        catalog.copy("lake", "main", "b", "c")
    reap(catalog)
    between = stored(catalog)
    catalog.reset("lake", "main")
    reap(catalog)

    assert {address} == between
    assert (set() if first == "never committed" else {address}) == stored(catalog)
    assert {} == queued(catalog)


def test_records_of_sharing_are_forgotten_and_made_again(catalog):
    """When nothing of a shared object is staged any more its record goes; a new copy makes a new one."""
    address = upload(catalog, "a")
    commit(catalog)
    for _ in range(2):
        catalog.copy("lake", "main", "a", "b")
        catalog.reset("lake", "main")
        reap(catalog)
        reap(catalog)
        with catalog._database.reading() as connection:
            left = connection.exec_driver_sql("SELECT count(*) FROM catalog_shared").scalar()

        assert (0, {address}) == (left, stored(catalog))


def entry_of(address, key="z"):
    """Make a table to import: one entry of this address."""
    row = {"key": key, "address": address, "created": 0, "size": 1, "checksum": ""}
    return [pa.Table.from_pylist([row], schema=ENTRIES)]


def test_what_was_imported_stays(catalog):
    """An import makes a staged object a committed one, past staging; its reset deletes nothing."""
    address = upload(catalog, "a")
    catalog.import_entries("lake", "main", entry_of(address), "import")
    catalog.reset("lake", "main")
    done = reap(catalog)

    assert ({}, 1, {address}) == (done.outcomes, done.needed, stored(catalog))


def test_what_is_gone_is_not_imported(catalog):
    """An import of an object that the reaper took is refused whole."""
    address = upload(catalog, "a")
    catalog.reset("lake", "main")
    reap(catalog)
    head = catalog.branches("lake")

    with pytest.raises(ObjectGone, match=r"the reaper took it.*reset"):
        catalog.import_entries("lake", "main", entry_of(address), "import")
    assert head == catalog.branches("lake")


def test_the_grace_period_counts_from_the_last_drop(catalog, clock):
    """To the microsecond: what was dropped again waits anew."""
    address = upload(catalog, "a")
    catalog.copy("lake", "main", "a", "b")
    catalog.delete("lake", "main", "a")
    clock.advance(minutes=30)
    catalog.delete("lake", "main", "b")
    clock.advance(minutes=60, microseconds=-1)
    early = reap(catalog, ReapOptions())
    clock.advance(microseconds=1)
    late = reap(catalog, ReapOptions())

    assert (0, {"deleted": 1}) == (early.batches, late.outcomes)
    assert address not in stored(catalog)


def test_a_fence_that_was_left_is_taken_over(catalog, open_catalog, clock):
    """A reaper that dies after its fence leaves its batch to another, at once after its lease has ended."""
    upload(catalog, "a")
    catalog.reset("lake", "main")
    target = catalog.reclaim_target("lake")
    catalog.fence_batch(target, "dead", limit=9, grace=timedelta(0), lease=timedelta(minutes=10))
    other = open_catalog()
    early = reap(other)
    clock.advance(minutes=10)
    late = reap(other)

    assert (0, 1, {"deleted": 1}) == (early.batches, late.taken_over, late.outcomes)
    assert set() == stored(catalog)


class Refusing:
    """A remover that cannot delete."""

    def __init__(self, outcome):
        self.outcome = outcome

    def remove(self, target, store, addresses):
        """Say so."""
        return [DeleteResult(address, self.outcome, "no way") for address in addresses]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.DENIED])
def test_what_could_not_be_deleted_is_reported_and_tried_again(catalog, clock, outcome):
    """It stays fenced, says why, and goes when the store lets it."""
    address = upload(catalog, "a")
    catalog.reset("lake", "main")
    failed = reap(catalog, remover=Refusing(outcome))
    (row,) = catalog.reclaim_queue(catalog.reclaim_target("lake"))
    at_once = reap(catalog)
    clock.advance(minutes=5)
    later = reap(catalog)

    assert ([f"{address}: {outcome}, no way"], 1) == (failed.problems, failed.failed)
    assert ("fenced", f"{outcome}: no way", 1) == (row.state, row.problem, row.tries)
    assert (0, {"deleted": 1}) == (at_once.batches, later.outcomes)


def test_who_reads_what_was_reaped_is_told(catalog, monkeypatch):
    """A reader that holds an entry from before learns that the reaper took its object, and why."""
    entry = catalog.upload("lake", "main", "a", b"a")
    catalog.reset("lake", "main")
    reap(catalog)
    monkeypatch.setattr(Catalog, "stat", lambda *_args: entry)

    with pytest.raises(ObjectGone, match=r"the reaper took it: nothing referred to it any more \(reset, "):
        catalog.read("lake", "main", "a")


def test_what_became_of_an_object_is_forgotten_after_a_while(catalog, clock, monkeypatch):
    """For a week it is known who took it; later, when more was fenced since, it is just missing."""
    entry = catalog.upload("lake", "main", "a", b"a")
    catalog.reset("lake", "main")
    reap(catalog)
    clock.advance(days=8)
    later = upload(catalog, "b")
    catalog.reset("lake", "main")
    reap(catalog)
    reap(catalog)
    monkeypatch.setattr(Catalog, "stat", lambda *_args: entry)

    assert [later] == list(catalog.reaped(catalog.repository("lake").uid))
    with pytest.raises(LiveObjectMissing):
        catalog.read("lake", "main", "a")


def test_the_numbers_of_fences_never_begin_anew(catalog, clock):
    """However long ago the last fence was, the next has a higher number: imports go by it."""
    uid, numbers = catalog.repository("lake").uid, []
    for _ in range(3):
        upload(catalog, "a")
        catalog.reset("lake", "main")
        reap(catalog)
        with catalog._database.reading() as connection:
            numbers.append(reclaim_queue.newest_fence(connection, uid))
        clock.advance(days=100)

    assert [1, 2, 3] == numbers


def test_what_is_brought_back_leaves_the_queue_unless_it_is_fenced(catalog):
    """A restored object is not reaped; for one that a reaper has taken it is too late, and that is said."""
    uid = catalog.repository("lake").uid
    fenced = upload(catalog, "a")
    catalog.reset("lake", "main")
    reap(catalog, remover=Refusing(Outcome.FAILED))
    waiting, other = upload(catalog, "b"), upload(catalog, "c")
    catalog.reset("lake", "main")
    late = catalog.reprieve(uid, [fenced, waiting])
    done = reap(catalog)

    assert {fenced} == late
    assert {"deleted": 1} == done.outcomes
    assert {fenced, waiting} == stored(catalog)
    assert [other] == [one for one in catalog.reaped(uid) if one != fenced]


def test_an_upload_that_was_never_linked_and_is_brought_back_is_not_queued_again(catalog, clock):
    """Its token has expired for good; one that is brought back before the reaper knew of it stays too."""
    uid = catalog.repository("lake").uid
    given = [catalog.get_physical_address("lake", "main", key).address for key in "abc"]
    for address in given:
        catalog.store("lake").write(address, b"x")
    clock.advance(days=2)
    early = catalog.reprieve(uid, given[:1])
    catalog.tidy_queue(catalog.reclaim_target("lake"), timedelta(days=7))
    late = catalog.reprieve(uid, given[1:2])
    reap(catalog)

    assert (set(), set()) == (early, late)
    assert set(given[:2]) == stored(catalog)


def test_the_queue_is_counted_and_the_taken_are_explained(catalog):
    """Who misses an object learns whether the reaper took it, when and why, and what else waits."""
    uid, address = catalog.repository("lake").uid, upload(catalog, "a")
    catalog.reset("lake", "main")
    before = (catalog.queue_counts(uid), catalog.reaped_because(uid, address))
    reap(catalog)

    assert ({"waiting": 1, "fenced": 0, "gone": 0}, "") == before
    assert {"waiting": 0, "fenced": 0, "gone": 1} == catalog.queue_counts(uid)
    assert "the reaper deleted it at " in catalog.reaped_because(uid, address)
    assert "nothing referred to it (reset, " in catalog.reaped_because(uid, address)
    assert "" == catalog.reaped_because(uid, "repos/other")


def test_what_another_took_first_is_absent(catalog):
    """An object that a run has deleted meanwhile is gone for the reaper too."""
    address = upload(catalog, "a")
    catalog.reset("lake", "main")
    Reaper(catalog)._remover.remove(catalog.reclaim_target("lake"), catalog.store("lake"), [address])

    assert {"absent": 1} == reap(catalog).outcomes


def test_batches_go_on_until_nothing_is_due(catalog):
    """However small the batches and however many are needed after all, one pass does all that is due."""
    for number in range(7):
        upload(catalog, f"k{number}")
        catalog.copy("lake", "main", f"k{number}", f"c{number}")
    catalog.reset("lake", "main", "k")
    upload(catalog, "x")
    catalog.delete("lake", "main", "x")
    done = reap(catalog, ReapOptions(grace=timedelta(0), batch=2))

    assert ({"deleted": 1}, 7) == (done.outcomes, done.needed)
    assert 7 == len(stored(catalog))


def test_only_data_objects_of_the_repository_are_deleted(catalog):
    """Whatever else got into the queue is denied: metadata, objects past the catalog, other repositories'."""
    target, store = catalog.reclaim_target("lake"), catalog.store("lake")
    good = upload(catalog, "a")
    strange = ["_lakefs/x", "data/x", good + "x", good.replace(target.uid, "0" * 32), "s3://other/x"]
    results = {r.key: r.outcome for r in Reaper(catalog)._remover.remove(target, store, [*strange, good])}

    assert dict.fromkeys(strange, Outcome.DENIED) | {good: Outcome.DELETED} == results


def test_a_rehearsal_touches_nothing(catalog):
    """The next batch can be asked for without a fence."""
    address = upload(catalog, "a")
    catalog.reset("lake", "main")
    target = catalog.reclaim_target("lake")
    batch = catalog.due_batch(target, limit=9, grace=timedelta(0))

    assert ((address,), {address: "reset"}) == (batch.addresses, queued(catalog))
    assert {address} == stored(catalog)


def test_a_reaper_that_finds_no_repository_does_nothing(catalog):
    """A repository that is collected and forgotten while a reaper is on its way has no batch."""
    target = catalog.reclaim_target("lake")
    upload(catalog, "a")
    catalog.reset("lake", "main")
    catalog.delete_repository("lake")
    catalog.forget_deleted(target.uid)
    done = Reaped("lake")

    assert not Reaper(catalog, NO_GRACE).reap_batch(target, done)
    assert {} == done.outcomes


def downgrade(url):
    """Turn a catalog into one of version 1, as the Ebbtide before the reaper made it."""
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        for table in ("reclaim", "shared", "imports"):
            connection.exec_driver_sql(f"DROP TABLE catalog_{table}")
        for index in ("staging", "tokens"):
            connection.exec_driver_sql(f"DROP INDEX catalog_{index}_by_address")
        connection.exec_driver_sql("ALTER TABLE catalog_branch_heads RENAME TO catalog_branches")
        connection.exec_driver_sql("UPDATE catalog_schema SET version = 1")
        connection.exec_driver_sql("DROP TABLE catalog_alembic_version")
    engine.dispose()


def test_a_catalog_of_version_1_is_brought_along(catalog, open_catalog, database_url):
    """What was shared or committed before there were records of it stays; what is dropped after goes."""
    held, shared, lost = (upload(catalog, key) for key in ("held", "shared", "lost"))
    catalog.reset("lake", "main", "shared")
    commit(catalog)
    catalog.copy("lake", "main", "held", "again")
    shared = upload(catalog, "shared")
    catalog.copy("lake", "main", "shared", "twin")
    fresh = upload(catalog, "fresh")
    catalog.close()
    downgrade(database_url)
    migrated = open_catalog()
    migrated.reset("lake", "main", "again")
    migrated.reset("lake", "main", "twin")
    migrated.commit("lake", "main", "m")
    migrated.copy("lake", "main", "shared", "twin")
    migrated.reset("lake", "main")
    upload(migrated, "x")
    migrated.reset("lake", "main")
    done = reap(migrated)

    assert {"deleted": 1} == done.outcomes
    assert {held, lost, shared, fresh} <= stored(migrated)
    assert [3] == _versions(migrated)[-1:]


def test_what_a_crashed_commit_shared_before_the_migration_stays(
    catalog, open_catalog, database_url, monkeypatch
):
    """A commit that overwrites one of two old rows of an object queues it; that it has the other keeps it."""

    def crash(*_args, **_more):
        raise KeyboardInterrupt

    shared = upload(catalog, "a")
    with monkeypatch.context() as patched:
        patched.setattr(commits, "apply_changes", crash)
        with pytest.raises(KeyboardInterrupt):
            commit(catalog)
    catalog.copy("lake", "main", "a", "twin")
    over = upload(catalog, "a")
    catalog.close()
    downgrade(database_url)
    migrated = open_catalog()
    commit(migrated)
    done = reap(migrated)

    assert (1, {}) == (done.needed, done.outcomes)
    assert {shared, over} == stored(migrated)


def _versions(catalog):
    """Give the versions that the schema had."""
    with catalog._database.reading() as connection:
        return sorted(connection.exec_driver_sql("SELECT version FROM catalog_schema").scalars())


def test_an_older_ebbtide_that_is_still_running_can_do_no_harm(catalog, open_catalog, database_url):
    """What looks branches up by the name of version 1, as all that refers does, fails after the migration."""
    downgrade(database_url)
    catalog.close()
    engine = sqlalchemy.create_engine(database_url)
    ask = "SELECT count(*) FROM catalog_branches"
    with engine.connect() as connection:
        before = connection.exec_driver_sql(ask).scalar()
    open_catalog()
    with engine.connect() as connection, pytest.raises(sqlalchemy.exc.DBAPIError):
        connection.exec_driver_sql(ask)
    engine.dispose()

    assert 1 == before
