"""Records of registries on SQLite and PostgreSQL: the same tests on both."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text

from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.records.records import ImageRecords
from ebbtide.targets.oci.records.tables import metadata


class Watch:
    """A clock that stands still until a test sets it."""

    def __init__(self) -> None:
        self.now = parse_instant("2018-01-01")

    def __call__(self):
        """Say what time it is."""
        return self.now

    def set(self, text: str) -> None:
        """Make it another time."""
        self.now = parse_instant(text)


@pytest.fixture
def watch():
    """Give a clock that shows the first of January 2018."""
    return Watch()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """Give a database of each kind without records."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/ledger.db"
    found = request.getfixturevalue("postgres_url")
    engine = create_engine(found)
    metadata.drop_all(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS image_records_alembic_version"))
    engine.dispose()
    return found


@pytest.fixture
def records(url, watch):
    """Open empty records."""
    opened = ImageRecords(url, clock=watch)
    yield opened
    opened.close()
