"""
Marks: what people assigned to images, applied over what scans recorded; and the marks of running images.

The choice of a person counts more than what rules assigned. A mark of a tag was made for the manifest that it
stood for. If the tag has moved since, a pin stays with the name, because a pin of ``prod`` means what
``prod`` is; anything else belongs to what the tag named before, and the values that the scan assigned for the
new manifest count.

Scenario 5.0: running images get their policy assigned again, every day that they are found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.model import Image, RunningImages, Tag
from ebbtide.targets.oci.policies.policy import Assigned, Policies
from ebbtide.targets.oci.records.mark_operations import renewing
from ebbtide.targets.oci.records.model import Mark, Target
from ebbtide.targets.oci.running import without_host
from ebbtide.targets.oci.running_source import RunningSource
from ebbtide.targets.oci.tables import IMAGES, TAGS, assigned_of

ASSIGNED = ("policy", "expires_at", "can_delete_prior", "recycle")
_QUARANTINE = ("quarantine", "quarantine_since")


def with_marks(images: DataFrame, tags: DataFrame, marks: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Return both tables with marks applied; without marks, as they are."""
    if marks is None:
        return IMAGES.check(images), TAGS.check(tags.withColumn("copied", f.lit(True)))
    of_tags = _renamed(marks.where(f.col("tag") != ""), "tag")
    of_images = _renamed(marks.where(f.col("tag") == ""), "digest")
    return _marked_images(images, of_images), _marked_tags(tags, of_tags)


def _renamed(marks: DataFrame, key: str) -> DataFrame:
    """Rename the columns of marks, so that they do not clash with those of the tables."""
    rest = [name for name in marks.columns if name not in ("repository", key)]
    return marks.select(
        "repository", key, *(f.col(name).alias(f"mark_{name}") for name in rest), f.lit(True).alias("marked")
    )


def _marked_tags(tags: DataFrame, marks: DataFrame) -> DataFrame:
    joined = tags.join(marks, ["repository", "tag"], "left")
    stays = f.col("mark_digest") == f.col("digest")
    pinned = f.col("mark_can_delete_prior") == f.lit(False)
    counts = f.coalesce(f.col("marked") & (stays | pinned) & _says_something(), f.lit(False))
    return TAGS.check(_laid_over(joined, counts).withColumn("copied", ~counts | _by_system()))


def _marked_images(images: DataFrame, marks: DataFrame) -> DataFrame:
    joined = images.join(marks, ["repository", "digest"], "left")
    counts = f.coalesce(f.col("marked") & _says_something() & ~_is_held(), f.lit(False))
    laid = _laid_over(joined, counts)
    for name in _QUARANTINE:
        laid = laid.withColumn(name, f.coalesce(f.col(f"mark_{name}"), f.col(name)))
    return IMAGES.check(laid)


def _is_held() -> Column:
    """Return True if the scan itself holds a manifest, because it or what may need it is not understood."""
    return f.col("policy").isNull() & f.coalesce(~f.col("can_delete_prior"), f.lit(False))


def _says_something() -> Column:
    """Return True if a mark is about the policy and not only about the quarantine."""
    said = f.lit(False)
    for name in ASSIGNED:
        said = said | f.col(f"mark_{name}").isNotNull()
    return said


def _by_system() -> Column:
    """Return True if the purge renewed a running image; no person chose the policy for this tag."""
    return f.coalesce("mark_by_system", f.lit(False))


def _laid_over(joined: DataFrame, counts: Column) -> DataFrame:
    return joined.withColumns(
        {name: f.when(counts, f.col(f"mark_{name}")).otherwise(f.col(name)) for name in ASSIGNED}
    )


def marked_tag(tag: Tag, target: Target, mark: Mark | None) -> Tag:
    """Apply a mark to a tag; `with_marks` does the same on Spark."""
    if mark is None or _is_silent(mark.assigned):
        return replace(tag, copied=True)
    stays = mark.target.digest == target.digest
    if stays or mark.assigned.can_delete_prior is False:
        return replace(tag, assigned=mark.assigned, copied=mark.by == SYSTEM)
    return replace(tag, copied=True)


def marked_image(image: Image, mark: Mark | None) -> Image:
    """Apply a mark to a manifest, unless the scan itself holds it."""
    if mark is None:
        return image
    quarantine = mark.quarantine or image.quarantine
    held = image.assigned.policy is None and image.assigned.can_delete_prior is False
    assigned = image.assigned if held or _is_silent(mark.assigned) else mark.assigned
    return replace(image, assigned=assigned, quarantine=quarantine)


def _is_silent(assigned: Assigned) -> bool:
    return assigned == Assigned()


FOUND_RUNNING = "found running"
"""What the log says about a renewed image: when it was last seen running."""


def renewal_words(source: RunningSource | None) -> str:
    """Return why an image was renewed, for the log: the source, and who made the plan."""
    if source is None:
        return FOUND_RUNNING
    return f"{FOUND_RUNNING} by {source.name} in a plan of {source.by}"


def found_running(images: DataFrame, tags: DataFrame, running: RunningImages) -> DataFrame:
    """
    Return the tags by which images run and, for those that run by digest, their tags or the manifest.

    There are as few as running images, not as stored ones.
    """
    digests = {(_repository_path(one.repository), one.digest) for one in running.references if one.digest}
    names = {(_repository_path(one.repository), one.tag) for one in running.references if one.tag}
    columns = ["repository", "tag", "digest", "policy", "expires_at", "can_delete_prior", "recycle"]
    by_tag = tags.where(_any_of("tag", names) | _any_of("digest", digests))
    untagged = images.where(_any_of("digest", digests)).join(tags, ["repository", "digest"], "left_anti")
    return by_tag.select(*columns).unionByName(untagged.withColumn("tag", f.lit("")).select(*columns))


def renewed_marks(found: DataFrame, policies: Policies, now: datetime) -> Iterator[tuple[Mark, Mark]]:
    """Assign their policies again to what has one; a date never comes nearer. Yield before and after."""
    # By Arrow, because rows of Spark have times without a zone, in that of the machine.
    for row in found.toArrow().to_pylist():
        target = Target(row["repository"], row["tag"], row["digest"])
        assigned = assigned_of(row)
        before = Mark(target, assigned)
        after = renewing(before, policies, now)
        if after != before:
            yield before, after


def _repository_path(repository: str | None) -> str | None:
    return None if repository is None else without_host(repository)


def _any_of(column: str, pairs: set[tuple[str | None, str]]) -> Column:
    """Return True for rows that are named, wherever the repository has no host."""
    anywhere = sorted(name for path, name in pairs if path is None)
    keys = sorted(f"{path} {name}" for path, name in pairs if path is not None)
    path = f.regexp_replace("repository", "^library/", "")
    return f.col(column).isin(anywhere) | f.concat_ws(" ", path, column).isin(keys)
