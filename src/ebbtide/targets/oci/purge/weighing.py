"""From a scan to verdicts: with what people have said, and with what somebody asks to delete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame

from ebbtide.targets.oci.evaluation.judging import judged
from ebbtide.targets.oci.purge.order import PurgeOrder
from ebbtide.targets.oci.purge.wanted import only_wanted, with_wanted


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
        order = self.order
        return judged(
            images,
            tags,
            order.policies,
            self.now,
            order.running,
            order.oldest_scan,
            count=self.count,
            scratch=scratch,
        )
