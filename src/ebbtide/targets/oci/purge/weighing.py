"""From a scan to verdicts: with what people have said, and with what somebody asks to delete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.targets.oci.evaluation.verdicts import evaluate
from ebbtide.targets.oci.oracle_tables import oracle_verdicts
from ebbtide.targets.oci.purge.order import PurgeOrder
from ebbtide.targets.oci.purge.wanted import only_wanted, with_wanted
from ebbtide.targets.oci.tables import IMAGE_VERDICTS, IMAGES, TAGS

FEW = 20_000
"""Up to this many tags and manifests fit into the memory of the driver many times over."""


@dataclass(frozen=True)
class Weighing:
    """The tables of a scan with the marks laid over, and what they are weighed by."""

    order: PurgeOrder
    now: datetime
    images: DataFrame
    tags: DataFrame
    count: int
    """How many rows both tables have, or more."""
    scratch: Path

    def verdicts(self) -> DataFrame:
        """Judge everything, what somebody asks to delete as such."""
        asked = with_wanted(self.images, self.tags, self.order.wanted, self.now)
        return self._judged(*asked, self.scratch / "judged")

    def only_wanted(self, verdicts: DataFrame) -> DataFrame:
        """Leave of verdicts what is asked for, what goes because of that, and what is refused."""
        asked = with_wanted(self.images, self.tags, self.order.wanted, self.now)
        return only_wanted(verdicts, self._judged(self.images, self.tags, self.scratch / "otherwise"), *asked)

    def _judged(self, images: DataFrame, tags: DataFrame, scratch: Path) -> DataFrame:
        """Return the verdicts on all images and tags: by the oracle if there are few, else by Spark."""
        order, spark = self.order, images.sparkSession
        decided_by = (order.policies, self.now, order.running, order.oldest_scan)
        if self.count > FEW:
            return evaluate(images, tags, *decided_by, scratch=scratch)
        rows, named = (table.toArrow().to_pylist() for table in (IMAGES.check(images), TAGS.check(tags)))
        schema = to_arrow_schema(IMAGE_VERDICTS.schema, timezone="UTC")
        found = pa.Table.from_pylist(oracle_verdicts(rows, named, *decided_by), schema)
        return IMAGE_VERDICTS.check(spark.createDataFrame(found))
