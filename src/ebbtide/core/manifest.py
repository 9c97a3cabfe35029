"""The manifest: the small document that names a plan, what it was made from and what it holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from ebbtide.core.decision import DELETE, MOVED
from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import format_instant, parse_instant

FORMAT = 3
"""Since format 2 every table of a run has a record of its rows; since format 3 it has typed verdicts."""
_READABLE = (1, 2, FORMAT)
_UNTYPED = 2
_WAVES = "waves"
"""The name of `batches` in earlier versions."""
_BRANCH, _BY_BRANCH = "branch", "by_branch"
"""The label that has a name of its own in manifests, because scripts read it there."""
RECYCLE = "recycle"
"""The key of a manifest for the recycle bin."""


@dataclass(frozen=True)
class Recycling:
    """How a plan uses the recycle bin: for how many days, and in which folder of the bin."""

    days: int
    folder: str

    @classmethod
    def of_run(cls, run_id: int, made_at: datetime, target_uid: str, days: int) -> Recycling:
        """Name a folder that no other run uses: two ledgers may each have a run 7 on one target."""
        mark = hashlib.sha256(f"{run_id}@{made_at.isoformat()}@{target_uid}".encode()).hexdigest()[:12]
        return cls(days, f"{run_id:06d}-{mark}")


@dataclass(frozen=True)
class Tally:
    """How many objects and bytes, under one label."""

    label: str
    objects: int
    bytes: int


@dataclass(frozen=True)
class Summary:
    """The counts of a plan, made once when it is frozen."""

    due: Tally
    held: Tally
    known_objects: int
    by_rule: tuple[Tally, ...] = ()
    by_prefix: tuple[Tally, ...] = ()
    by_age: tuple[Tally, ...] = ()
    held_by_reason: tuple[Tally, ...] = ()
    by_collector: tuple[Tally, ...] = ()
    by_action: tuple[Tally, ...] = ()
    by_label: Mapping[str, tuple[Tally, ...]] = field(default_factory=dict)
    """By the values of each label that items have, such as `branch`."""
    frees: Tally | None = None
    """What the store gives back: not what is hidden, moved or set aside; None in older plans."""

    @property
    def freed(self) -> Tally:
        """What applying the plan frees."""
        return self.due if self.frees is None else self.frees

    @property
    def deleted(self) -> Tally:
        """What is deleted: all that is due except items that are only moved."""
        moved = [tally for tally in self.by_action if tally.label == MOVED]
        objects = self.due.objects - sum(tally.objects for tally in moved)
        return Tally("deleted", objects, self.due.bytes - sum(tally.bytes for tally in moved))


@dataclass(frozen=True)
class Manifest:
    """A frozen plan. Its hash covers what would be deleted and why, not when or where it was computed."""

    run_id: int
    target: str
    target_uid: str
    namespace: str
    collector: str
    made_at: datetime
    now: datetime
    policy: str
    policy_hash: str
    snapshot: dict[str, Any]
    batches: int
    digest: str
    """Order-independent digest of the rows of the plan table."""
    summary: Summary
    breaker: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    rehearsal: bool = False
    """Whether it was made in a rehearsal root, by a clock that can be advanced."""
    format: int = FORMAT
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_counted(self) -> bool:
        """Return whether the plan's tables have records of their rows; an earlier version wrote none."""
        return self.format > 1

    @property
    def is_typed(self) -> bool:
        """Return whether the plan's tables are typed verdicts; earlier versions wrote other columns."""
        return self.format > _UNTYPED

    @property
    def recycling(self) -> Recycling | None:
        """For how long and where due items are set aside; None if they are deleted for good."""
        said = self.extra.get(RECYCLE)
        return Recycling(**said) if said else None

    @property
    def plan_hash(self) -> str:
        """The hash of target, policy, items and bin days: plans that do the same have the same hash."""
        content = [self.target_uid, self.collector, self.policy_hash, self.digest]
        content += [f"recycle for {self.recycling.days} days"] if self.recycling else []
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_json(self) -> str:
        """Write the manifest, with its own hash, for people and programs to read."""
        plain = asdict(self)
        plain["made_at"] = format_instant(self.made_at)
        plain["now"] = format_instant(self.now)
        plain["plan_hash"] = self.plan_hash
        plain[_WAVES] = self.batches
        plain["summary"][_BY_BRANCH] = plain["summary"]["by_label"].get(_BRANCH, ())
        plain["seal"] = _seal(plain)
        return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)


def manifest_from_json(text: str) -> Manifest:
    """Read a manifest and check it against its own hash."""
    try:
        plain = json.loads(text)
        sealed = plain.pop("seal") == _seal(plain)
        claimed = plain.pop("plan_hash")
        # The only name of earlier versions, which scripts may read.
        plain.setdefault("batches", plain.pop(_WAVES))
        plain["made_at"] = parse_instant(plain["made_at"])
        plain["now"] = parse_instant(plain["now"])
        plain["summary"] = _summary(plain["summary"], plain["collector"], plain["format"])
        plain["breaker"] = tuple(plain["breaker"])
        plain["warnings"] = tuple(plain["warnings"])
        manifest = Manifest(**plain)
        manifest.recycling  # noqa: B018 - a damaged value must fail here, not in the middle of a run
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise MetadataError(
            f"the plan's manifest is not readable ({type(broken).__name__}: {broken})",
            why="what it allows to be deleted is unknown",
            fix="make a new plan",
        ) from None
    if manifest.format not in _READABLE:
        raise MetadataError(f"the plan has format {manifest.format}", fix="make a new plan")
    if not sealed or manifest.plan_hash != claimed:
        raise MetadataError(
            "the plan's manifest was altered: its seal does not fit its content",
            why="only what was planned and looked at may be deleted",
            fix="make a new plan",
        )
    return manifest


def _seal(plain: dict[str, Any]) -> str:
    """Hash the whole document: the checks at apply rely on its times, counts and snapshot too."""
    text = json.dumps({k: v for k, v in plain.items() if k != "seal"}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _summary(plain: dict[str, Any], collector: str, written: int) -> Summary:
    tallies = {name: _tallies(rows) for name, rows in plain.items() if isinstance(rows, list)}
    branches = tallies.pop(_BY_BRANCH, ())
    by_label = {name: _tallies(rows) for name, rows in plain.get("by_label", {}).items()}
    if written <= _UNTYPED:
        by_label = {_BRANCH: branches} if branches else {}
        tallies |= _by_action(tallies.pop("by_collector", ()), collector)
    return Summary(
        by_label=by_label,
        due=Tally(**plain["due"]),
        held=Tally(**plain["held"]),
        known_objects=plain["known_objects"],
        frees=Tally(**plain["frees"]) if plain.get("frees") else None,
        **tallies,
    )


def _tallies(rows: list[dict[str, Any]]) -> tuple[Tally, ...]:
    return tuple(Tally(**row) for row in rows)


def _by_action(counted: tuple[Tally, ...], collector: str) -> dict[str, tuple[Tally, ...]]:
    """Separate actions from collectors, which earlier versions counted under one name."""
    if not counted:
        return {}
    total = sum(one.objects for one in counted), sum(one.bytes for one in counted)
    if {one.label for one in counted} <= set(collector.split("+")):
        return {"by_collector": counted, "by_action": (Tally(DELETE, *total),)}
    return {"by_collector": (Tally(collector, *total),), "by_action": counted}
