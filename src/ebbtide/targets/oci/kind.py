"""The kind of target for container registries and folders of image layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ebbtide.core.decision import Outcome
from ebbtide.core.display import SET_ASIDE, Words
from ebbtide.core.errors import BadInput
from ebbtide.core.format import count, human_bytes, plural
from ebbtide.core.manifest import Manifest
from ebbtide.targets.target import BinReference, Option, PolicySuite, Simulation, TargetKind, Workspace

REGISTRY_WORDS = Words(
    item="item",
    known="Known tags and manifests",
    acted="purged",
    change="purge",
    would="Would purge",
    did="Purged",
    goes="What would go",
    planned="What was planned to go",
    part="Would go",
    planned_part="Planned to go",
    subject="Image, action and tag",
    policy="The policies",
    has_references=False,
    actions={
        "recycle": ("recycle", "tag or manifest"),
        "delete": ("delete", "tag or manifest"),
        "empty": ("remove from the bin", "image"),
    },
    meanings={
        Outcome.DELETED: "Gone for good: nothing of it is in the recycle bin.",
        Outcome.RECYCLED: SET_ASIDE,
        Outcome.ABSENT: "Was gone already when its turn came. Nothing to do.",
        Outcome.CHANGED: "Needed again, or not what it was when the plan was made, so it was left alone.",
        Outcome.DENIED: "Refused: not permitted, or the registry cannot do it. As it was; see its reason.",
        Outcome.FAILED: "The registry failed, even after retries. Apply again.",
        Outcome.NOT_REACHED: "Not tried, because the registry had failed at others. As it was; apply again.",
    },
)


if TYPE_CHECKING:
    from ebbtide.targets.oci.context import RegistryContext
    from ebbtide.targets.oci.records.records import ImageRecords
    from ebbtide.targets.oci.target import RegistryTarget

# ruff: noqa: PLC0415 - every command imports this, and few need a registry

PURGE = "registry"
"""The name of the collector of expired images."""
NO_RULE_MATCHED = "no rule matched"
"""A second rule of items that fall under a policy because no rule matched, so that reports count them."""


class RegistryKind(TargetKind):
    """Container registries under policies."""

    usage = "oci://HOST[/REPO]"
    plural = "registries"
    planned_by = "its policies"
    world = "registry"
    options = (
        Option(
            ("--running",),
            "What runs: a file (kubectl get pods -A -o json, or a list) or a cluster, https://HOST (oci:).",
            is_flag=False,
        ),
        Option(("--adopt",), "Confirm what the policies do to a registry that was never planned (oci:)."),
    )

    def url(self, text: str) -> str:
        """Return the normal form of a registry's address."""
        from ebbtide.targets.oci.client.address import parse_address

        return str(parse_address(text))

    def open(self, url: str, workspace: Workspace) -> RegistryTarget:
        """Open a registry."""
        from ebbtide.targets.oci.target import RegistryTarget

        return RegistryTarget(registry_context(workspace, url), workspace)

    def namespaces(self, workspace: Workspace) -> Mapping[str, str]:  # noqa: ARG002 (nothing is known)
        """Own nothing that another target could reach."""
        return {}

    def words(self, plan: Manifest) -> Words:  # noqa: ARG002 (always the same)
        """Return the words for a plan."""
        return REGISTRY_WORDS

    def described(self, plan: Manifest) -> list[str]:
        """Describe the scan, the source of running images, and what is due for lack of a rule."""
        read, lines = plan.snapshot, []
        if "manifests_read" in read:
            tags, manifests = plural(read["tags"], "tag"), plural(read["manifests"], "manifest")
            places = plural(read["repositories"], "repository", "repositories")
            new = count(read["manifests_read"])
            lines.append(f"scanned {tags} and {manifests} of {places}; {new} were new")
        if "renewed" in read:
            lines.append(f"renewed the policies of {plural(read['renewed'], 'running image')}")
        if read.get("running_source") is not None:
            by = read["running_source_by"]
            lines.append(f"running images from {read['running_source']}, as {by} planned")
        if "adopted_by" in read:
            lines.append(f"adopted by {read['adopted_by']}: the log has what the policies do")
        if plan.collector == PURGE:
            alone = next((tally for tally in plan.summary.by_rule if tally.label == NO_RULE_MATCHED), None)
            said = "none" if alone is None else f"{count(alone.objects)} ({human_bytes(alone.bytes)})"
            lines.append(f"due only because no rule matched: {said}")
        return lines

    def check_bin_setting(self, text: str) -> None:
        """Refuse: policies decide how long images stay in the bin."""
        raise BadInput(
            f"for {text} policies say what is recycled, and for how long",
            fix="assign a policy with 'recycle' (see 'ebb image policy')",
        )

    def open_bin(self, text: str, workspace: Workspace) -> BinReference:
        """Open the bins of a whole registry or of one repository, or find the image that is named."""
        from ebbtide.targets.oci.bin.entry import is_bin, original_of
        from ebbtide.targets.oci.bin.image_bin import ImageBin
        from ebbtide.targets.oci.client.address import image_ref, is_image, repository_ref

        items: tuple[str, ...] = ()
        if is_image(text):
            image = image_ref(text)
            registry, repository, items = image.registry, image.repository, (image.name,)
        else:
            registry, repository = repository_ref(text)
        if is_bin(repository):
            repository = original_of(repository)
        context = registry_context(workspace, registry)
        return BinReference(ImageBin(context, workspace.warn, repository or None), items)

    def simulation(self) -> Simulation:
        """Return the simulation of registry worlds."""
        from ebbtide.targets.oci.policy_suite import RegistrySimulation

        return RegistrySimulation()

    def policy_suite(self) -> PolicySuite:
        """Return the tests of policies."""
        from ebbtide.targets.oci.policy_suite import RegistrySuite

        return RegistrySuite()


KIND = RegistryKind()


def image_records(workspace: Workspace) -> ImageRecords:
    """Return the records of registries, beside the ledger: policies, marks, the log, roles."""
    from ebbtide.targets.oci.records.records import ImageRecords

    # The ledger is opened first, so that the database is known to belong to this kind of root.
    clock = workspace.context.clock
    url, rehearsal = workspace.settings.database("ledger"), workspace.is_rehearsal
    return workspace.shared("image records", lambda: ImageRecords(url, clock=clock, rehearsal=rehearsal))


def registry_context(workspace: Workspace, target: str) -> RegistryContext:
    """Return what runs on a registry work with; one at an unknown name is asked who it is."""
    from ebbtide.storage.network import LOCAL_ONLY, check_loopback
    from ebbtide.targets.oci.client.address import LayoutPath, parse_address
    from ebbtide.targets.oci.client.registry import RegistrySpec
    from ebbtide.targets.oci.context import RegistryContext
    from ebbtide.targets.oci.purge.identity import owner_of

    address, own, settings = parse_address(target), workspace.context, workspace.settings.registry
    options = {} if isinstance(address, LayoutPath) else settings.options()
    if workspace.is_rehearsal and not isinstance(address, LayoutPath):
        check_loopback(address.name, f"the registry {address.host}")
        options[LOCAL_ONLY] = "yes"
    spec, records = RegistrySpec(str(address), options), image_records(workspace)
    context = RegistryContext(own.root, own.ledger, own.clock, spec, records, settings.running)
    owners = workspace.shared("registry owners", _Owners)
    if context.name not in owners.known:
        owners.known[context.name] = owner_of(context)
    return replace(context, owner=owners.known[context.name])


class _Owners:
    """The registries that were found at names in this command: each is asked once."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def close(self) -> None:
        """Do nothing: nothing is open."""
