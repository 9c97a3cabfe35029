"""Lists come from an index in their order, and do not read the texts of policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from ebbtide.core.errors import EnvironmentProblem
from ebbtide.state.database import Conflict, Database, repeated
from ebbtide.state.runs import Ledger, RunState
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.oci.records.model import LogKind
from ebbtide.targets.oci.records.records import ImageRecords
from ebbtide.targets.s3.stored_rules import BucketRules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UID = "uid"


@contextmanager
def statements(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """Collect the queries of a block."""
    seen: list[tuple[str, Any]] = []

    def note(_connection, _cursor, statement, parameters, _context, _many):
        if statement.lstrip().startswith("SELECT"):
            seen.append((statement, parameters))

    event.listen(database._engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(database._engine, "before_cursor_execute", note)


def plans(database: Database, ask: Callable[[], object]) -> list[str]:
    """Return the steps of the query plans of what a call asks the database."""
    with statements(database) as seen:
        ask()
    with database.reading() as connection:
        return [
            row[-1]
            for statement, parameters in seen
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]


def check(steps: list[str], *, sorts: bool = False) -> None:
    """Check that every table is reached through an index, and nothing is sorted unless it is allowed."""
    assert steps
    for step in steps:
        scans = step.startswith(("SCAN", "SEARCH")) and "subquery" not in step
        assert not scans or " INDEX " in f"{step} " or "PRIMARY KEY" in step, steps
        assert sorts or "TEMP B-TREE" not in step, steps


@pytest.fixture
def url(tmp_path):
    """Name a new database."""
    return f"sqlite:///{tmp_path}/lists.db"


LEDGER_LISTS: dict[str, Callable[[Ledger], object]] = {
    "of a target": lambda ledger: ledger.runs(UID),
    "of a URL": lambda ledger: ledger.runs(target="lake:sales"),
    "since": lambda ledger: ledger.runs_since(UID, NOW),
    "identities": lambda ledger: ledger.target_uids(),
    "acceptance": lambda ledger: ledger.acceptance(),
    "events": lambda ledger: ledger.events(1),
    "attempts": lambda ledger: ledger.batch_attempts(1),
    "last identity": lambda ledger: ledger.target_uid("lake:sales"),
    "last run": lambda ledger: ledger.last_run(UID, RunState.SUCCEEDED, "lifecycle"),
}
SORTED: dict[str, Callable[[Ledger], object]] = {
    "in states": lambda ledger: ledger.runs_in(UID, RunState.PLANNED, RunState.APPLYING),
    "interrupted": lambda ledger: ledger.interrupted_runs(UID),
    "finished attempts": lambda ledger: ledger.finished_attempts(UID, folded=False),
    "number of attempts": lambda ledger: ledger.count_attempts(UID, folded=False),
}


@pytest.mark.parametrize("name", [*LEDGER_LISTS, *SORTED])
def test_lists_of_runs_use_an_index(url, name):
    """Runs, events and attempts are found through an index; only a few in certain states are sorted."""
    ledger = Ledger(url)
    ask = (LEDGER_LISTS | SORTED)[name]
    check(plans(ledger._database, lambda: ask(ledger)), sorts=name in SORTED)
    ledger.close()


def test_the_list_of_all_runs_is_read_in_the_order_of_their_numbers(url):
    """All runs come in the order in which the table is kept, so nothing is sorted."""
    ledger = Ledger(url)

    assert ["SCAN runs"] == plans(ledger._database, ledger.runs)
    ledger.close()


def test_no_list_of_runs_reads_a_policy(url):
    """No list selects the text of a policy; it is read for one run at a time."""
    ledger = Ledger(url, clock=lambda: NOW)
    run_id = ledger.begin("lake:sales", UID, "lifecycle", "a long text", NOW)
    with statements(ledger._database) as seen:
        for ask in (LEDGER_LISTS | SORTED).values():
            ask(ledger)
        ledger.runs()
        ledger.run(run_id)
    policy = ledger.policy(run_id)
    ledger.close()

    assert "a long text" == policy
    assert not [statement for statement, _ in seen if "policy" in statement]


def test_the_list_of_bucket_rules_reads_no_configuration(url):
    """Buckets with rules are listed in order from an index, without the text of their rules."""
    book = BucketRules(url)
    with statements(book._database) as seen:
        book.stored()
    check(plans(book._database, book.stored))
    book.close()

    assert not [statement for statement, _ in seen if ".text" in statement]


RECORD_LISTS: dict[str, Callable[[ImageRecords], object]] = {
    "marks": lambda records: list(records.marks(UID)),
    "log": lambda records: list(records.log(UID, limit=10)),
    "log of a subject": lambda records: list(records.log(UID, subject="app:v1")),
    "log of a kind": lambda records: list(records.log(UID, kind=LogKind.PURGE)),
    "events": lambda records: list(records.events(UID, after=3)),
}


@pytest.mark.parametrize("name", RECORD_LISTS)
def test_lists_of_records_use_an_index(url, name):
    """Marks, log entries and notifications of a registry come from an index in their order."""
    records = ImageRecords(url)
    check(plans(records._database, lambda: RECORD_LISTS[name](records)))
    records.close()


CATALOG_LISTS: dict[str, Callable[[Catalog, Any], object]] = {
    "repositories": lambda catalog, _: catalog.repositories(),
    "deleted": lambda catalog, _: catalog.deleted_repositories(),
    "branches": lambda catalog, _: catalog.branches("lake"),
    "tags": lambda catalog, _: catalog.tags("lake"),
    "commits": lambda catalog, _: list(catalog.log("lake", "main")),
    "policies": lambda catalog, _: catalog.policy_history("lake"),
    "policy": lambda catalog, _: catalog.policy("lake"),
}
QUEUES: dict[str, Callable[[Catalog, Any], object]] = {
    "queue": lambda catalog, target: list(catalog.reclaim_queue(target)),
    "counts": lambda catalog, target: catalog.queue_counts(target.uid),
}


@pytest.mark.parametrize("name", [*CATALOG_LISTS, *QUEUES])
def test_lists_of_the_catalog_use_an_index(url, tmp_path, name):
    """Repositories, refs, commits, texts and the reclaim queue are found through an index."""
    catalog = Catalog(url)
    catalog.create_repository("lake", str(tmp_path / "lake"))
    target = catalog.reclaim_target("lake")
    ask = (CATALOG_LISTS | QUEUES)[name]
    check(plans(catalog._database, lambda: ask(catalog, target)), sorts=name in QUEUES)
    catalog.close()


class Conflicting(Exception):
    """An error of the driver with PostgreSQL's state for a deadlock."""

    sqlstate = "40P01"


@pytest.mark.parametrize(("failures", "succeeds"), [(4, True), (5, False)])
def test_a_transaction_that_postgresql_undid_is_repeated(url, failures, succeeds):
    """A method is repeated a few times after a conflict, and then fails with words."""
    ledger, tries = Ledger(url, clock=lambda: NOW), []

    @repeated
    def change():
        with ledger._database.writing() as connection:
            tries.append(1)
            connection.execute(text("SELECT 1"))
            if len(tries) <= failures:
                raise OperationalError("UPDATE", {}, Conflicting("deadlock detected"))
        return "done"

    if succeeds:
        assert "done" == change()
    else:
        with pytest.raises(Conflict, match="deadlock detected"):
            change()
    assert min(failures + 1, 5) == len(tries)
    ledger.close()


def test_other_errors_are_not_repeated(url):
    """An error that is no conflict is told at once."""
    ledger, tries = Ledger(url), []

    @repeated
    def change():
        with ledger._database.writing() as connection:
            tries.append(1)
            connection.execute(text("SELECT 1 FROM nowhere"))

    with pytest.raises(EnvironmentProblem, match="no such table: nowhere"):
        change()
    assert 1 == len(tries)
    ledger.close()


def test_a_reader_sees_one_moment(url):
    """What is written while a read transaction is open is not seen in it, and nobody waits."""
    ledger = Ledger(url, clock=lambda: NOW)
    with ledger._database.reading() as connection:
        before = connection.execute(text("SELECT count(*) FROM runs")).scalar()
        ledger.begin("lake:sales", UID, "lifecycle", "", NOW + timedelta(days=1))
        during = connection.execute(text("SELECT count(*) FROM runs")).scalar()

    assert (0, 0, 1) == (before, during, len(ledger.runs()))
    ledger.close()
