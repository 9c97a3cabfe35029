"""Where a bucket's rules come from: Ebbtide's own list, the bucket itself, or a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ebbtide.core.errors import BadInput, NotFound, SafetyStop
from ebbtide.storage.s3_bucket import VersionedBucket, open_bucket
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.enclosed import Enclosed, enclosed_locations
from ebbtide.targets.s3.model import Protected, Versioning
from ebbtide.targets.s3.protected import known_lakes, lakes_around_rules, together
from ebbtide.targets.s3.rulebook import BucketRules
from ebbtide.targets.s3.rules.configuration import Configuration
from ebbtide.targets.s3.rules.document import read_checked, read_configuration, write_json
from ebbtide.targets.s3.rules.storage_classes import CHEAPEST_FIRST


class Source(StrEnum):
    """Who says what the rules of a bucket are."""

    STORED = "stored"
    BUCKET = "bucket"
    FILE = "file"


@dataclass(frozen=True)
class Sourced:
    """The rules of a bucket, who says so, and whether it keeps versions."""

    configuration: Configuration
    source: Source
    versioning: Versioning
    enclosed: tuple[Enclosed, ...] = field(default=())
    """The locations inside the bucket, which only rules that name them are about."""
    protected: tuple[Protected, ...] = field(default=())
    """The lakes inside the bucket, which no rule reaches, as far as no listing is needed to find them."""

    @property
    def policy(self) -> str:
        """The text that a plan keeps: what it was made from."""
        plain: dict[str, Any] = {
            "source": str(self.source),
            "versioning": str(self.versioning),
            "configuration": write_json(self.configuration),
        }
        if self.enclosed:
            plain["enclosed"] = [[one.name, one.prefix] for one in self.enclosed]
        if self.protected:
            plain["protected"] = [[one.prefix, one.holder] for one in self.protected]
        return json.dumps(plain, sort_keys=True, ensure_ascii=False)

    @property
    def policy_hash(self) -> str:
        """A hash of the text: another source, other rules or another versioning is another policy."""
        return hashlib.sha256(self.policy.encode()).hexdigest()


def sourced_rules(
    spec: StoreSpec,
    source: Source,
    stored: BucketRules,
    *,
    given: Configuration | None = None,
    locations: Mapping[str, StoreSpec] | None = None,
    lakes: Mapping[str, str] | None = None,
) -> Sourced:
    """Read the rules and the versioning of a bucket; one that lifecycle must not touch stops here."""
    bucket = open_bucket(spec)
    if bucket.mfa_delete():
        raise SafetyStop(
            f"{spec.url} deletes versions only with a second factor",
            why="S3 allows no lifecycle rules on such a bucket, and nor does Ebbtide",
            fix="switch MFA delete off, or leave the bucket alone",
        )
    known = locations or {}
    configuration = given if given is not None else _read(bucket, source, stored, known)
    _check_locations(configuration, known)
    enclosed = enclosed_locations(spec, known)
    protected = together(known_lakes(spec, lakes or {}), lakes_around_rules(spec, configuration))
    return Sourced(configuration, source, Versioning(bucket.versioning()), enclosed, protected)


def _check_locations(configuration: Configuration, locations: Collection[str]) -> None:
    known = {*CHEAPEST_FIRST, *locations}
    for rule in configuration.enabled:
        goals = {move.storage_class for move in rule.transitions}
        goals |= {move.storage_class for move in rule.noncurrent_transitions}
        for goal in sorted(goals - known):
            raise BadInput(
                f"rule {rule.id!r} moves objects to {goal!r}, which is not known here",
                why="it is no storage class of S3, and no location of that name is configured",
                fix=f"add [bucket.locations.{goal}] to ebbtide.toml, or correct the rule",
            )


def _read(
    bucket: VersionedBucket, source: Source, stored: BucketRules, locations: Collection[str]
) -> Configuration:
    if source is Source.STORED:
        return stored.get(bucket.spec.url)
    found = bucket.lifecycle()
    if found is None:
        raise NotFound(
            f"{bucket.spec.url} has no lifecycle configuration (NoSuchLifecycleConfiguration)",
            fix="set one, or use Ebbtide's own: 'ebb bucket rules set'",
        )
    return read_configuration(found, locations=locations)


def planned_rules(policy: str) -> Sourced:
    """Read back what a plan was made from; a location that is no longer known is still one of its words."""
    plain: dict[str, Any] = json.loads(policy)
    configuration = read_checked(plain["configuration"])
    enclosed = tuple(Enclosed(*one) for one in plain.get("enclosed", ()))
    protected = tuple(Protected(*one) for one in plain.get("protected", ()))
    source, versioning = Source(plain["source"]), Versioning(plain["versioning"])
    return Sourced(configuration, source, versioning, enclosed, protected)
