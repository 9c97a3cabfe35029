"""Where a bucket's rules come from, and which buckets are not touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ebbtide.core.errors import BadInput, NotFound, SafetyStop
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3 import context as sources
from ebbtide.targets.s3.context import Source, planned_rules, read_effective_rules
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.s3.stored_rules import BucketRules

SPEC = StoreSpec("s3://b")
RULES = {"Rules": [{"ID": "r", "Status": "Enabled", "Filter": {}, "Expiration": {"Days": 1}}]}


@dataclass
class Bucket:
    """Says of a bucket what no server of ours can be made to say."""

    configuration: dict[str, Any] | None = None
    mfa: bool = False
    spec: StoreSpec = SPEC

    def mfa_delete(self) -> bool:
        """Tell whether a second factor is wanted."""
        return self.mfa

    def versioning(self) -> str:
        """Say how it is versioned."""
        return "Suspended"

    def lifecycle(self) -> dict[str, Any] | None:
        """Give its own rules."""
        return self.configuration


@pytest.fixture
def rules_of(monkeypatch, tmp_path):
    """Read the rules of a bucket."""
    stored = BucketRules(f"sqlite:///{tmp_path}/rules.db")
    stored.put("s3://b", read_configuration(RULES))

    def read(bucket, source=Source.STORED, **how):
        monkeypatch.setattr(sources, "open_bucket", lambda _spec: bucket)
        monkeypatch.setattr(sources, "lakes_around_rules", lambda _spec, _rules: ())
        return read_effective_rules(SPEC, source, stored, **how)

    return read


def test_row_32_a_bucket_that_wants_a_second_factor_is_left_alone(rules_of):
    """S3 takes no lifecycle rules for a bucket with MFA delete, and a run on one stops."""
    with pytest.raises(SafetyStop, match="requires MFA"):
        rules_of(Bucket(mfa=True))


def test_a_plan_keeps_what_it_was_made_from(rules_of):
    """The text of a plan's policy gives back source, rules and versioning, and hashes all of them."""
    stored, own = rules_of(Bucket()), rules_of(Bucket(RULES), Source.BUCKET)

    assert stored == planned_rules(stored.policy)
    assert (Source.STORED, Versioning.SUSPENDED) == (stored.source, stored.versioning)
    assert stored.configuration == own.configuration
    assert stored.policy_hash != own.policy_hash


def test_a_bucket_without_rules_of_its_own(rules_of):
    """To ask a bucket for rules that it has not is S3's 404."""
    with pytest.raises(NotFound, match="NoSuchLifecycleConfiguration"):
        rules_of(Bucket(), Source.BUCKET)


def test_a_location_that_is_not_configured_stops(rules_of):
    """A rule that moves objects to a place that nobody knows here cannot be followed."""
    moves = {"Transitions": [{"Days": 1, "StorageClass": "cold"}]}
    moving = read_configuration([{"Status": "Enabled", "Filter": {}, **moves}], locations=["cold"])
    with pytest.raises(BadInput, match="cold"):
        rules_of(Bucket(), Source.FILE, given=moving)

    known = {"cold": StoreSpec("s3://cold")}

    assert moving == rules_of(Bucket(), Source.FILE, given=moving, locations=known).configuration


def test_a_location_in_the_bucket_is_part_of_what_a_plan_was_made_from(rules_of):
    """A plan that was made before a location came into its bucket may not be applied after that."""
    before = rules_of(Bucket())
    after = rules_of(Bucket(), locations={"near": StoreSpec("s3://b/old")})

    assert after == planned_rules(after.policy)
    assert before.policy_hash != after.policy_hash
    assert before.policy_hash == rules_of(Bucket(), locations={"far": StoreSpec("s3://c/old")}).policy_hash
