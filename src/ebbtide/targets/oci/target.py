"""A registry as a target."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ebbtide.core.decision import EMPTY_BIN
from ebbtide.core.display import Explanation
from ebbtide.core.manifest import Manifest
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.collector import Collector, Identity
from ebbtide.state.users import current_user
from ebbtide.targets.oci.bin.image_bin import ImageBin
from ebbtide.targets.oci.client.address import repository_of
from ebbtide.targets.oci.context import RegistryContext
from ebbtide.targets.oci.purge.collector import PurgeCollector
from ebbtide.targets.oci.purge.explanation import explained_ref, explanation, ref_in
from ebbtide.targets.oci.purge.identity import identify
from ebbtide.targets.oci.purge.policy import DeleteRequest, PurgePolicy
from ebbtide.targets.oci.records.model import Role
from ebbtide.targets.oci.running_source import check_choice, read_source, record_choice
from ebbtide.targets.target import Options, Workspace


@dataclass(frozen=True)
class RegistryTarget:
    """A registry with its collectors: the purge, and its bin."""

    context: RegistryContext
    workspace: Workspace

    @property
    def identity(self) -> Identity:
        """Which registry it is."""
        return self.context.identity

    def collector(self, options: Options, now: datetime) -> Collector:
        """Return the collector of expired images."""
        return self.purge(now, options.get("running"), adopt=bool(options.get("adopt")))

    def purge(
        self,
        now: datetime,
        running: str | None = None,
        request: DeleteRequest | None = None,
        *,
        adopt: bool = False,
    ) -> PurgeCollector:
        """Return the collector of expired images, or of requested deletes; a doubt stops here."""
        source = check_choice(self.context, running)
        self._check_adopter(adopt=adopt)
        for warning in identify(self.context, current_user(), "make a plan", adopt=adopt):
            self.workspace.warn(warning)
        policy = self.purge_policy(now, running, request).dated(now)
        policy.check_running(now)
        self.check_ready()
        record_choice(self.context, running)
        return PurgeCollector(self.context, policy, source, adopt=adopt)

    def purge_policy(
        self, now: datetime, running: str | None = None, request: DeleteRequest | None = None
    ) -> PurgePolicy:
        """
        Return what decides a purge: the stored policies, and the running images.

        For a plan as of another time, running images are taken to be as old at that time as they are today.
        """
        settings = self.workspace.settings.registry
        source = running or settings.running
        return PurgePolicy(
            self.context.records.policies(self.context.uid),
            None if source is None else read_source(self.context, source, lambda: now),
            timedelta(hours=settings.oldest_scan_hours),
            request,
        )

    def check_ready(self) -> None:
        """Raise if the registry does not answer."""
        with self.context.opened():
            pass

    def _check_adopter(self, *, adopt: bool) -> None:
        """Refuse, before Spark starts, a user who wants to adopt a registry and may not."""
        records, uid = self.context.records, self.context.uid
        if adopt and not records.adoption(uid).covers(repository_of(self.context.spec.url)):
            records.require(uid, Role.POLICY_WRITER, current_user(), "adopt the registry", "adoption")

    def explain(self, item: str, options: Options, now: datetime) -> Explanation:
        """Explain an image, as of the last scan."""
        policy = self.purge_policy(now, options.get("running"))
        return explanation(explained_ref(self.context, ref_in(self.context.spec.url, item), policy, now))

    def collector_of(self, plan: Manifest) -> Collector:
        """Return the collector that made a plan."""
        if plan.collector == EMPTY_BIN:
            return ExpiredItems(self.bin())
        return PurgeCollector.of_plan(self.context, plan)

    def bin(self) -> ImageBin:
        """Open the bins of the registry."""
        return ImageBin(self.context, self.workspace.warn)
