"""Databases of every earlier schema are upgraded, on SQLite and PostgreSQL; see tests/fixtures/schemas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, column, create_engine, func, inspect, select, table, text
from tests.services.old_state import old_state

from ebbtide.core.errors import EnvironmentProblem
from ebbtide.state import migration
from ebbtide.state.database import Database
from ebbtide.state.migration import Schema
from ebbtide.state.runs import Ledger
from ebbtide.state.schema import SCHEMA as LEDGER
from ebbtide.targets.lake.catalog.schema import SCHEMA as CATALOG
from ebbtide.targets.oci.records.tables import SCHEMA as RECORDS
from ebbtide.targets.s3.stored_rules import SCHEMA as RULES

FIXTURES = Path(__file__).parents[2] / "fixtures" / "schemas"
OWNERS = {"ledger": LEDGER, "catalog": CATALOG, "records": RECORDS, "rules": RULES}
EARLIER = sorted({path.name.split(".")[0] for path in FIXTURES.glob("*.sql")})
RECOGNISED = {
    "ledger-79f5232": "ledger_1",
    "ledger-cbf9d6c": "ledger_2",
    "ledger-9b5ac1c": "ledger_3",
    "catalog-79f5232": "catalog_1",
    "catalog-6414b7b": "catalog_2",
    "catalog-5e03347": "catalog_3",
    "catalog-1d52df2": "catalog_4",
    "catalog-9b5ac1c": "catalog_5",
    "records-b3f78cd": "records_1",
    "records-9b5ac1c": "records_2",
    "rules-84be738": "rules_1",
}


def make_earlier(url: str, name: str) -> Schema:
    """Make a database as an earlier Ebbtide made it."""
    engine = create_engine(url)
    script = (FIXTURES / f"{name}.{engine.dialect.name}.sql").read_text()
    with engine.begin() as connection:
        for statement in filter(str.strip, script.split(";\n")):
            connection.exec_driver_sql(statement)
    engine.dispose()
    return OWNERS[name.partition("-")[0]]


def shape(url: str, schema: Schema) -> dict[str, object]:
    """Describe tables, columns, keys and indexes; the names of constraints are made up by the databases."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = {name: _table(connection, name) for name in [*schema.metadata.tables, schema.version_table]}
    engine.dispose()
    return found


def _table(connection: Connection, name: str) -> dict[str, object]:
    tables = inspect(connection)
    foreign = tables.get_foreign_keys(name)
    indexes = tables.get_indexes(name)
    return {
        "columns": [
            (one["name"], str(one["type"]), getattr(one["type"], "collation", None), one["nullable"])
            for one in tables.get_columns(name)
        ],
        "key": tables.get_pk_constraint(name)["constrained_columns"],
        "unique": sorted(tuple(one["column_names"]) for one in tables.get_unique_constraints(name)),
        "foreign": sorted(
            (one["constrained_columns"], one["referred_table"], one["referred_columns"], str(one["options"]))
            for one in foreign
        ),
        "indexes": sorted(
            (one["name"], one["column_names"], one["unique"], str(one.get("dialect_options")))
            for one in indexes
            if "duplicates_constraint" not in one
        ),
        "options": tables.get_table_options(name),
    }


def revision_of(url: str, schema: Schema) -> tuple[str, int]:
    """Read the revision and the number of a database."""
    engine = create_engine(url)
    with engine.connect() as connection:
        revision = connection.execute(select(column("version_num")).select_from(table(schema.version_table)))
        number = connection.execute(select(func.max(schema.about.c.version)))
        found = revision.scalar_one(), number.scalar_one()
    engine.dispose()
    return found


@pytest.mark.parametrize("owner", OWNERS)
def test_the_revisions_of_a_schema_are_those_of_its_migrations(owner):
    """Each schema lists exactly the Alembic migrations of its folder, in their order."""
    config = Config()
    config.set_main_option("script_location", str(OWNERS[owner].migrations))
    config.set_main_option("version_locations", str(OWNERS[owner].migrations))
    config.set_main_option("path_separator", "newline")
    found = [one.revision for one in ScriptDirectory.from_config(config).walk_revisions()]

    assert [one.id for one in OWNERS[owner].revisions] == found[::-1]


def test_every_earlier_schema_is_tested():
    """There is a fixture of each earlier schema, and each is recognised as another revision."""
    assert set(EARLIER) == set(RECOGNISED)
    assert len(RECOGNISED) == len(set(RECOGNISED.values()))


@pytest.mark.parametrize("name", EARLIER)
def test_an_earlier_schema_becomes_the_present_one(name, database_url, tmp_path, capsys):
    """An upgraded database has the tables, columns, keys and indexes of a new one, and says so once."""
    schema = make_earlier(database_url, name)
    Database(database_url, schema).close()
    told = capsys.readouterr().err
    upgraded, revision = shape(database_url, schema), revision_of(database_url, schema)
    Database(database_url, schema).close()
    told_again = capsys.readouterr().err
    _empty(database_url)
    Database(database_url, schema).close()

    assert shape(database_url, schema) == upgraded
    assert revision_of(database_url, schema) == revision == (schema.head.id, schema.head.number)
    before = RECOGNISED[name]
    news = f"{schema.name} was upgraded from schema {before} to {schema.head.id}"
    assert (news in told) is (before != schema.head.id)
    assert "" == told_again
    assert "" == capsys.readouterr().err


def _empty(url: str) -> None:
    """Remove all tables."""
    engine = create_engine(url)
    found = sqlalchemy.MetaData()
    found.reflect(engine)
    found.drop_all(engine)
    engine.dispose()


@pytest.mark.parametrize("owner", OWNERS)
def test_all_migrations_in_a_row_make_the_present_schema(owner, database_url):
    """The migrations alone, from an empty database, make the tables that a new database gets."""
    schema = OWNERS[owner]
    engine = create_engine(database_url)
    with engine.begin() as connection:
        migration._upgrade(connection, schema)
    engine.dispose()
    migrated = shape(database_url, schema)
    _empty(database_url)
    Database(database_url, schema).close()

    assert shape(database_url, schema) == migrated


def test_an_upgrade_that_fails_leaves_the_earlier_schema(database_url, monkeypatch):
    """All steps are one transaction: a database is upgraded as a whole or not at all."""
    schema = make_earlier(database_url, "catalog-79f5232")
    engine = create_engine(database_url)
    before = set(inspect(engine).get_table_names())

    def fail(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("uuid.uuid4", fail)
        with pytest.raises(KeyboardInterrupt):
            Database(database_url, schema)
    after = set(inspect(engine).get_table_names())
    engine.dispose()
    Database(database_url, schema).close()

    assert before == after
    assert (schema.head.id, schema.head.number) == revision_of(database_url, schema)


def test_a_revision_of_a_newer_ebbtide_is_refused(database_url):
    """A database with a revision that this Ebbtide does not know is not touched."""
    Database(database_url, LEDGER).close()
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE ledger_alembic_version SET version_num = 'ledger_99'"))
    engine.dispose()

    with pytest.raises(EnvironmentProblem, match=r"version ledger_99, this Ebbtide knows.*upgrade Ebbtide"):
        Database(database_url, LEDGER)


OPEN = """
import sys
from ebbtide.state.database import Database
from ebbtide.targets.lake.catalog.schema import SCHEMA
print("ready", flush=True)
sys.stdin.readline()
Database(sys.argv[1], SCHEMA, rehearsal=False).close()
"""


@pytest.mark.parametrize("name", ["catalog-79f5232", None])
def test_processes_that_open_a_database_at_once(name, database_url):
    """One of several processes upgrades or creates the tables; the others wait and find them."""
    if name:
        make_earlier(database_url, name)
    pipe = subprocess.PIPE
    opening = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, database_url], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        for _ in range(3)
    ]
    for process in opening:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
    for process in opening:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=120)[1] for process in opening]

    assert [0, 0, 0] == [process.returncode for process in opening], told
    assert (1 if name else 0) == "".join(told).count("was upgraded")
    assert (CATALOG.head.id, CATALOG.head.number) == revision_of(database_url, CATALOG)


def test_the_databases_of_version_0_1_are_upgraded(capsys):
    """The ledger, records, rules and catalog that Ebbtide 0.1 left are upgraded, and keep their rows."""
    with old_state() as folder:
        ledger, catalog = (f"sqlite:///{folder}/.ebbtide/{name}.db" for name in ("ledger", "catalog"))
        before = {url: _counts(url) for url in (ledger, catalog)}
        for url, schema in ((ledger, LEDGER), (ledger, RECORDS), (ledger, RULES), (catalog, CATALOG)):
            Database(url, schema, rehearsal=False).close()
        after = {url: _counts(url) for url in (ledger, catalog)}

    told = capsys.readouterr().err
    assert all(
        name in told for name in ("the ledger was", "the table of image records was", "the catalog was")
    )
    for url, counts in before.items():
        renamed = {"catalog_branches": "catalog_branch_heads", "waves": "batch_attempts"}
        assert counts.items() <= {**after[url], **_old_names(after[url], renamed)}.items()


def _old_names(counts: dict[str, int], renamed: dict[str, str]) -> dict[str, int]:
    return {old: counts[new] for old, new in renamed.items() if new in counts}


def _counts(url: str) -> dict[str, int]:
    """Count the rows of each table."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = {
            name: connection.execute(select(func.count()).select_from(table(name))).scalar_one()
            for name in inspect(connection).get_table_names()
        }
    engine.dispose()
    return found


@pytest.mark.parametrize("name", [name for name in EARLIER if name.startswith("ledger-")])
def test_attempts_at_batches_survive_the_upgrade(name, database_url):
    """The attempts of every earlier ledger have the batch, number and state that they had as waves."""
    make_earlier(database_url, name)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO runs (target, target_uid, collector, state, now, made_at, policy, due_objects,"
                " due_bytes, error) VALUES ('lake:r', 'uid', 'lifecycle', 'failed', 1, 1, '', 3, 3, '')"
            )
        )
        add = text("INSERT INTO waves (run_id, wave, attempt, state) VALUES (1, :wave, :attempt, :state)")
        for wave, attempt, state in (
            (0, 1, "started"),
            (0, 2, "finished"),
            (1, 1, "counted"),
            (2, 1, "folded"),
        ):
            connection.execute(add, {"wave": wave, "attempt": attempt, "state": state})
    engine.dispose()
    ledger = Ledger(database_url)
    found = ledger.batch_attempts(1)
    unfolded = [(one.batch, one.is_counted) for one in ledger.finished_attempts("uid", folded=False)]
    interrupted = [run.run_id for run in ledger.interrupted_runs("uid")]
    folded = ledger.count_attempts("uid", folded=True)
    ledger.close()

    assert {0: [(1, False), (2, True)], 1: [(1, True)], 2: [(1, True)]} == found
    assert [(0, False), (1, True)] == unfolded
    assert ([1], 1) == (interrupted, folded)


def test_programs_that_know_the_table_of_waves_refuse_the_upgraded_ledger(database_url):
    """Programs from before Alembic compare numbers, so the upgrade that removes a table raises the number."""
    make_earlier(database_url, "ledger-9b5ac1c")
    engine = create_engine(database_url)
    with engine.connect() as connection:
        before = connection.execute(select(func.max(LEDGER.about.c.version))).scalar_one()
    engine.dispose()
    Database(database_url, LEDGER).close()

    assert before < revision_of(database_url, LEDGER)[1]
