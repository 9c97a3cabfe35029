"""Repositories: what may be created, and what is gone after a delete."""

import pytest
import sqlalchemy

from ebbtide.core.errors import AlreadyExists, BadInput, EnvironmentProblem, NotFound, Refused
from ebbtide.storage.store import DeleteRequest


def test_a_new_repository_has_its_default_branch_and_one_empty_commit(catalog):
    """A repository starts with one commit that holds nothing, on its default branch."""
    commits = list(catalog.log("lake", "main"))

    assert [(c.message, c.parents) for c in commits] == [("Repository created", ())]
    assert {"main": commits[0].id} == catalog.branches("lake")
    assert list(catalog.ls("lake", "main")) == []


def test_repositories_are_listed_by_name(catalog, tmp_path):
    """All repositories are found by name, in order, with their canonical namespace."""
    made = catalog.create_repository("another", str(tmp_path / "x" / "."), "trunk")

    assert [repo.name for repo in catalog.repositories()] == ["another", "lake"]
    assert made == catalog.repository("another")
    assert f"file://{tmp_path}/x" == made.namespace
    assert list(catalog.branches("another")) == ["trunk"]


@pytest.mark.parametrize("namespace", ["lake", "lake/inner", "."])
def test_a_namespace_may_not_overlap_anothers(catalog, tmp_path, namespace):
    """The same folder, one inside it and one around it are refused: each would sweep the other."""
    with pytest.raises(Refused, match="overlaps"):
        catalog.create_repository("other", str(tmp_path / namespace))


def test_a_namespace_may_begin_like_anothers(catalog, tmp_path):
    """A folder whose name merely starts with another's is no overlap."""
    made = catalog.create_repository("other", str(tmp_path / "lake2"))

    assert made in catalog.repositories()


def test_a_name_is_given_once(catalog, tmp_path):
    """A second repository of the same name is refused."""
    with pytest.raises(AlreadyExists, match="lake"):
        catalog.create_repository("lake", str(tmp_path / "other"))


@pytest.mark.parametrize("name", ["", "Lake", "-a", "a/b", "a b", "x" * 64, "é", None])
def test_bad_repository_names_are_refused(catalog, tmp_path, name):
    """A name that could not be part of a path or a URL is refused with the reason."""
    with pytest.raises(BadInput, match="cannot name a repository"):
        catalog.create_repository(name, str(tmp_path / "other"))


def test_delete_forgets_everything_but_the_objects(catalog):
    """After a delete the name is free, nothing is found, and the store still has the bytes."""
    entry = catalog.upload("lake", "main", "a", b"1")
    catalog.commit("lake", "main", "m")
    catalog.upload("lake", "main", "b", b"2")
    catalog.get_physical_address("lake", "main", "c")
    catalog.create_tag("lake", "v1", "main")
    catalog.set_policy("lake", "rules: []", "yaml")
    catalog.set_retention("lake", "default_days: 1", "yaml")
    store = catalog.store("lake")
    namespace = catalog.repository("lake").namespace

    gone = catalog.delete_repository("lake")

    with pytest.raises(NotFound, match="no repository 'lake'"):
        catalog.branches("lake")
    assert store.read(entry.address) == b"1"
    for batch in list(store.list()):
        store.delete([DeleteRequest(key) for key in batch["key"].to_pylist()])
    catalog.forget_deleted(gone.uid)
    catalog.create_repository("lake", namespace)
    assert (
        list(catalog.ls("lake", "main")),
        catalog.tags("lake"),
        catalog.policy("lake"),
        catalog.retention("lake"),
    ) == ([], {}, None, None)


@pytest.mark.parametrize("operation", ["delete_repository", "repository", "store", "snapshot"])
def test_an_unknown_repository_is_not_found(catalog, operation):
    """Whoever names a repository that is not there is told so."""
    with pytest.raises(NotFound, match="no repository 'nope'"):
        getattr(catalog, operation)("nope")


def test_a_newer_schema_is_refused(catalog, open_catalog, database_url):
    """A database that a newer Ebbtide wrote is not touched: it may hold references unknown here."""
    engine = sqlalchemy.create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE catalog_schema SET version = 99")
    engine.dispose()

    with pytest.raises(EnvironmentProblem, match=r"version 99.*upgrade"):
        open_catalog()


def test_a_policy_is_kept_as_it_is_written_with_all_before_it(catalog, clock):
    """The catalog gives back the very text, and remembers every earlier one and its moment."""
    before = catalog.policy("lake")
    catalog.set_policy("lake", "rules: []\n# é", "yaml")
    clock.advance(days=1)

    version = catalog.set_policy("lake", "{}", "json")

    assert (before, version) == (None, 2)
    assert catalog.policy("lake") == ("{}", "json")
    assert [(p.text, p.format, p.created.day) for p in catalog.policy_history("lake")] == [
        ("rules: []\n# é", "yaml", 1),
        ("{}", "json", 2),
    ]


def test_retention_rules_are_kept_beside_the_policy(catalog):
    """The catalog gives back the very text that was set last, and takes it for no policy."""
    before = catalog.retention("lake")
    catalog.set_policy("lake", "{}", "json")
    catalog.set_policy("lake", "{}", "json")
    sequence = catalog.sequence("lake")

    versions = [catalog.set_retention("lake", f"default_days = {days}\n# é", "toml") for days in (1, 2)]

    assert (None, [1, 2]) == (before, versions)
    assert ("default_days = 2\n# é", "toml") == catalog.retention("lake")
    assert ("{}", "json") == catalog.policy("lake")
    assert sequence + 2 == catalog.sequence("lake")


@pytest.mark.parametrize("operation", ["set_policy", "set_retention"])
@pytest.mark.parametrize("text", ["a\0b", None, b"bytes"])
def test_what_is_no_text_is_not_kept(catalog, operation, text):
    """A text that a database cannot hold as it is, is refused."""
    with pytest.raises(BadInput, match="not a text"):
        getattr(catalog, operation)("lake", text, "json")

    assert (None, None) == (catalog.policy("lake"), catalog.retention("lake"))


def test_a_database_without_the_newest_tables_gets_them(catalog, open_catalog, database_url):
    """A catalog that was made before there were retention rules and retired repositories goes on."""
    engine = sqlalchemy.create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE catalog_alembic_version")
        connection.exec_driver_sql("DROP TABLE catalog_retentions")
        connection.exec_driver_sql("DROP TABLE catalog_retired")
    engine.dispose()

    reopened = open_catalog()

    assert (None, []) == (reopened.retention("lake"), reopened.deleted_repositories())
