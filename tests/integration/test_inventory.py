"""The inventory: every object of a store, and an address for those that Ebbtide can have written."""

from __future__ import annotations

import pytest

from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.repository.inventory import _dealt, inventory

pytestmark = pytest.mark.spark

OWN = ["a b", "a:b", "a%2Fb", "é", "日本", "x=1,y+2@z", ".hidden", "...", "~#?"]
"""Names that are their own canonical address."""
ODD = ["a\\b", "a\nb", "\x7f", "e\u0301"]
"""Names without canonical form, and one whose canonical form is spelt otherwise."""


def listed(spark, root, *prefixes: str, merged: bool = False) -> dict[str, tuple[str | None, int | None]]:
    """List prefixes of a folder, and give address and hash of each key."""
    frame = spark.createDataFrame([(prefix,) for prefix in prefixes], "prefix string")
    found = inventory(frame, StoreSpec(str(root)), f"file://{root}", merged=merged).collect()
    return {row.key: (row.address, row.hash) for row in found}


@pytest.fixture
def root(tmp_path):
    """Give a folder of files with all sorts of names."""
    for name in (*OWN, *ODD):
        (tmp_path / "p").mkdir(exist_ok=True)
        (tmp_path / "p" / name).write_bytes(b"")
    return tmp_path


def test_an_odd_name_has_no_address(spark, root):
    """What is not its own canonical address is listed without address and hash; the others have both."""
    own = [f"p/{name}" for name in OWN]
    expected = dict(zip(own, zip(own, hash_addresses(own).tolist(), strict=True), strict=True))

    assert {**expected, **{f"p/{name}": (None, None) for name in ODD}} == listed(spark, root, "p/")


def test_merged_spellings_share_an_address(spark, root):
    """A search for lost objects finds other spellings; what has no canonical form stays without."""
    found = listed(spark, root, "p/", merged=True)

    assert [None, None, None, "p/é"] == [found[f"p/{name}"][0] for name in ODD]
    assert found["p/é"] == found["p/e\u0301"]


def test_a_name_that_reads_like_a_url_has_no_address(spark, tmp_path):
    """A folder called 's3:' must not make its objects look like those of a bucket."""
    (tmp_path / "s3:" / "bucket").mkdir(parents=True)
    (tmp_path / "s3:" / "bucket" / "x").write_bytes(b"")

    assert {"s3:/bucket/x": (None, None)} == listed(spark, tmp_path, "")


def test_prefixes_are_listed_whole_and_apart(spark, tmp_path):
    """Folders below a prefix belong to it, and those that nobody asked for stay out."""
    for name in ("a/1", "a/b/2", "a/b.3", "c/4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    assert ["a/1", "a/b.3", "a/b/2"] == sorted(listed(spark, tmp_path, "a/", "away/"))


def test_a_listing_that_fails_stops_the_job(spark, root):
    """A link in one folder is no reason to give a part of the rest."""
    (root / "p" / "link").symlink_to(root)

    with pytest.raises(Exception, match="symbolic link"):
        listed(spark, root, "p/")


def test_prefixes_are_dealt_evenly(spark):
    """No task has two prefixes more than another, however they lay before."""
    frame = spark.range(0, 100, numPartitions=7).selectExpr("concat('p', id) as prefix")
    sizes = [len(part) for part in _dealt(frame).rdd.glom().collect()]

    assert max(sizes) - min(sizes) <= 1
