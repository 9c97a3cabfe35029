"""
All cases of the rows of S3 semantics that an evaluation can show.

They are data, so that the very same ones run through every evaluation: the oracle and the Spark one.
"""

from __future__ import annotations

from tests.worlds_of_s3.case import Case
from tests.worlds_of_s3.filters import FILTERS
from tests.worlds_of_s3.holds import HOLDS
from tests.worlds_of_s3.moments import MOMENTS
from tests.worlds_of_s3.ranks import NULLS, RANKS
from tests.worlds_of_s3.transitions import TRANSITIONS
from tests.worlds_of_s3.versions import VERSIONS

CASES = [*FILTERS, *MOMENTS, *VERSIONS, *RANKS, *NULLS, *TRANSITIONS, *HOLDS]


def cases_of(row: str) -> list[Case]:
    """Give the cases of one row, by its number in the notes."""
    return [found for found in CASES if found.row == row]
