"""The book of buckets' rules, on SQLite and PostgreSQL: S3's PUT, GET and DELETE."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import create_engine, text
from tests.unit.s3.refused import rule

from ebbtide.core.errors import BadInput, EnvironmentProblem, NotFound
from ebbtide.state.runs import Ledger
from ebbtide.targets.s3.model import bucket_url
from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.s3.stored_rules import BucketRules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ON = read_configuration([rule(ID="on"), rule(ID="off", Status="Disabled")])
OFF = read_configuration([rule(ID="off", Status="Disabled")], minimum_size="varies_by_storage_class")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """Give an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/ledger.db"
    found = request.getfixturevalue("postgres_url")
    engine = create_engine(found)
    with engine.begin() as connection:
        for table in ("bucket_rules", "bucket_rules_about", "bucket_rules_alembic_version"):
            connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
    engine.dispose()
    return found


@pytest.fixture
def book(url):
    """Open an empty book."""
    opened = BucketRules(url, clock=lambda: NOW)
    yield opened
    opened.close()


def test_what_is_put_is_got(book):
    """GET gives back what was PUT, with the minimum size."""
    book.put("s3://b", OFF)

    assert OFF == book.get("s3://b")


def test_put_replaces_the_whole(book):
    """A second PUT leaves nothing of the first."""
    book.put("b", ON)
    book.put("s3://b", OFF)

    assert OFF == book.get("b")
    assert ["s3://b"] == [row.bucket for row in book.stored()]


def test_a_bucket_without_rules(book):
    """GET of a bucket that has none is S3's 404."""
    book.put("b", ON)
    with pytest.raises(NotFound, match="NoSuchLifecycleConfiguration"):
        book.get("other")


def test_delete_is_always_fine(book):
    """DELETE forgets the rules of that bucket alone, and may come twice."""
    book.put("a", ON)
    book.put("b", ON)
    book.delete("a")
    book.delete("s3://a")

    assert ["s3://b"] == [row.bucket for row in book.stored()]


def test_the_list_of_buckets_follows_every_change(book):
    """Buckets with an enabled rule are listed, in the order of their bytes, as configurations change."""
    for name in ("b", "a", "B", "off"):
        book.put(name, ON)
    book.put("off", OFF)
    before = book.with_enabled_rules()
    book.put("a", OFF)
    book.put("off", ON)
    book.delete("B")

    assert ["s3://B", "s3://a", "s3://b"] == before
    assert ["s3://b", "s3://off"] == book.with_enabled_rules()


def test_it_is_durable_and_lives_beside_the_ledger(book, url):
    """Another one who opens the database finds the rules, and the ledger in it is not disturbed."""
    Ledger(url, clock=lambda: NOW)
    book.put("b", ON)
    other = BucketRules(url, clock=lambda: NOW)
    found = other.stored()
    other.close()

    assert [("s3://b", True, NOW)] == [(row.bucket, row.enabled, row.updated) for row in found]


def test_a_location_that_is_gone(book):
    """Rules that name a location are readable even when nobody knows the location any more."""
    moved = read_configuration(
        [rule(Transitions=[{"Days": 0, "StorageClass": "attic"}])], locations=["attic"]
    )
    book.put("b", moved)

    assert moved == book.get("b")


def test_several_at_once(url):
    """Those who open a new database and put rules at the same moment do not disturb each other."""

    def put(number):
        book = BucketRules(url, clock=lambda: NOW)
        book.put("shared", ON)
        book.put(f"own-{number}", OFF)
        book.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(4)))
    book = BucketRules(url)
    found = [row.bucket for row in book.stored()]
    book.close()

    assert [*(f"s3://own-{n}" for n in range(4)), "s3://shared"] == found


def test_a_newer_table_is_refused(book, url):
    """A table that a newer Ebbtide made is left alone."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE bucket_rules_about SET version = 99"))
    engine.dispose()
    with pytest.raises(EnvironmentProblem, match="version 99"):
        BucketRules(url)


@pytest.mark.parametrize("wrong", ["postgresql+psycopg://127.0.0.1:1/none", "sqlite:////proc/no/x.db"])
def test_a_database_that_cannot_be_opened(wrong):
    """A database that is not there is an error in words."""
    with pytest.raises(EnvironmentProblem, match="database of bucket rules failed"):
        BucketRules(wrong)


def test_a_url_that_is_no_database():
    """A text that is not the URL of a database is bad input, with what to write instead."""
    with pytest.raises(BadInput, match="use sqlite:///"):
        BucketRules("nonsense")


@pytest.mark.parametrize("name", ["logs", "s3://logs", "s3://logs/"])
def test_the_names_of_a_bucket(name):
    """A bucket is called by its URL or its name."""
    assert "s3://logs" == bucket_url(name)


@pytest.mark.parametrize(
    "name", ["", "s3://", "s3://a/b", "a b", "s3://s3://a", "-a", "a\n", "lake:x/y", "x" * 300]
)
def test_what_names_no_bucket(name):
    """A path, a blank and an empty name are not names of buckets."""
    with pytest.raises(BadInput, match="is not the name of a bucket"):
        bucket_url(name)
