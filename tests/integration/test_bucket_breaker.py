"""The breaker of buckets: a routine expiration passes, whatever a new or changed rule takes does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.integration.test_bucket_job import Scene
from tests.services.runs import check_bucket
from tests.services.versions import put_all

from ebbtide.core.errors import BreakerTripped
from ebbtide.engine.apply import ApplyOptions
from ebbtide.engine.run_folder import run_folder
from ebbtide.targets.s3.rules.document import read_configuration

pytestmark = pytest.mark.spark


def expiring(days: int):
    """Write a rule for logs, which are all that the bucket has."""
    rule = {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": days}}
    return read_configuration({"Rules": [rule]})


def test_a_whole_prefix_expires_without_an_override_once_that_is_routine(spark, s3_server, bucket, tmp_path):
    """The first expiration by a rule needs an override, later ones do not, and a changed rule does again."""
    scene = Scene(spark, s3_server, bucket, tmp_path)
    scene.shop.rules.put(bucket, expiring(3))
    put_all(scene.client, bucket, ["logs/a", "logs/b"])
    first = scene.plan()
    with pytest.raises(BreakerTripped, match=f"all 2 current versions that the rules of s3://{bucket} can"):
        check_bucket(scene.shop, first, ApplyOptions())
    scene.apply(first)
    put_all(scene.client, bucket, ["logs/c", "logs/d"])
    # These were due when the last run was planned, so they did not become due by ageing since.
    assert 1 == len(scene.plan().breaker)

    # As if that had been before the next objects became due: what a server writes is always of now.
    place = run_folder(scene.shop.root, first.run_id).manifest_file
    place.write_text(replace(first, now=first.now - timedelta(days=9)).to_json())
    second = scene.plan()
    check_bucket(scene.shop, second, ApplyOptions())

    assert (2, ()) == (second.summary.due.objects, second.breaker)

    scene.shop.rules.put(bucket, expiring(2))

    assert 1 == len(scene.plan().breaker)
