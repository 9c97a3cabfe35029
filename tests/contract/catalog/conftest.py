"""The catalog under test: the same contract on SQLite and on PostgreSQL."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy

from ebbtide.targets.lake.catalog.catalog import Catalog


class ManualClock:
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Say what time it is."""
        return self.now

    def advance(self, **duration: float) -> None:
        """Let time pass."""
        self.now += timedelta(**duration)


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that stands at 2026-01-01."""
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give an empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/catalog.db"
        return
    url = sqlalchemy.make_url(request.getfixturevalue("postgres_url"))
    name = f"test_{abs(hash(tmp_path)):x}"
    server = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield url.set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    server.dispose()


@pytest.fixture
def open_catalog(database_url: str, clock: ManualClock) -> Iterator[Callable[..., Catalog]]:
    """Open the test's database, as often and with whatever settings a test wants."""
    opened: list[Catalog] = []

    def open_it(**settings) -> Catalog:
        opened.append(Catalog(database_url, **({"clock": clock} | settings)))
        return opened[-1]

    yield open_it
    for catalog in opened:
        catalog.close()


@pytest.fixture
def catalog(open_catalog: Callable[..., Catalog], tmp_path: Path) -> Catalog:
    """Give a catalog with one empty repository, `lake`, and small ranges."""
    opened = open_catalog(range_keys=4)
    opened.create_repository("lake", str(tmp_path / "lake"))
    return opened
