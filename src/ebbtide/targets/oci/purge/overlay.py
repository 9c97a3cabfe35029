"""
Laying over what scans recorded what people have said: their word counts more than what rules copied.

What was said of a tag was said of the manifest that it stood for. When the tag has moved since, a pin stays
with the name, for whoever pinned ``prod`` means what ``prod`` is; anything else belongs to what the tag named
before, and the values that the scan copied for the new manifest count.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.targets.oci.tables import IMAGES, TAGS

ASSIGNED = ("policy", "expires_at", "can_delete_prior", "recycle")
_QUARANTINE = ("quarantine", "quarantine_since")


def with_marks(images: DataFrame, tags: DataFrame, marks: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Give both tables as people want them seen; without marks, as they are."""
    if marks is None:
        return IMAGES.check(images), TAGS.check(tags.withColumn("copied", f.lit(True)))
    of_tags = _renamed(marks.where(f.col("tag") != ""), "tag")
    of_images = _renamed(marks.where(f.col("tag") == ""), "digest")
    return _marked_images(images, of_images), _marked_tags(tags, of_tags)


def _renamed(marks: DataFrame, key: str) -> DataFrame:
    """Give marks columns that cannot be mixed up with those of what they are laid over."""
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
    """Tell that the scan itself holds a manifest, for it or what may need it is not understood."""
    return f.col("policy").isNull() & f.coalesce(~f.col("can_delete_prior"), f.lit(False))


def _says_something() -> Column:
    """Tell that a mark is about the policy and not only about the quarantine."""
    said = f.lit(False)
    for name in ASSIGNED:
        said = said | f.col(f"mark_{name}").isNotNull()
    return said


def _by_system() -> Column:
    """Tell that the purge renewed what it found running; nobody chose the policy for this tag."""
    return f.coalesce("mark_by_system", f.lit(False))


def _laid_over(joined: DataFrame, counts: Column) -> DataFrame:
    return joined.withColumns(
        {name: f.when(counts, f.col(f"mark_{name}")).otherwise(f.col(name)) for name in ASSIGNED}
    )
