"""Which versions are asked for tags and locks, and what becomes of the answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from ebbtide.core.errors import StoreError
from ebbtide.engine.tables.contracts import VERSIONS
from ebbtide.storage.s3_bucket import LockState, version_batch
from ebbtide.storage.s3_versions import VersionRow
from ebbtide.targets.s3.inventory.tags_and_locks import VERSIONS_TABLE, Details, described
from ebbtide.targets.s3.rules.configuration import Match

FAR = datetime(2099, 1, 1, tzinfo=UTC)


class Asked:
    """A bucket that notes what it is asked; 'gone' is gone, and 'denied' may not be read."""

    def __init__(self) -> None:
        self.tagged: list[str] = []
        self.locked: list[str] = []

    def tags(self, key: str, version_id: str) -> dict[str, str] | None:
        """Answer with the version as a tag."""
        self.tagged.append(key)
        if key == "p/denied":
            raise StoreError("the store failed")
        return None if key == "p/gone" else {"v": version_id}

    def lock(self, key: str, version_id: str) -> LockState | None:
        """Answer with a lock."""
        self.locked.append(key)
        return None if key == "p/gone" else LockState(True, FAR, "PENDING", True)


def listed(*rows: tuple[str, int | None, str | None]):
    """Make a batch of versions from key, size and class; without a size it is a marker."""
    return version_batch(
        [VersionRow(key, "v1", True, size is None, size, 0, None, kind) for key, size, kind in rows]
    )


def answered(batch, details: Details) -> tuple[Asked, list[dict]]:
    """Describe a batch."""
    bucket = Asked()
    with ThreadPoolExecutor(2) as threads:
        return bucket, described(bucket, batch, details, threads).to_pylist()


def test_only_matching_versions_are_asked_for_tags():
    """Prefix and size count, both limits are exclusive, and a delete marker has no tags."""
    batch = listed(
        ("p/a", 10, "STANDARD"),
        ("p/b", 11, "STANDARD"),
        ("p/c", 20, "STANDARD"),
        ("p/m", None, None),
        ("q", 15, "X"),
    )
    bucket, rows = answered(batch, Details(tags=(Match("p/", 10, 20),)))

    assert (["p/b"], []) == (bucket.tagged, bucket.locked)
    assert [None, [("v", "v1")], None, None, None] == [row["tags"] for row in rows]
    assert ["version", "version", "version", "marker", "version"] == [row["kind"] for row in rows]


@pytest.mark.parametrize(("all_locks", "expected"), [(True, ["p/a", "p/g"]), (False, ["p/g"])])
def test_archived_objects_are_always_asked_for_locks(all_locks, expected):
    """They may be on their way back; others are asked only if the bucket locks or replicates objects."""
    batch = listed(("p/a", 1, "STANDARD"), ("p/g", 1, "GLACIER"), ("p/m", None, None), ("q", 1, "GLACIER"))
    bucket, rows = answered(batch, Details(locks=(Match("p/"),), all_locks=all_locks))

    assert expected == sorted(bucket.locked)
    assert expected == [row["key"] for row in rows if row["legal_hold"]]
    assert (True, FAR, "PENDING", True) == tuple(
        rows[1][name] for name in ("legal_hold", "retain_until", "replication_status", "restoring")
    )


def test_a_version_that_is_gone_is_unknown():
    """It has no tags and no lock; whoever wants to delete it will find it absent."""
    _, rows = answered(listed(("p/gone", 1, "STANDARD")), Details((Match(""),), (Match(""),), all_locks=True))

    assert [(None, False, None)] == [(row["tags"], row["legal_hold"], row["retain_until"]) for row in rows]


def test_a_version_that_is_denied_raises():
    """Tags that may not be read are not taken for none."""
    with pytest.raises(StoreError):
        answered(listed(("p/denied", 1, "STANDARD")), Details((Match(""),)))


def test_the_files_have_the_columns_of_the_contract():
    """What executors write is what Spark reads."""
    assert VERSIONS.columns == VERSIONS_TABLE.names
