"""The run ledger, on SQLite and PostgreSQL."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import create_engine, text

from ebbtide.core.errors import Busy, EnvironmentProblem, NotFound, SafetyStop
from ebbtide.state.locks import target_lock
from ebbtide.state.runs import Ledger, RunState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request, tmp_path):
    """Open an empty ledger on each database."""
    if request.param == "sqlite":
        return Ledger(f"sqlite:///{tmp_path}/deep/ledger.db", clock=lambda: NOW)
    url = request.getfixturevalue("postgres_url")
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in (
            "events",
            "batch_attempts",
            "waves",
            "runs",
            "recycling",
            "ledger_about",
            "ledger_alembic_version",
        ):
            connection.execute(text(f"DROP TABLE IF EXISTS {table} CASCADE"))
    engine.dispose()
    return Ledger(url, clock=lambda: NOW)


def begin(ledger):
    """Begin a run."""
    return ledger.begin("lake:r", "uid", "lifecycle", "{}", NOW)


def test_a_run_goes_through_its_states(ledger):
    """planning, planned, approved, applying, succeeded; each step leaves an event."""
    run_id = begin(ledger)
    ledger.planned(run_id, "hash", 5, 50)
    for state in (RunState.APPROVED, RunState.APPLYING, RunState.SUCCEEDED):
        ledger.move(run_id, state)
    run = ledger.run(run_id)

    assert (RunState.SUCCEEDED, "hash", 5, 50, NOW) == (
        run.state,
        run.plan_hash,
        run.due_objects,
        run.due_bytes,
        run.finished_at,
    )
    assert "applying -> succeeded" == ledger.events(run_id)[-1][2]


@pytest.mark.parametrize("state", [RunState.APPLYING, RunState.SUCCEEDED, RunState.FAILED])
def test_no_state_is_skipped(ledger, state):
    """A run that was never planned cannot be applied, succeed or fail."""
    run_id = begin(ledger)
    with pytest.raises(SafetyStop, match="planning"):
        ledger.move(run_id, state)


def test_a_succeeded_run_stays_so(ledger):
    """What succeeded does not move again."""
    run_id = begin(ledger)
    ledger.planned(run_id, "h", 0, 0)
    for state in (RunState.APPROVED, RunState.APPLYING, RunState.SUCCEEDED):
        ledger.move(run_id, state)
    with pytest.raises(SafetyStop):
        ledger.move(run_id, RunState.APPLYING)


def test_run_numbers_grow(ledger):
    """Every run has a number of its own, larger than those before."""
    assert begin(ledger) < begin(ledger)
    assert [1, 2] == [run.run_id for run in ledger.runs("uid")]
    assert [] == ledger.runs("another")


def test_batches_count_their_attempts(ledger):
    """Every attempt at a batch is remembered with whether it finished."""
    run_id = begin(ledger)
    first = ledger.start_batch(run_id, 0)
    second = ledger.start_batch(run_id, 0)
    ledger.finish_batch(run_id, 0, second)

    assert (1, 2) == (first, second)
    assert {0: [(1, False), (2, True)]} == ledger.batch_attempts(run_id)


def test_an_unknown_run_is_named(ledger):
    """Asking for a run that is not there says so."""
    with pytest.raises(NotFound, match="no run 99"):
        ledger.run(99)


def test_a_broken_ledger_stops_the_run(tmp_path):
    """A ledger that cannot be opened is a problem of the environment, in words."""
    (tmp_path / "ledger.db").write_bytes(b"this is no database, but it is long enough to look like one" * 9)
    with pytest.raises(EnvironmentProblem, match="ledger database failed"):
        Ledger(f"sqlite:///{tmp_path}/ledger.db")


def test_a_newer_ledger_is_refused(tmp_path):
    """A ledger that a newer Ebbtide wrote is not touched."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    Ledger(url)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE ledger_about SET version = 99"))
    with pytest.raises(EnvironmentProblem, match="version 99"):
        Ledger(url)


def test_a_target_has_one_run_at_a_time(tmp_path):
    """While one holds a target another is told who does; afterwards it may."""
    refused = []

    def second():
        try:
            with target_lock(tmp_path, "uid", "second"):
                pass
        except Busy as busy:
            refused.append(str(busy))

    with target_lock(tmp_path, "uid", "ebb apply 7"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    with target_lock(tmp_path, "uid", "third"):
        pass

    assert 1 == len(refused)
    assert "ebb apply 7" in refused[0]


def test_several_may_open_a_new_ledger_at_once(tmp_path):
    """Whoever comes first makes the tables, and nobody fails because another one does."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with ThreadPoolExecutor(8) as threads:
        ledgers = list(threads.map(lambda _: Ledger(url, clock=lambda: NOW), range(8)))
    run_id = begin(ledgers[0])

    assert {run_id} == {ledger.runs()[0].run_id for ledger in ledgers}


def test_numbers_go_on_after_an_acceptance(ledger):
    """An acceptance has the number that it was given, and the next run has a higher one."""
    first = begin(ledger)
    before = ledger.acceptance()
    ledger.accept(first + 5, "the ledger is older")

    assert (0, first + 5) == (before, ledger.acceptance())
    assert first + 6 == begin(ledger)
    assert "accepted: the ledger is older" == ledger.events(first + 5)[0][2]
