"""The kind of target that buckets are: how they are named, opened and spoken of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ebbtide.core.decision import EMPTY_BIN
from ebbtide.core.errors import BadInput
from ebbtide.core.format import plural
from ebbtide.core.manifest import Manifest
from ebbtide.core.words import OBJECTS, Words
from ebbtide.targets.kinds import owned_namespaces
from ebbtide.targets.s3.names import bucket_url
from ebbtide.targets.s3.words import BUCKET as WORDS
from ebbtide.targets.target import Option, PolicySuite, Simulation, TargetKind, Workspace

if TYPE_CHECKING:
    from ebbtide.storage.store import StoreSpec
    from ebbtide.targets.s3.rulebook import BucketRules
    from ebbtide.targets.s3.shop import BucketShop
    from ebbtide.targets.s3.target import BucketTarget

# ruff: noqa: PLC0415 - every command imports this, and few need a bucket

_EVERYTHING = "versions, markers and uploads"


class BucketKind(TargetKind):
    """S3 buckets under lifecycle rules."""

    usage = "s3://BUCKET"
    plural = "buckets"
    planned_by = "its lifecycle rules"
    world = "bucket"
    options = (
        Option(
            ("--rules-from",),
            "Whose rules: 'stored' are Ebbtide's, 'bucket' those that S3 has.",
            is_flag=False,
            choices=("stored", "bucket", "file"),
            explains=True,
        ),
        Option(
            ("--rules",), "A file with the rules; nothing is stored (s3://...).", is_flag=False, explains=True
        ),
        Option(
            ("--inventory",),
            "Read this S3 Inventory report (manifest.json), do not list (s3://...).",
            is_flag=False,
        ),
    )

    def url(self, text: str) -> str:
        """Return the one spelling of a bucket's URL."""
        return bucket_url(text)

    def open(self, url: str, workspace: Workspace) -> BucketTarget:
        """Open a bucket."""
        from ebbtide.targets.s3.target import BucketTarget

        return BucketTarget(bucket_shop(workspace, url), workspace.settings)

    def namespaces(self, workspace: Workspace) -> Mapping[str, str]:  # noqa: ARG002 (a bucket is its users')
        """Own nothing: a bucket belongs to its users."""
        return {}

    def words(self, plan: Manifest) -> Words:
        """Return the words for a plan: what is in the bin are objects."""
        return OBJECTS if plan.collector == EMPTY_BIN else WORDS

    def described(self, plan: Manifest) -> list[str]:
        """Say what was read, and what no rule reaches."""
        read, lines = plan.snapshot, []
        if "versioning" in read:
            listed = plural(plan.summary.known_objects, "version, marker or upload", _EVERYTHING)
            lines.append(f"read {listed} that rules can match; versioning is {read['versioning'].lower()}")
        if "left_out" in read:
            lines.append(f"left out what lies below {read['left_out']}: no rule is about it alone")
        if "lakes" in read:
            lines.append(f"holds what belongs to {read['lakes']}")
        return lines

    def simulation(self) -> Simulation:
        """Return the simulation of bucket worlds."""
        from ebbtide.targets.s3.policy_suite import BucketSimulation

        return BucketSimulation()

    def policy_suite(self) -> PolicySuite:
        """Return the tests of policies."""
        from ebbtide.targets.s3.policy_suite import BucketSuite

        return BucketSuite()


KIND = BucketKind()


def bucket_rules(workspace: Workspace) -> BucketRules:
    """Return the lifecycle rules of buckets, which live beside the ledger."""
    from ebbtide.targets.s3.rulebook import BucketRules

    # The ledger is opened first, so that the database is known to be of this root's kind.
    clock = workspace.context.clock
    url = workspace.settings.database("ledger")
    return workspace.shared("bucket rules", lambda: BucketRules(url, clock=clock))


def bucket_shop(workspace: Workspace, bucket: str) -> BucketShop:
    """Return what runs on a bucket work with."""
    from ebbtide.storage.store import StoreSpec
    from ebbtide.targets.s3.shop import BucketShop

    settings, context = workspace.settings, workspace.context
    spec = _admitted(workspace, StoreSpec(bucket_url(bucket), settings.store.options()))
    locations = {name: _admitted(workspace, one) for name, one in settings.locations().items()}
    return BucketShop(
        spec,
        bucket_rules(workspace),
        context.ledger,
        context.root,
        context.clock,
        locations,
        owned_namespaces(workspace),
    )


def _admitted(workspace: Workspace, spec: StoreSpec) -> StoreSpec:
    """Return a store as this root may open it; a rehearsal refuses here, and again where it is opened."""
    from ebbtide.storage.network import LOCAL_ONLY, check_endpoint

    if not workspace.is_rehearsal or not spec.url.startswith("s3://"):
        return spec
    check_endpoint(spec.options.get("endpoint", ""))
    return replace(spec, options={**spec.options, LOCAL_ONLY: "yes"})


def check_inventory(source: str) -> None:
    """Refuse an S3 Inventory report on this machine that is not there."""
    if "://" not in source and not Path(source).exists():
        raise BadInput(f"there is no report at {source}", fix="name its manifest.json, or the folder with it")
