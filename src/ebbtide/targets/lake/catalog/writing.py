"""A write transaction on one repository, as the parts of the catalog hand it to each other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from ebbtide.targets.lake.catalog.model import Repository


@dataclass(frozen=True)
class Writing:
    """A write transaction on one repository, whose row it holds locked."""

    connection: Connection
    repository: Repository
    sequence: int
    """The number of this change; rows that it stages carry it."""
    at: datetime
    """When it began; what it drops waits in the reclaim queue from then on."""
