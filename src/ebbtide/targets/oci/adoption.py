"""
Adoption: which repositories of a registry may be purged by its policies.

A registry that Ebbtide has never purged holds images that nobody wrote a rule for. So the first plan shows
what would fall under which policy, and somebody confirms that. Until then scans record what is there and
since when, and assign no policy: what is confirmed is what the policies say on that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

WHOLE = ""
"""In place of a repository: all of a registry, also those that come later."""


@dataclass(frozen=True)
class Confirmation:
    """Somebody confirmed what the policies do, and when."""

    at: datetime
    by: str


@dataclass(frozen=True)
class Adoption:
    """What of a registry was confirmed, by repository; WHOLE is all of it."""

    confirmed: Mapping[str, Confirmation]

    def covers(self, repository: str) -> bool:
        """Tell whether a repository or, for WHOLE, the registry may be purged."""
        return WHOLE in self.confirmed or repository in self.confirmed
