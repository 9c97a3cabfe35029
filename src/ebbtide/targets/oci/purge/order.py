"""The order of a purge: all that decides it besides the registry. The plan keeps it word for word."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ebbtide.core.errors import BadInput, MetadataError, SafetyStop
from ebbtide.core.instant import format_instant
from ebbtide.targets.oci.model import OLDEST_SCAN, RunningImages
from ebbtide.targets.oci.policies.document import read_policies, write_policies
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.purge.wanted import Wanted
from ebbtide.targets.oci.running import running_of, scan_doubt


@dataclass(frozen=True)
class PurgeOrder:
    """What is to be purged: by which policies, beside what runs, and what somebody asks to delete besides."""

    policies: Policies
    running: RunningImages | None = None
    oldest_scan: timedelta = OLDEST_SCAN
    """How long ago what runs may have been looked at."""
    wanted: Wanted | None = None

    def dated(self, now: datetime) -> PurgeOrder:
        """Give a scan of what runs that has no time the time of the plan, for which it was made."""
        if self.running is None or self.running.scanned_at is not None:
            return self
        return replace(self, running=replace(self.running, scanned_at=now))

    def check_running(self, now: datetime) -> None:
        """Stop if what is known of running images is not to be trusted at this moment."""
        doubt = scan_doubt(self.running, now, self.oldest_scan)
        if doubt:
            raise SafetyStop(
                doubt,
                why="an image that runs and is not known to run would not be protected",
                fix="scan again what runs, and plan again with --running",
            )

    def to_json(self) -> str:
        """Write the order; the same order is always the same text."""
        plain = {
            "policies": write_policies(self.policies),
            "running": _plain_running(self.running),
            "oldest_scan_seconds": int(self.oldest_scan.total_seconds()),
            "wanted": None if self.wanted is None else self.wanted.plain(),
        }
        return json.dumps(plain, sort_keys=True, ensure_ascii=False)

    @property
    def hash(self) -> str:
        """Name the order by what it says."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def read_order(text: str) -> PurgeOrder:
    """Read the order of a plan."""
    try:
        plain: dict[str, Any] = json.loads(text)
        running, wanted = plain["running"], plain["wanted"]
        return PurgeOrder(
            read_policies(plain["policies"]),
            None if running is None else running_of(running, "the plan's running images"),
            timedelta(seconds=plain["oldest_scan_seconds"]),
            None if wanted is None else Wanted.read(wanted),
        )
    except (ValueError, KeyError, TypeError, BadInput) as broken:
        raise MetadataError(f"the order of the plan cannot be read: {broken}", fix="plan again") from None


def _plain_running(running: RunningImages | None) -> dict[str, Any] | None:
    if running is None:
        return None
    moment = running.scanned_at
    return {
        "images": sorted(str(reference) for reference in running.references),
        "scanned_at": None if moment is None else format_instant(moment),
        "failed": running.failed or None,
    }
