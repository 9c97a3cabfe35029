"""Recycle bins that Ebbtide 0.1 wrote are read and restored: see tests/fixtures/bins-0.1/README.md."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from pathlib import Path

import pytest
from tests.services.bin_kit import tags_of, whole
from tests.services.ebb import Ebb

from ebbtide.cli.state import State
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import RegistrySpec

BINS = Path(__file__).parents[1] / "fixtures" / "bins-0.1"
FOLDER = "000001-63b435bb4c67"
REPOSITORY = "team/app"


@pytest.fixture
def ebb(tmp_path, monkeypatch, capsys) -> Ebb:
    """Run commands in a folder of this test, none of them with Spark: a bin is read without it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(State, "spark")
    return Ebb(tmp_path, capsys)


def unpack(name: str, folder: Path) -> None:
    """Unpack a fixture."""
    with tarfile.open(BINS / name) as archive:
        archive.extractall(folder, filter="data")


@pytest.fixture
def lake(ebb: Ebb) -> Ebb:
    """Put the old catalog and namespace in place; the ledger is lost."""
    unpack("lake.tar.gz", ebb.folder)
    ebb("init")
    (ebb.folder / ".ebbtide").mkdir(exist_ok=True)
    script = (ebb.folder / "catalog.sql").read_text().replace("@NAMESPACE@", str(ebb.folder / "namespace"))
    database = sqlite3.connect(ebb.folder / ".ebbtide" / "catalog.db")
    database.executescript(script)
    database.close()
    return ebb


def test_the_bin_of_a_lake(lake):
    """Without the old ledger the bin is listed by its labels, and all of a folder comes back and is held."""
    listed = lake.json("recycle", "ls", "lake:sales")
    items = lake.lines("recycle", "ls", "lake:sales", "--items")
    lake("lake", "cat", "sales", "raw/a.csv", code=3)
    one = lake.json("restore", "lake:sales", items[0]["address"])
    done = lake.json("restore", "lake:sales", "--from", FOLDER)

    assert [(FOLDER, 2, 18, "2026-03-15T00:00:00.000066Z")] == [
        (run["folder"], run["objects"], run["bytes"], run["expires"]) for run in listed["runs"]
    ]
    assert ([1, 1], [9, 9]) == ([item["run"] for item in items], [item["size"] for item in items])
    assert (1, 1) == (one["outcomes"]["restored"]["objects"], done["outcomes"]["restored"]["objects"])
    assert done["held_until"] is not None
    assert ["raw/a.csv", "raw/b.csv"] == [
        lake("lake", "cat", "sales", key)[0] for key in ("raw/a.csv", "raw/b.csv")
    ]
    assert [] == lake.json("recycle", "ls", "lake:sales")["runs"]


@pytest.fixture
def layout(ebb: Ebb) -> ImageLayout:
    """Put the old image layouts in place."""
    unpack("registry.tar.gz", ebb.folder)
    return ImageLayout(RegistrySpec(f"oci-layout:{ebb.folder}/images"))


def test_the_bin_of_a_registry(ebb, layout):
    """Old entries are listed with tags and dates; an image comes back whole, with its signatures."""
    listed = ebb.json("recycle", "ls", layout.spec.url)
    latest = next(row for row in listed if "latest" in [tag["name"] for tag in row["tags"]])
    (done,) = ebb.json("restore", f"{layout.spec.url}//{REPOSITORY}:v1")
    left = ebb.json("image", "recycle", "list", layout.spec.url)

    assert [(REPOSITORY, 7, "Default", "expired")] * 5 == [
        (row["repository"], row["run_id"], row["policy"], row["reason"]) for row in listed
    ]
    assert {"2026-05-19T12:00:00Z"} == {row["expires_at"] for row in listed}
    assert (latest["digest"], ["latest", "v1"], []) == (done["digest"], done["tags"], done["troubles"])
    assert {"latest", "v1", "moved"} < set(tags_of(layout, REPOSITORY))
    assert whole(layout, REPOSITORY, done["digest"])
    assert 2 == len(left)


def test_all_of_an_old_run_of_a_registry(ebb, layout):
    """All images of a run come back, and the bin is empty then."""
    done = ebb.json("image", "recycle", "restore", layout.spec.url, "--all-of", "7")

    assert 5 == len(done)
    assert [] == ebb.json("recycle", "ls", layout.spec.url)
    assert all(whole(layout, REPOSITORY, row["digest"]) for row in done)


def test_the_bin_of_a_bucket_with_versions(ebb, s3_server, bucket):
    """A deleted version comes back as the newest, and a hidden object by removing the delete marker."""
    client, target = s3_server.client(), f"s3://{bucket}"
    settings = f'[store]\nendpoint = "{s3_server.endpoint}"\npath_style = true\nallow_http = true\n'
    (ebb.folder / "ebbtide.toml").write_text(f"{settings}ordered = false\n")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    hidden = client.put_object(Bucket=bucket, Key="logs/a", Body=b"logs/a")["VersionId"]
    client.delete_object(Bucket=bucket, Key="logs/a")
    uid = State().target(target).identity.uid
    for key, body in json.loads((BINS / "bucket.json").read_text()).items():
        name, text = key.replace("@HIDDEN@", hidden), body.replace("@UID@", uid)
        client.put_object(Bucket=bucket, Key=name, Body=text.encode())
    listed = ebb.json("recycle", "ls", target)
    done = ebb.json("restore", target, "--from", "000001-0123456789ab")

    assert [(1, 2, 14)] == [(run["run"], run["objects"], run["days"]) for run in listed["runs"]]
    assert {"restored": 2} == {name: one["objects"] for name, one in done["outcomes"].items()}
    bodies = {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in ("logs/a", "old/b")}
    assert {"logs/a": b"logs/a", "old/b": b"first"} == bodies
    assert hidden == client.head_object(Bucket=bucket, Key="logs/a")["VersionId"]
    for one in client.list_object_versions(Bucket=bucket).get("Versions", []):
        client.delete_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])
