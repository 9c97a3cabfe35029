"""A bucket on a real S3 server, planned and applied: exactly the planned changes, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import boto3
import pytest
from tests.services.runs import apply_bucket, plan_bucket
from tests.services.versions import everything, put_all

from ebbtide.core.decision import Decision
from ebbtide.core.errors import BadInput, EbbtideError, StalePlan
from ebbtide.core.instant import system_clock
from ebbtide.engine.apply import ApplyOptions
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.state.runs import Ledger, RunState
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.context import BucketContext, Source
from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.s3.stored_rules import BucketRules

pytestmark = pytest.mark.spark

LATER = timedelta(days=10)
RULES = {
    "Rules": [
        {
            "ID": "old",
            "Status": "Enabled",
            "Filter": {},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 2},
        },
        {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 3}},
        {
            "ID": "uploads",
            "Status": "Enabled",
            "Filter": {},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        },
    ]
}


class Scene:
    """A versioned bucket with rules, and all that plans and applies on it, ten days after it was filled."""

    def __init__(self, spark, server, bucket, folder):
        self.spark, self.bucket, self.client = spark, bucket, server.client()
        self.version("Enabled")
        rules = BucketRules(f"sqlite:///{folder}/rules.db")
        rules.put(bucket, read_configuration(RULES))
        ledger = Ledger(f"sqlite:///{folder}/ledger.db")
        self.spec = StoreSpec(f"s3://{bucket}", server.options)
        # All that the server writes is of now; to judge it as old the clock of the run is put forward.
        self.shop = BucketContext(self.spec, rules, ledger, folder / "state", lambda: system_clock() + LATER)

    def plan(self, **how):
        """Plan by the stored rules."""
        sourced = self.shop.effective_rules(Source.STORED)
        return plan_bucket(
            self.spark, self.shop, sourced, now=self.shop.clock(), options=PlanOptions(), **how
        )

    def apply(self, manifest, **how):
        """Apply a plan, with the breaker overridden."""
        options = ApplyOptions(override_breaker=True)
        return apply_bucket(self.spark, self.shop, manifest, options=options, **how)

    def due(self, manifest):
        """Give what a plan would do: key, version or upload, and action."""
        rows = stream_decisions(run_folder(self.shop.root, manifest.run_id), Decision.DUE)
        return {(row["address"], row["version"], row["action"]) for row in rows}

    def version(self, status):
        """Switch versions on or suspend them."""
        self.client.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": status})

    def everything(self):
        """List the bucket with a plain client."""
        return everything(self.client, self.bucket)


@pytest.fixture
def scene(spark, s3_server, bucket, tmp_path):
    """Give a bucket with two versions of a.csv, one of b.csv, two of logs/x, and an open upload."""
    made = Scene(spark, s3_server, bucket, tmp_path)
    put_all(made.client, bucket, ["a.csv", "b.csv", "logs/x"])
    put_all(made.client, bucket, ["a.csv", "logs/x"])
    made.client.create_multipart_upload(Bucket=bucket, Key="big.bin")
    return made


def test_exactly_the_planned_changes(scene):
    """Old versions go, current ones of logs/ get a marker, the upload is aborted, and all else stays."""
    before = scene.everything()
    manifest = scene.plan()
    due = scene.due(manifest)
    applied = scene.apply(manifest)
    after = scene.everything()
    current = {(key, version) for key, version, latest, _ in before if latest}
    old = {(key, version) for key, version, latest, _ in before if not latest}
    marker = {row for row in after if row[3]}

    assert {(*item, "delete_version") for item in old} | {
        (key, version, "expire") for key, version in current if key.startswith("logs/")
    } == {item for item in due if item[2] != "abort_upload"}
    assert ["big.bin"] == [key for key, _, action in due if action == "abort_upload"]
    assert {"deleted", "hidden"} == set(applied.outcomes)
    assert (
        manifest.summary.freed.bytes
        == applied.freed.bytes
        == manifest.summary.due.bytes - applied.hidden.bytes
    )
    assert applied.hidden.bytes > 0
    assert current == {(key, version) for key, version, _, is_marker in after if not is_marker}
    assert [("logs/x", True)] == [(key, latest) for key, _, latest, _ in marker]
    assert not scene.client.list_multipart_uploads(Bucket=scene.bucket).get("Uploads")
    assert scene.apply(manifest).already_applied
    assert RunState.SUCCEEDED == scene.shop.ledger.run(manifest.run_id).state


def test_other_rules_make_a_plan_stale_and_what_was_overwritten_is_left_alone(scene):
    """
    A plan is for the rules and the versioning that it was made from, and for a bucket that is there.

    A current version that was replaced stays, and so does a noncurrent one that came up again.
    """
    manifest, before = scene.plan(), scene.everything()
    scene.shop.rules.put(scene.bucket, read_configuration({"Rules": RULES["Rules"][:1]}))
    with pytest.raises(StalePlan, match="rules or the versioning"):
        scene.apply(manifest)
    scene.shop.rules.put(scene.bucket, read_configuration(RULES))
    scene.version("Suspended")
    with pytest.raises(StalePlan, match="rules or the versioning"):
        scene.apply(manifest)
    scene.shop.rules.delete(scene.bucket)
    with pytest.raises(StalePlan, match="NoSuchLifecycleConfiguration"):
        scene.apply(manifest)

    assert before == scene.everything()

    scene.shop.rules.put(scene.bucket, read_configuration(RULES))
    scene.version("Enabled")
    put_all(scene.client, scene.bucket, ["logs/x"])
    newest = next(version for key, version, latest, _ in scene.everything() if key == "a.csv" and latest)
    scene.client.delete_object(Bucket=scene.bucket, Key="a.csv", VersionId=newest)
    alive = {row for row in scene.everything() if row[2]}
    applied = scene.apply(manifest)

    assert 2 == applied.outcomes["changed"].objects
    assert alive == {row for row in scene.everything() if row[2]}
    assert b"a.csv" == scene.client.get_object(Bucket=scene.bucket, Key="a.csv")["Body"].read()


def test_a_bucket_that_cannot_be_read_stops_the_plan(scene, monkeypatch):
    """Wrong credentials and a bucket that is not there are errors, never an empty plan."""
    gone = BucketContext(
        StoreSpec("s3://not-there", scene.spec.options),
        scene.shop.rules,
        scene.shop.ledger,
        scene.shop.root,
        scene.shop.clock,
    )
    with pytest.raises(BadInput, match="not-there"):
        gone.effective_rules(Source.BUCKET)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        patch.setattr(boto3, "DEFAULT_SESSION", None)
        patch.setattr("ebbtide.storage.s3_bucket._opened", {})
        with pytest.raises(EbbtideError, match="credentials"):
            scene.shop.effective_rules(Source.STORED)

    assert [] == scene.shop.ledger.runs()


@pytest.mark.long
def test_a_plan_warns_of_null_versions_that_its_markers_replace(scene):
    """In a suspended bucket an expiration destroys a null version that no row of the plan names."""
    for status in ("Suspended", "Enabled", "Suspended"):
        setting = {"Status": status}
        scene.client.put_bucket_versioning(Bucket=scene.bucket, VersioningConfiguration=setting)
        if len([row for row in scene.everything() if row[0] == "logs/null"]) < 2:
            put_all(scene.client, scene.bucket, ["logs/null"])
    scene.shop.rules.put(scene.bucket, read_configuration({"Rules": RULES["Rules"][1:]}))
    before = {row[1:] for row in scene.everything() if row[0] == "logs/null"}
    manifest = scene.plan()
    scene.apply(manifest)
    after = {row[1:] for row in scene.everything() if row[0] == "logs/null"}

    assert ("null", False, False) in before
    assert manifest.warnings[0].startswith("1 null version will be destroyed")
    assert "null" not in {version for _, version, _ in scene.due(manifest)}
    assert ("null", True, True) in after
    assert 2 == len(after)
