"""What manifests weigh: each with its own bytes, and every blob with one of the manifests that have it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.targets.oci.model import Decision


def blob_sizes(images: DataFrame, decided: DataFrame) -> DataFrame:
    """
    Give for each manifest the bytes of the blobs that are counted for it: node, blobs.

    A blob stays as long as one manifest does that has it, in any repository: so it is counted for one that
    stays if there is one, else for one that is recycled. Of equals the first name counts, and numbers follow
    the order of names.
    """
    listed = images.select("node", f.explode("blobs").alias("blob")).select("node", "blob.*")
    decision = f.col("decision")
    rank = f.when(decision == Decision.RECYCLE, 1).when(decision == Decision.DELETE, 2).otherwise(0)
    ranks = decided.select("node", rank.alias("rank"))
    ranked = listed.where(f.col("digest").isNotNull()).join(ranks, "node")
    first = f.min(f.struct("rank", "node", f.coalesce("size", f.lit(0)).alias("size"))).alias("first")
    counted = ranked.groupBy("digest").agg(first).select("first.*")
    return counted.groupBy("node").agg(f.sum("size").alias("blobs"))
