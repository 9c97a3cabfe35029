"""The recycle bin of a lake from the command line: set it, look into it, bring back, empty it."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from tests.services.ebb import Ebb, ebb

from ebbtide.cli.state import State

__all__ = ["ebb"]

pytestmark = pytest.mark.spark

TODAY, LATER = "2026-03-01", "2026-03-20"


@pytest.fixture
def sales(ebb: Ebb) -> Ebb:
    """Make a repository with three objects, of which two are due."""
    (ebb.folder / "data" / "raw").mkdir(parents=True)
    for name in ("raw/a.csv", "raw/b.csv", "c.csv"):
        (ebb.folder / "data" / name).write_text(name)
    (ebb.folder / "policy.json").write_text('{"raw": {"prefix": "raw/", "days": 3}}')
    ebb("init")
    ebb("lake", "create", "sales", "./lake", now="2026-02-01")
    ebb("lake", "upload", "sales", "data", now="2026-02-01")
    ebb("lake", "commit", "sales", "-m", "first", now="2026-02-01")
    ebb("lake", "policy", "set", "sales", "policy.json", now="2026-02-01")
    return ebb


def no_spark(*_):
    """Fail whoever starts Spark."""
    raise AssertionError("this command must not start Spark")


def test_the_bin_from_its_setting_to_its_end(sales, spark, monkeypatch):
    """What apply set aside is listed, restored by key and copied out without Spark, and emptied by plan."""
    said = sales("recycle", "set", "lake:sales", "--days", "14")[0]
    planned = sales("plan", "lake:sales", now=TODAY)[0]
    applied = sales("apply", "1", "--yes", now=TODAY)[0]
    page = sales("report", "1", "-o", "report.html") and (sales.folder / "report.html").read_text()
    monkeypatch.setattr(State, "spark", no_spark)
    gone = sales("lake", "cat", "sales", "raw/a.csv", code=2)[1]
    listed = sales.json("recycle", "ls", "lake:sales")
    (row, other) = [
        json.loads(line) for line in sales("recycle", "ls", "lake:sales", "--items", "--json")[0].splitlines()
    ]
    sales("restore", "1", "--to", "out")
    restored = sales("restore", "1", "raw/a.csv", now=TODAY)[0]
    again = sales("lake", "cat", "sales", "raw/a.csv")[0]
    missing = sales("restore", "1", "raw/a.csv", now=TODAY, code=4)[1]
    unknown = sales("restore", "1", "raw/nobody.csv", now=TODAY, code=2)[1]
    itself = sales("restore", "2", code=2)[1]
    kinds = [one["collector"] for one in sales.json("runs")]
    monkeypatch.setattr(State, "spark", lambda *_: nullcontext(spark))
    due = sales.json("plan", "lake:sales", now=TODAY)["summary"]["due"]["objects"]
    emptied = sales.json("recycle", "empty", "lake:sales", "--older-than", "7", "--yes", now=LATER)
    for_good = sales("lake", "cat", "sales", "raw/b.csv", code=2)[1]

    assert "set aside for 14 days what they would delete" in said
    assert "would set aside 2 objects for 14 days" in planned
    assert "set aside 18 B in 2 objects for 14 days; to undo: ebb restore 1" in applied
    assert "Set aside 18 B in 2 objects." in page
    assert "ebb restore 1" in page
    assert "it lies in the recycle bin until 2026-03-15" in gone
    assert (14, 1, 2) == (listed["recycle_days"], len(listed["runs"]), listed["runs"][0]["objects"])
    assert (1, 9) == (row["run"], row["size"])
    assert [b"raw/a.csv", b"raw/b.csv"] == sorted(
        (sales.folder / "out" / one["address"]).read_bytes() for one in (row, other)
    )
    assert "restored 1 object" in restored
    assert "held until 2026-03-15" in restored
    assert ("raw/a.csv", 0) == (again, due)
    assert "raw/a.csv: already restored by run 2" in missing
    assert "'raw/nobody.csv' is not in the recycle bin" in unknown
    assert "run 2 is a restore itself" in itself
    assert ["lifecycle", "restore", "restore"] == kinds
    assert {"deleted": 1} == {name: tally["objects"] for name, tally in emptied["outcomes"].items()}
    assert "deleted for good and cannot be restored" in for_good
    assert [] == sales.json("recycle", "ls", "lake:sales")["runs"]


@pytest.mark.long
def test_the_bin_of_a_bucket(ebb, s3_server, bucket, spark, monkeypatch):
    """The same commands set, show, undo and empty the bin of a bucket."""
    client, target, later = s3_server.client(), f"s3://{bucket}", "2099-01-01"
    (ebb.folder / "ebbtide.toml").write_text(
        f'[store]\nendpoint = "{s3_server.endpoint}"\npath_style = true\nallow_http = true\nordered = false\n'
    )
    rule = {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 3}}
    (ebb.folder / "rules.json").write_text(json.dumps({"Rules": [rule]}))
    for key in ("logs/a", "logs/b", "c"):
        client.put_object(Bucket=bucket, Key=key, Body=key.encode())
    ebb("bucket", "rules", "set", bucket, "rules.json")
    ebb("recycle", "set", target, "--days", "14")
    planned = ebb("plan", target, now=later)[0]
    applied = ebb("apply", "1", "--yes", "--override-breaker", now=later)[0]
    monkeypatch.setattr(State, "spark", no_spark)
    explained = ebb("explain", target, "logs/a", now=later)[0]
    listed = ebb("recycle", "ls", target)[0]
    restored = ebb("restore", "1", "logs/a", "logs/a", now=later)[0]
    copied = ebb("restore", target, "logs/b", "--to", "out")[0]
    monkeypatch.setattr(State, "spark", lambda *_: nullcontext(spark))
    expiry = ebb("plan", target, "--bin", now="2099-01-20")[0]
    ebb("apply", "latest", "--yes", "--override-breaker", now="2099-01-20")
    empty = ebb.json("recycle", "ls", target)["runs"]

    assert "would expire 2 objects (what expires is set aside for 14 days)" in planned
    assert "set aside 12 B in 2 items for 14 days; to undo: ebb restore 1" in applied
    assert "set it aside in the recycle bin" in explained
    assert "2 objects, 12 B; runs set aside for 14 days" in listed
    assert "restored 1 object" in restored
    assert "copied 1 object" in copied
    assert b"logs/b" == (ebb.folder / "out" / "logs" / "b").read_bytes()
    assert "would delete 1 object" in expiry
    assert [] == empty
    assert ["c", "logs/a"] == [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
