"""The kind of target for S3 buckets: URLs, options, and words for plans and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ebbtide.core.decision import EMPTY_BIN, Outcome
from ebbtide.core.display import OBJECTS, SET_ASIDE, Words
from ebbtide.core.errors import BadInput
from ebbtide.core.format import plural
from ebbtide.core.manifest import Manifest
from ebbtide.targets.kinds import owned_namespaces
from ebbtide.targets.s3.model import Action, bucket_url
from ebbtide.targets.target import Option, PolicySuite, Simulation, TargetKind, Workspace

if TYPE_CHECKING:
    from ebbtide.storage.store import StoreSpec
    from ebbtide.targets.s3.context import BucketContext
    from ebbtide.targets.s3.stored_rules import BucketRules
    from ebbtide.targets.s3.target import BucketTarget

# ruff: noqa: PLC0415 - every command imports this, and few need a bucket

_EVERYTHING = "versions, markers and uploads"


WORDS = Words(
    item="item",
    known="Known versions, markers and uploads",
    acted="acted on",
    change="change",
    would="Would act on",
    did="Acted on",
    goes="What would be done",
    planned="What was planned to be done",
    part="Would be acted on",
    planned_part="Planned to be acted on",
    subject="Key, action and version",
    policy="The rules",
    has_references=False,
    frees_apart=True,
    actions={
        Action.EXPIRE: ("expire", "object"),
        Action.DELETE_VERSION: ("delete", "noncurrent version"),
        Action.REMOVE_DELETE_MARKER: ("remove", "delete marker"),
        Action.TRANSITION: ("move", "version"),
        Action.ABORT_UPLOAD: ("abort", "upload"),
    },
    meanings={
        Outcome.DELETED: "Gone for good, and its space is free.",
        Outcome.HIDDEN: "A delete marker hides it. All its bytes are still stored: nothing was freed.",
        Outcome.MOVED: "In another storage class or location now.",
        Outcome.RECYCLED: SET_ASIDE,
        Outcome.ABSENT: "Was done or gone already when its turn came. Nothing to do.",
        Outcome.CHANGED: "Not what it was when the plan was made, so it was left alone.",
        Outcome.DENIED: "Refused: it is not permitted, or cannot be done. As it was; see its reason.",
        Outcome.FAILED: "The store failed, even after retries. As it was; apply again.",
        Outcome.NOT_REACHED: "Not tried, because others had failed. As it was; apply again.",
    },
)


class BucketKind(TargetKind):
    """S3 buckets under lifecycle rules."""

    usage = "s3://BUCKET"
    plural = "buckets"
    planned_by = "its lifecycle rules"
    world = "bucket"
    options = (
        Option(
            ("--rules-from",),
            "Source of the rules: 'stored' (by Ebbtide), 'bucket' (the bucket's own) or 'file'.",
            is_flag=False,
            choices=("stored", "bucket", "file"),
            explains=True,
        ),
        Option(
            ("--rules",),
            "Plan with the rules in this file; they are not stored (s3://...).",
            is_flag=False,
            explains=True,
        ),
        Option(
            ("--inventory",),
            "Read this S3 Inventory report (manifest.json) instead of listing (s3://...).",
            is_flag=False,
        ),
    )

    def url(self, text: str) -> str:
        """Return the canonical URL of a bucket."""
        return bucket_url(text)

    def open(self, url: str, workspace: Workspace) -> BucketTarget:
        """Open a bucket."""
        from ebbtide.targets.s3.target import BucketTarget

        return BucketTarget(bucket_context(workspace, url), workspace.settings)

    def namespaces(self, workspace: Workspace) -> Mapping[str, str]:  # noqa: ARG002 (part of the protocol)
        """Return no namespaces: a bucket belongs to its users."""
        return {}

    def words(self, plan: Manifest) -> Words:
        """Return the words for a plan; the items of a bin are objects."""
        return OBJECTS if plan.collector == EMPTY_BIN else WORDS

    def described(self, plan: Manifest) -> list[str]:
        """Describe what was read, and what no rule applies to."""
        read, lines = plan.snapshot, []
        if "versioning" in read:
            listed = plural(plan.summary.known_objects, "version, marker or upload", _EVERYTHING)
            lines.append(f"read {listed} that rules can match; versioning is {read['versioning'].lower()}")
        if "left_out" in read:
            lines.append(f"left out {read['left_out']}: no rule is only for it")
        if "lakes" in read:
            lines.append(f"holds everything in {read['lakes']}")
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
    """Return the stored lifecycle rules of buckets, which are in the database of the ledger."""
    from ebbtide.targets.s3.stored_rules import BucketRules

    # The context opens the ledger first, which checks that the database belongs to this state root.
    clock = workspace.context.clock
    url = workspace.settings.database("ledger")
    return workspace.shared("bucket rules", lambda: BucketRules(url, clock=clock))


def bucket_context(workspace: Workspace, bucket: str) -> BucketContext:
    """Return the context of a bucket."""
    from ebbtide.storage.store import StoreSpec
    from ebbtide.targets.s3.context import BucketContext

    settings, context = workspace.settings, workspace.context
    spec = _admitted(workspace, StoreSpec(bucket_url(bucket), settings.store.options()))
    locations = {name: _admitted(workspace, one) for name, one in settings.locations().items()}
    return BucketContext(
        spec,
        bucket_rules(workspace),
        context.ledger,
        context.root,
        context.clock,
        locations,
        owned_namespaces(workspace),
    )


def _admitted(workspace: Workspace, spec: StoreSpec) -> StoreSpec:
    """Return the spec of a store; a rehearsal allows only local endpoints, here and when it is opened."""
    from ebbtide.storage.network import LOCAL_ONLY, check_endpoint

    if not workspace.is_rehearsal or not spec.url.startswith("s3://"):
        return spec
    check_endpoint(spec.options.get("endpoint", ""))
    return replace(spec, options={**spec.options, LOCAL_ONLY: "yes"})


def check_inventory(source: str) -> None:
    """Raise BadInput if the local path of an S3 Inventory report does not exist."""
    if "://" not in source and not Path(source).exists():
        raise BadInput(f"there is no report at {source}", fix="give the path of its manifest.json or folder")
