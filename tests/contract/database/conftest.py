"""Empty databases of each kind, and the schemas of all owners."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give an empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/found.db"
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
