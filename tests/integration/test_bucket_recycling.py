"""The recycle bin of a bucket, with and without versions, on a real S3 server."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.services.bucket_plan import planned_bucket
from tests.services.runs import apply_bucket, plan_bucket, plan_bucket_bin
from tests.services.seaweed import fresh_bucket

from ebbtide.core.errors import BadInput, StalePlan
from ebbtide.core.instant import system_clock
from ebbtide.engine.apply import ApplyOptions
from ebbtide.engine.bin import RestoreChoice
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.restore import restore
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.state.runs import Ledger
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.s3.bin import BucketBin, bucket_bin
from ebbtide.targets.s3.context import BucketContext, Source
from ebbtide.targets.s3.model import BIN_ROOT, Hold, Versioning
from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.s3.stored_rules import BucketRules

pytestmark = pytest.mark.spark

RULES = {
    "Rules": [
        {"ID": "all", "Status": "Enabled", "Filter": {}, "Expiration": {"Days": 3}},
        {
            "ID": "old",
            "Status": "Enabled",
            "Filter": {},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 2},
        },
        {"ID": "bin", "Status": "Enabled", "Filter": {"Prefix": BIN_ROOT}, "Expiration": {"Days": 1}},
    ]
}
KEYS = ["logs/1", "logs/2", "odd key/é%2F+"]


class Killed(BaseException):
    """The process is no more."""


class Scene:
    """A bucket without versions whose objects are all old, and all that plans and applies on it."""

    def __init__(self, spark, server, bucket, folder):
        self.spark, self.bucket, self.client = spark, bucket, server.client()
        self.later = timedelta(days=10)
        rules = BucketRules(f"sqlite:///{folder}/rules.db")
        rules.put(bucket, read_configuration(RULES))
        self.ledger = Ledger(f"sqlite:///{folder}/ledger.db")
        self.spec = StoreSpec(f"s3://{bucket}", server.options)
        # All that the server writes is of now; to judge it as old the clock of the run is put forward.
        self.shop = BucketContext(
            self.spec, rules, self.ledger, folder / "state", lambda: system_clock() + self.later
        )
        self.store = open_store(self.spec)

    def plan(self):
        """Plan by the stored rules."""
        sourced = self.shop.effective_rules(Source.STORED)
        return plan_bucket(self.spark, self.shop, sourced, now=self.shop.clock(), options=PlanOptions())

    def apply(self, manifest, **how):
        """Apply a plan, with the breaker overridden."""
        options = ApplyOptions(override_breaker=True)
        return apply_bucket(self.spark, self.shop, manifest, options=options, **how)

    def version(self, status):
        """Switch versions on, and perhaps suspend them."""
        for one in {"Enabled": True, status: True}:
            self.client.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": one})

    def listing(self):
        """List all keys of the bucket."""
        return [key for batch in self.store.list() for key in batch["key"].to_pylist()]


@pytest.fixture
def scene(spark, s3_server, tmp_path):
    """Give a bucket with three objects."""
    with fresh_bucket(s3_server) as bucket:
        made = Scene(spark, s3_server, bucket, tmp_path)
        for key in KEYS:
            made.client.put_object(Bucket=bucket, Key=key, Body=key.encode(), Metadata={"of": "me"})
        made.ledger.set_recycling(made.spec.url, made.shop.uid, 14)
        yield made
        planned_bucket(s3_server, bucket, Versioning.DISABLED).empty()


def held_because_restored(scene) -> set[tuple[str, str]]:
    """Plan, and give the versions that are held because they were restored; none of them is due."""
    folder = run_folder(scene.shop.root, scene.plan().run_id)
    rows = list(stream_decisions(folder))
    held = {(row["address"], row["version"]) for row in rows if row["hold"] == Hold.RESTORED}
    due = {(row["address"], row["version"]) for row in rows if row["decision"] == "due"}
    assert not held & due
    return held


def test_what_expired_comes_back_and_the_bin_is_out_of_every_rules_reach(scene):
    """
    What a killed and resumed apply set aside is restored byte for byte, but never over a newer object.

    While it is in the bin no rule is about it, not even one that names the bin's folder; and only the bin's
    own plan deletes it in the end.
    """
    manifest = scene.plan()

    def dies(step):
        if step == "batch 0 deleted":
            raise Killed

    with pytest.raises(Killed):
        scene.apply(manifest, on_step=dies)
    applied = scene.apply(manifest)
    aside = [item.address for item in bucket_bin(scene.shop).items(bucket_bin(scene.shop).labels(_raise)[0])]
    empty = scene.plan()
    scene.store.write(KEYS[0], b"newer")
    choice = RestoreChoice(manifest.recycling.folder)
    done = restore(BucketBin(scene.shop), choice)
    with pytest.raises(StalePlan):
        scene.apply(empty)
    held = held_because_restored(scene)
    contents = {key: scene.store.read(key) for key in scene.listing() if not key.startswith(BIN_ROOT)}
    described = scene.client.head_object(Bucket=scene.bucket, Key=KEYS[2])
    scene.later = timedelta(days=30)
    expiry = plan_bucket_bin(scene.spark, scene.shop, options=PlanOptions())
    emptied = scene.apply(expiry)

    assert {"recycled": 3} == {name: tally.objects for name, tally in applied.outcomes.items()}
    assert sorted(KEYS) == sorted(aside)
    assert 0 == empty.summary.due.objects + empty.summary.held.objects
    assert {"restored": 2, "taken": 1} == {name: tally.objects for name, tally in done.outcomes.items()}
    assert {key: key.encode() for key in KEYS} | {KEYS[0]: b"newer"} == contents
    assert {"of": "me"} == described["Metadata"]
    assert {(key, "null") for key in KEYS[1:]} == held
    assert (1, 1) == (expiry.summary.due.objects, emptied.freed.objects)
    assert sorted(KEYS) == sorted(scene.listing())


def test_an_object_that_was_written_again_is_left_alone_and_suspended_versions_have_no_bin(scene):
    """The days of what was written since the plan begin anew; a bucket with suspended versions is refused."""
    manifest = scene.plan()
    scene.store.write(KEYS[1], b"rewritten")
    applied = scene.apply(manifest)
    restore(BucketBin(scene.shop), RestoreChoice(items=(KEYS[0],)))
    scene.version("Suspended")
    with pytest.raises(BadInput, match="is suspended"):
        scene.plan()

    assert {"recycled": 2, "changed": 1} == {name: tally.objects for name, tally in applied.outcomes.items()}
    assert [KEYS[0].encode(), b"rewritten"] == [scene.store.read(key) for key in KEYS[:2]]


@pytest.mark.long
def test_versions_that_were_deleted_and_objects_that_were_hidden_come_back(scene):
    """
    In a bucket with versions a noncurrent version is copied before it goes, and a marker is noted.

    Both are undone: the marker is removed, and the version is put back where nothing else would be hidden;
    what stays in the bin is deleted with all its versions by the bin's own plan.
    """
    scene.version("Enabled")
    for body in (b"old", b"new"):
        scene.client.put_object(Bucket=scene.bucket, Key="a", Body=body)
    manifest = scene.plan()

    def dies(step):
        if step == "batch 0 deleted":
            raise Killed

    with pytest.raises(Killed):
        scene.apply(manifest, on_step=dies)
    applied = scene.apply(manifest)
    hidden = [key for key in scene.listing() if not key.startswith(BIN_ROOT)]
    # By the clock of the run the markers are as old as all else, so what they hide is due, and only that.
    again = {row["address"] for row in stream_decisions(run_folder(scene.shop.root, scene.plan().run_id))}
    done = restore(BucketBin(scene.shop), RestoreChoice(manifest.recycling.folder))
    held = held_because_restored(scene)
    current = {
        (row["Key"], row["VersionId"])
        for row in scene.client.list_object_versions(Bucket=scene.bucket)["Versions"]
        if row["IsLatest"] and not row["Key"].startswith(BIN_ROOT)
    }
    contents = {key: scene.store.read(key) for key in scene.listing() if not key.startswith(BIN_ROOT)}
    scene.later = timedelta(days=30)
    emptied = scene.apply(plan_bucket_bin(scene.spark, scene.shop, options=PlanOptions()))
    left = scene.client.list_object_versions(Bucket=scene.bucket, Prefix=BIN_ROOT)

    assert {"recycled": 5} == {name: tally.objects for name, tally in applied.outcomes.items()}
    assert ([], {*KEYS, "a"}) == (hidden, again)
    assert held
    assert held <= current
    assert {"restored": 4, "taken": 1} == {name: tally.objects for name, tally in done.outcomes.items()}
    assert {key: key.encode() for key in KEYS} | {"a": b"new"} == contents
    assert 1 == emptied.freed.objects
    assert ([], []) == (left.get("Versions", []), left.get("DeleteMarkers", []))


def _raise(broken):
    raise broken
