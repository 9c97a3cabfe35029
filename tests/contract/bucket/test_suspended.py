"""A bucket whose versioning is suspended has no bin, and nothing is brought back in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.services.bucket_plan import PlannedBucket, planned_bucket
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.cli.main import run
from ebbtide.core.bin_label import Label, items_of
from ebbtide.core.errors import BadInput
from ebbtide.core.instant import system_clock
from ebbtide.engine.bin import RestoreChoice
from ebbtide.engine.restore import Restorer, restore
from ebbtide.state.runs import Ledger
from ebbtide.targets.s3.bin import BucketBin, bucket_bin
from ebbtide.targets.s3.context import BucketContext
from ebbtide.targets.s3.model import BIN_ROOT, Versioning
from ebbtide.targets.s3.stored_rules import BucketRules
from ebbtide.targets.s3.versioned_bin import VERSIONS, Kept, VersionKeeper

FOLDER = "000001-0123456789ab"


class Killed(BaseException):
    """The process is no more."""


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[PlannedBucket]:
    """Give a bucket without versions; they are switched on later."""
    with fresh_bucket(s3_server) as name:
        made = planned_bucket(s3_server, name, Versioning.DISABLED)
        yield made
        made.empty()


@pytest.fixture
def shop(bucket: PlannedBucket, tmp_path: Path) -> BucketContext:
    """Give what jobs on the bucket work with."""
    rules = BucketRules(f"sqlite:///{tmp_path}/rules.db")
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    return BucketContext(bucket.spec, rules, ledger, tmp_path / "state", system_clock)


def switch(bucket: PlannedBucket, status: str) -> None:
    """Switch versioning."""
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": status})  # type: ignore[typeddict-item]


def set_aside_over_a_null_version(bucket: PlannedBucket, shop: BucketContext) -> None:
    """Leave a null version below a delete marker, and in the bin a version that lay between them."""
    bucket.put_only("a", "null")
    switch(bucket, "Enabled")
    taken, _ = bucket.put("a", "taken")
    name = items_of(BIN_ROOT, FOLDER) + Kept("a", taken.version, "copy").address
    label = Label(
        FOLDER, 1, bucket.spec.url, shop.uid, "", "", 14, datetime(2026, 1, 1, tzinfo=UTC), VERSIONS
    )
    bucket_bin(shop).write(label)
    VersionKeeper(bucket.spec).keep("a", taken.version, taken.etag, name)
    bucket.client.delete_object(Bucket=bucket.name, Key="a", VersionId=taken.version)
    bucket.client.delete_object(Bucket=bucket.name, Key="a")
    switch(bucket, "Suspended")


def versions(bucket: PlannedBucket) -> list[bytes | None]:
    """Read all versions of the key, the newest first; None is a delete marker."""
    return [
        bucket.client.get_object(Bucket=bucket.name, Key="a", VersionId=one.version)["Body"].read()
        if one.etag
        else None
        for one in bucket.listed("a")
    ]


def test_nothing_is_brought_back_while_versions_are_suspended(bucket, shop):
    """What comes back would destroy the null version of its key, so it waits until versions are kept."""
    set_aside_over_a_null_version(bucket, shop)
    with pytest.raises(BadInput, match="is suspended") as refused:
        restore(BucketBin(shop), RestoreChoice(FOLDER))
    before = versions(bucket), shop.ledger.runs(shop.uid)
    switch(bucket, "Enabled")
    done = restore(BucketBin(shop), RestoreChoice(FOLDER))

    assert ([None, b"null"], []) == before
    assert "enable versioning" in refused.value.fix
    assert (1, 0) == (done.back.objects, done.left)
    assert [b"taken", None, b"null"] == versions(bucket)


def test_what_a_killed_restore_had_begun_waits_too(bucket, shop):
    """A page that was begun while versions were kept is not finished before they are again."""
    set_aside_over_a_null_version(bucket, shop)
    switch(bucket, "Enabled")

    def dies(step: str) -> None:
        if step == "page 0 wanted":
            raise Killed

    with pytest.raises(Killed):
        restore(BucketBin(shop), RestoreChoice(FOLDER), dies)
    switch(bucket, "Suspended")
    with pytest.raises(BadInput, match="is suspended"):
        Restorer(BucketBin(shop)).finish_interrupted()
    before = versions(bucket)
    switch(bucket, "Enabled")
    Restorer(BucketBin(shop)).finish_interrupted()

    assert [None, b"null"] == before
    assert [b"taken", None, b"null"] == versions(bucket)


def test_the_bin_cannot_be_switched_on_there(bucket, s3_server, tmp_path, monkeypatch, capsys):
    """The command is refused, says what to do, and sets nothing."""
    switch(bucket, "Enabled")
    switch(bucket, "Suspended")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ebbtide.toml").write_text(
        f'[store]\nendpoint = "{s3_server.endpoint}"\npath_style = true\nallow_http = true\nordered = false\n'
    )
    code = run(["recycle", "set", bucket.spec.url, "--days", "14"])
    said = capsys.readouterr().err
    listed = run(["recycle", "ls", bucket.spec.url, "--json"]), capsys.readouterr().out

    assert (2, True) == (code, "such a bucket has no recycle bin" in said)
    assert "enable versioning" in said
    assert 0 == listed[0]
    assert '"recycle_days": null' in listed[1], listed
