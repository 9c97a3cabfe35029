"""
The context of a bucket: how runs reach it, its rules and where they come from, and the state they work with.

Rules are stored by Ebbtide, read from the bucket itself, or given in a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ebbtide.core.errors import BadInput, NotFound, SafetyStop
from ebbtide.core.instant import Clock
from ebbtide.engine.collector import Context, Identity
from ebbtide.state.runs import Ledger
from ebbtide.storage.s3_bucket import VersionedBucket, open_bucket
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.model import Protected, Versioning
from ebbtide.targets.s3.nested import (
    NestedLocation,
    known_lakes,
    lakes_around_rules,
    merge_protected,
    nested_locations,
)
from ebbtide.targets.s3.rules.configuration import Configuration
from ebbtide.targets.s3.rules.document import read_checked, read_configuration, write_json
from ebbtide.targets.s3.rules.storage_classes import CHEAPEST_FIRST
from ebbtide.targets.s3.stored_rules import BucketRules


class Source(StrEnum):
    """Where the rules of a bucket come from."""

    STORED = "stored"
    BUCKET = "bucket"
    FILE = "file"


@dataclass(frozen=True)
class EffectiveRules:
    """The rules that are in force for a bucket, their source, and the versioning of the bucket."""

    configuration: Configuration
    source: Source
    versioning: Versioning
    nested: tuple[NestedLocation, ...] = field(default=())
    """The locations inside the bucket; only rules whose prefix is inside them apply there."""
    protected: tuple[Protected, ...] = field(default=())
    """The lakes inside the bucket that were found without a listing. No rule applies there."""

    @property
    def policy(self) -> str:
        """The text that a plan keeps. Its keys are a file format: `enclosed` are the nested locations."""
        plain: dict[str, Any] = {
            "source": str(self.source),
            "versioning": str(self.versioning),
            "configuration": write_json(self.configuration),
        }
        if self.nested:
            plain["enclosed"] = [[one.name, one.prefix] for one in self.nested]
        if self.protected:
            plain["protected"] = [[one.prefix, one.holder] for one in self.protected]
        return json.dumps(plain, sort_keys=True, ensure_ascii=False)

    @property
    def policy_hash(self) -> str:
        """The hash of the text; it changes with the source, the rules and the versioning."""
        return hashlib.sha256(self.policy.encode()).hexdigest()


def read_effective_rules(
    spec: StoreSpec,
    source: Source,
    stored: BucketRules,
    *,
    given: Configuration | None = None,
    locations: Mapping[str, StoreSpec] | None = None,
    lakes: Mapping[str, str] | None = None,
) -> EffectiveRules:
    """Read the rules and the versioning of a bucket; raise SafetyStop if it needs MFA to delete."""
    bucket = open_bucket(spec)
    if bucket.mfa_delete():
        raise SafetyStop(
            f"{spec.url} requires MFA to delete versions",
            why="S3 does not apply lifecycle rules to such a bucket, and neither does Ebbtide",
            fix="switch MFA delete off, or leave the bucket alone",
        )
    known = locations or {}
    configuration = given if given is not None else _read(bucket, source, stored, known)
    _check_locations(configuration, known)
    nested = nested_locations(spec, known)
    protected = merge_protected(known_lakes(spec, lakes or {}), lakes_around_rules(spec, configuration))
    return EffectiveRules(configuration, source, Versioning(bucket.versioning()), nested, protected)


def _check_locations(configuration: Configuration, locations: Collection[str]) -> None:
    known = {*CHEAPEST_FIRST, *locations}
    for rule in configuration.enabled:
        goals = {move.storage_class for move in rule.transitions}
        goals |= {move.storage_class for move in rule.noncurrent_transitions}
        for goal in sorted(goals - known):
            raise BadInput(
                f"rule {rule.id!r} moves objects to {goal!r}, which is unknown",
                why="it is neither a storage class of S3 nor a configured location",
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


def planned_rules(policy: str) -> EffectiveRules:
    """Read the rules that a plan was made from; its locations may have been removed since."""
    plain: dict[str, Any] = json.loads(policy)
    configuration = read_checked(plain["configuration"])
    nested = tuple(NestedLocation(*one) for one in plain.get("enclosed", ()))
    protected = tuple(Protected(*one) for one in plain.get("protected", ()))
    source, versioning = Source(plain["source"]), Versioning(plain["versioning"])
    return EffectiveRules(configuration, source, versioning, nested, protected)


@dataclass(frozen=True)
class BucketContext:
    """What runs on a bucket work with: its store, its rules, the ledger and the state root."""

    spec: StoreSpec
    rules: BucketRules
    ledger: Ledger
    root: Path
    clock: Clock
    locations: Mapping[str, StoreSpec] = field(default_factory=dict)
    """The locations that transitions can go to besides storage classes, by the names that rules use."""
    lakes: Mapping[str, str] = field(default_factory=dict)
    """The namespaces of the repositories of the catalog by name, in this bucket or elsewhere."""

    @property
    def context(self) -> Context:
        """The state that runs on the bucket share with other targets."""
        return Context(self.root, self.ledger, self.clock)

    @property
    def identity(self) -> Identity:
        """The identity of the bucket."""
        return Identity(self.spec.url, self.uid, self.spec.url)

    @property
    def uid(self) -> str:
        """The id of the bucket for locks and runs; two servers may have buckets of the same name."""
        endpoint = self.spec.options.get("endpoint", "")
        return hashlib.sha256(f"{endpoint} {self.spec.url}".encode()).hexdigest()[:32]

    def effective_rules(self, source: Source, given: Configuration | None = None) -> EffectiveRules:
        """Read the rules that are in force, and the versioning of the bucket."""
        return read_effective_rules(
            self.spec, source, self.rules, given=given, locations=self.locations, lakes=self.lakes
        )
