"""The recorded sources of running images, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from tests.contract.records.test_identity import NAME, ONE, TWO

from ebbtide.core.errors import Forbidden
from ebbtide.targets.oci.records.model import Role, Snapshot
from ebbtide.targets.oci.records.records import ImageRecords


def test_a_source_is_kept_until_somebody_with_the_role_changes_it(records, watch):
    """Anybody chooses the first source; to replace it or give it up takes the role, also before grants."""
    first = records.recorded_source("one")
    records.record_source("one", None, "daily")
    records.record_source("one", "/pods.json", "teja")
    for other in (None, "/none.json"):
        with pytest.raises(Forbidden):
            records.record_source("one", other, "mallory")
    kept = records.recorded_source("one")
    records.grant("one", "ines", Role.IMAGE_WRITER, "ines")
    watch.set("2018-02-01")
    records.record_source("one", None, "ines")
    found = records.recorded_source("one")

    assert first is None
    assert ("/pods.json", "teja") == (kept.name, kept.by)
    assert (None, "ines", watch.now) == (found.name, found.by, found.at)
    assert records.recorded_source("two") is None


def test_a_database_without_sources_goes_on(url, watch):
    """Records of an earlier version get the table when they are opened, and have no source yet."""
    ImageRecords(url, clock=watch).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE image_running_sources"))
        connection.execute(text("DROP TABLE image_records_alembic_version"))
    engine.dispose()
    opened = ImageRecords(url, clock=watch)
    opened.record_source("one", "/pods.json", "teja")
    found = opened.recorded_source("one")
    opened.close()

    assert "/pods.json" == found.name


@pytest.mark.parametrize("kept", [None, "/mine.json"])
def test_merged_records_keep_a_source(records, watch, kept):
    """A merge keeps the source of the records that stay, or the other one if they have none."""
    records.record_snapshot(TWO, Snapshot("new", watch.now, 1, 1, 0))
    records.record_source(TWO, kept, "teja")
    records.record_source(ONE, "/other.json", "teja")
    uid = records.uid_of(NAME)

    assert TWO == uid
    assert (kept or "/other.json") == records.recorded_source(uid).name
    assert records.recorded_source(ONE) is None
