"""
Which source of running images counts for a registry: the one that is recorded with it.

The configuration belongs to the user of a command, and a variable or another file replaces it. So the
configured source is recorded with the registry at its first plan. A plan or apply that would use another one,
or none, needs the role: with a source that lists nothing, every running image could be purged.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from ebbtide.core.instant import Clock
from ebbtide.state.users import current_user
from ebbtide.storage.network import check_loopback
from ebbtide.targets.oci.context import RegistryContext
from ebbtide.targets.oci.model import RunningImages
from ebbtide.targets.oci.records.model import Role
from ebbtide.targets.oci.running_source import RunningSource, is_cluster, named_source, same_source


def standing_source(shop: RegistryContext) -> str | None:
    """Return the source that plans of a registry must use: the recorded one, else the configured one."""
    recorded = shop.records.recorded_source(shop.uid)
    if recorded is None or recorded.name is None or same_source(recorded.name, shop.running):
        # The configured address may have what the recorded name leaves out, such as a password.
        return shop.running
    return recorded.name


def check_choice(shop: RegistryContext, given: str | None) -> RunningSource:
    """
    Return the source that a plan uses, `given` with the command or else configured, and who chose it.

    Raises Forbidden, and logs it, if that differs from the registry's and the user lacks the role.
    """
    user, standing = current_user(), standing_source(shop)
    if given is None:
        shop.records.check_source(shop.uid, named_source(shop.running), user)
    elif standing is not None and not same_source(given, standing):
        what = f"plan with running images from {named_source(given)} instead of {named_source(standing)}"
        shop.records.require_granted(shop.uid, Role.IMAGE_WRITER, user, what)
    return RunningSource(named_source(given or shop.running), user)


def record_choice(shop: RegistryContext, given: str | None) -> None:
    """
    Record the configured source with the registry, once a plan has read it.

    A source that was given with the command counts for that plan only.
    """
    if given is None or shop.records.recorded_source(shop.uid) is None:
        shop.records.record_source(shop.uid, named_source(shop.running), current_user())


def applied_source(shop: RegistryContext, planned: str | None) -> str | None:
    """Return the source to ask again if an applied plan used another one; None if none is needed."""
    standing = standing_source(shop)
    if standing is None or same_source(standing, planned):
        return None
    return None if shop.records.holds(shop.uid, Role.IMAGE_WRITER, current_user()) else standing


def read_source(shop: RegistryContext, source: str, clock: Clock) -> RunningImages:
    """Read running images from a source; a rehearsal asks no cluster that is not on this machine."""
    from ebbtide.targets.oci.running import running_from  # noqa: PLC0415 (httpx takes a while to load)

    if shop.ledger.rehearsal and is_cluster(source):
        host = urlsplit(source).hostname or ""
        check_loopback(host, f"the cluster at {host or 'an unnamed host'}")
    return running_from(source, clock)
