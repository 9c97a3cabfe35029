"""
How many Spark jobs a small run takes. Each costs as much as all the rows of a small target.

A change that adds a job raises a number here, and says why in its commit.
"""

from __future__ import annotations

from tests.contract.targets.worlds import BucketWorld, LayoutWorld
from tests.services.jobs import counted_jobs
from tests.services.seaweed import fresh_bucket

RULES = {"own": {"prefix": "own/", "days": 30}}


def test_a_first_plan_takes_few_jobs(lake):
    """Ranges, their content, verdicts, counts, the plan and its addresses: six jobs, nine at most."""
    lake.upload("own/a", "keep/b")
    lake.commit()
    lake.policy(RULES)
    lake.clock.now = lake.day(100)
    with counted_jobs(lake.spark) as jobs:
        manifest = lake.plan()

    assert (1, 6) == (manifest.batches, jobs.count)


def test_a_plan_without_changes_takes_fewer_jobs(lake):
    """Verdicts that cannot have changed are not computed again, and a plan for nothing is not written."""
    lake.upload("own/a", "keep/b")
    lake.commit()
    lake.policy(RULES)
    first = lake.plan()
    with counted_jobs(lake.spark) as empty:
        nothing_due = lake.plan()
    lake.clock.now = lake.day(100)
    with counted_jobs(lake.spark) as jobs:
        something_due = lake.plan()

    assert [0, 0, 1] == [plan.batches for plan in (first, nothing_due, something_due)]
    assert (3, 5) == (empty.count, jobs.count)


def test_an_apply_takes_few_jobs(lake):
    """The digest of the plan, the deletes with their outcomes, and the tally: three jobs."""
    lake.upload("own/a", "keep/b")
    lake.commit()
    lake.policy(RULES)
    lake.clock.now = lake.day(100)
    manifest = lake.plan()
    with counted_jobs(lake.spark) as jobs:
        applied = lake.apply(manifest, override_breaker=True)
    with counted_jobs(lake.spark) as again:
        lake.apply(manifest)

    assert (1, 3, 1) == (applied.freed.objects, jobs.count, again.count)


def test_an_apply_after_a_change_takes_few_jobs(lake):
    """What was referenced since the plan is found in two more jobs."""
    lake.upload("own/a", "keep/b")
    lake.commit()
    lake.policy(RULES)
    lake.clock.now = lake.day(100)
    manifest = lake.plan()
    lake.upload("own/c")
    with counted_jobs(lake.spark) as jobs:
        applied = lake.apply(manifest, override_breaker=True)

    assert (1, 5) == (applied.freed.objects, jobs.count)


def test_a_plan_for_nothing_is_applied_without_a_job(lake):
    """An empty table needs no job, neither to be written nor to be read."""
    lake.policy(RULES)
    manifest = lake.plan()
    with counted_jobs(lake.spark) as jobs:
        applied = lake.apply(manifest)

    assert (0, {}, 0) == (manifest.batches, applied.outcomes, jobs.count)


def test_a_bucket_takes_few_jobs(spark, s3_server, tmp_path):
    """The listing, lakes inside it, verdicts, counts and the plan; the digest, the deletes and the tally."""
    with fresh_bucket(s3_server) as bucket:
        world = BucketWorld(spark, tmp_path / "world", s3_server, bucket)
        with counted_jobs(spark) as planned:
            manifest = world.plan()
        with counted_jobs(spark) as applied:
            world.apply(manifest)
        world.close()

    assert (5, 4) == (planned.count, applied.count)


def test_a_registry_takes_few_jobs(spark, tmp_path):
    """A small registry is scanned on the driver; an apply scans it again before its batch."""
    world = LayoutWorld(spark, tmp_path / "world")
    with counted_jobs(spark) as planned:
        manifest = world.plan()
    with counted_jobs(spark) as applied:
        world.apply(manifest)
    world.close()

    assert (8, 11) == (planned.count, applied.count)
