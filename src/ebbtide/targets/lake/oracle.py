"""
The oracle: what policy, retention and grace period mean, in plain Python sets and loops.

This is the executable specification. It shares nothing with the Spark pipeline but the data classes and the
spelling of addresses, it looks at everything one by one, and the pipeline must agree with it on every world.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ebbtide.core.decision import CollectorName
from ebbtide.targets.lake.oracle_lifecycle import lifecycle_keepers
from ebbtide.targets.lake.oracle_retention import retention_keepers
from ebbtide.targets.lake.oracle_uncommitted import uncommitted_keepers
from ebbtide.targets.lake.world_document import WorldDocument

_KEEPERS = {
    CollectorName.LIFECYCLE: lifecycle_keepers,
    CollectorName.UNCOMMITTED: uncommitted_keepers,
    CollectorName.RETENTION: retention_keepers,
}
"""Each collector gives the addresses that it touches, what keeps each, in words, and until when."""


@dataclass(frozen=True)
class Judgement:
    """What is due, and what holds the rest of what a collector touches."""

    due: frozenset[str]
    held: Mapping[str, frozenset[str]]
    """Address to the references that have not lapsed, each as 'key <- referrer'."""
    deadlines: Mapping[str, datetime]
    collectors: Mapping[str, CollectorName]
    """Address, of those that are due, to who found it."""


def judge_world(world: WorldDocument, now: datetime) -> Judgement:
    """Say what may be deleted at this time: whatever one of the world's collectors, alone, would find."""
    deadlines: dict[str, datetime] = {}
    finders: dict[str, CollectorName] = {}
    keepers: dict[str, Mapping[str, datetime]] = {}
    for collector in CollectorName:
        if collector not in world.collect:
            continue
        for address, found in _KEEPERS[collector](world).items():
            deadline = max(found.values())
            if address not in deadlines or deadline < deadlines[address]:
                deadlines[address], finders[address], keepers[address] = deadline, collector, found
    for address, until in world.restored.items():
        if address in deadlines and until > deadlines[address]:
            deadlines[address], keepers[address] = until, {f"{address} <- restored": until}
    due = frozenset(address for address, deadline in deadlines.items() if deadline <= now)
    held = {
        address: frozenset(words for words, until in found.items() if until > now)
        for address, found in keepers.items()
        if address not in due
    }
    return Judgement(due, held, deadlines, {address: finders[address] for address in sorted(due)})
