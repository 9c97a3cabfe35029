"""Scenario 5.0: what is found running gets its policy assigned again, every day that it is found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.targets.oci.model import RunningImages
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.records.marks import renewing
from ebbtide.targets.oci.records.model import Mark, Target
from ebbtide.targets.oci.running import without_host
from ebbtide.targets.oci.running_source import RunningSource
from ebbtide.targets.oci.tables import assigned_of

FOUND_RUNNING = "found running"
"""What the log says of an image that was renewed: when it was last seen running."""


def renewal_words(source: RunningSource | None) -> str:
    """Say in the log why an image was renewed, by which source, and who made the plan that did it."""
    if source is None:
        return FOUND_RUNNING
    return f"{FOUND_RUNNING} by {source.name} in a plan of {source.by}"


def found_running(images: DataFrame, tags: DataFrame, running: RunningImages) -> DataFrame:
    """
    Give the tags by which something runs and, where it runs by digest, all tags of that or the manifest.

    They are as few as what runs, not as what is stored.
    """
    digests = {(_path(one.repository), one.digest) for one in running.references if one.digest}
    names = {(_path(one.repository), one.tag) for one in running.references if one.tag}
    columns = ["repository", "tag", "digest", "policy", "expires_at", "can_delete_prior", "recycle"]
    by_tag = tags.where(_any_of("tag", names) | _any_of("digest", digests))
    untagged = images.where(_any_of("digest", digests)).join(tags, ["repository", "digest"], "left_anti")
    return by_tag.select(*columns).unionByName(untagged.withColumn("tag", f.lit("")).select(*columns))


def renewed_marks(found: DataFrame, policies: Policies, now: datetime) -> Iterator[tuple[Mark, Mark]]:
    """Assign their policies again to what has one; a date never comes nearer. Gives before and after."""
    # By Arrow, for rows of Spark have times without a zone, in that of the machine.
    for row in found.toArrow().to_pylist():
        target = Target(row["repository"], row["tag"], row["digest"])
        assigned = assigned_of(row)
        before = Mark(target, assigned)
        after = renewing(before, policies, now)
        if after != before:
            yield before, after


def _path(repository: str | None) -> str | None:
    return None if repository is None else without_host(repository)


def _any_of(column: str, pairs: set[tuple[str | None, str]]) -> Column:
    """Tell whether a row is one of those that are named, wherever its repository has no host."""
    anywhere = sorted(name for path, name in pairs if path is None)
    keys = sorted(f"{path} {name}" for path, name in pairs if path is not None)
    path = f.regexp_replace("repository", "^library/", "")
    return f.col(column).isin(anywhere) | f.concat_ws(" ", path, column).isin(keys)
