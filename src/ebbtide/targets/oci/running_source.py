"""
The source of running images: which one a plan used, who chose it, and which one counts for a registry.

The configuration belongs to the user of a command, and a variable or another file replaces it. So the
configured source is recorded with the registry at its first plan. A plan or apply that would use another one,
or none, needs the role: with a source that lists nothing, every running image could be purged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ebbtide.core.instant import Clock
from ebbtide.state.users import current_user
from ebbtide.storage.network import check_loopback
from ebbtide.targets.oci.model import RunningImages
from ebbtide.targets.oci.records.model import Role

if TYPE_CHECKING:
    from ebbtide.targets.oci.context import RegistryContext

_SOURCE, _BY = "running_source", "running_source_by"


@dataclass(frozen=True)
class RunningSource:
    """A source of running images by its name, None for no source, and the user who planned with it."""

    name: str | None
    by: str

    def plain(self) -> dict[str, Any]:
        """Return it as the manifest of a plan has it."""
        return {_SOURCE: self.name, _BY: self.by}


def planned_source(snapshot: dict[str, Any]) -> str | None:
    """Return the source that a plan used, from its manifest; None if it used none, or does not say."""
    found = snapshot.get(_SOURCE)
    return None if found is None else str(found)


def is_cluster(source: str) -> bool:
    """Return True if a source is the API of a cluster and not a file."""
    return source.startswith(("http://", "https://"))


def source_kind(source: str | None) -> str:
    """Return the kind of a source: none, cluster or file."""
    return "none" if source is None else "cluster" if is_cluster(source) else "file"


def named_source(source: str | None) -> str | None:
    """Return the name of a source as `source_name` does; None if there is none."""
    return None if source is None else source_name(source)


def source_name(source: str) -> str:
    """
    Return one name for all spellings of a source: a file by its path, a cluster by its address.

    The name is written into plans and logs, so a password in an address is left out.
    """
    if not is_cluster(source):
        return str(Path(source).resolve())
    parts = urlsplit(source)
    host = (parts.hostname or "").lower()
    default = {"http": 80, "https": 443}[parts.scheme]
    try:
        port = parts.port or default
    except ValueError:
        port = default
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def same_source(one: str | None, other: str | None) -> bool:
    """Return True if two sources, either of which may be none, are the same."""
    return named_source(one) == named_source(other)


def standing_source(context: RegistryContext) -> str | None:
    """Return the source that plans of a registry must use: the recorded one, else the configured one."""
    recorded = context.records.recorded_source(context.uid)
    if recorded is None or recorded.name is None or same_source(recorded.name, context.running):
        # The configured address may have what the recorded name leaves out, such as a password.
        return context.running
    return recorded.name


def check_choice(context: RegistryContext, given: str | None) -> RunningSource:
    """
    Return the source that a plan uses, `given` with the command or else configured, and who chose it.

    Raises Forbidden, and logs it, if that differs from the registry's and the user lacks the role.
    """
    user, standing = current_user(), standing_source(context)
    if given is None:
        context.records.check_source(context.uid, named_source(context.running), user)
    elif standing is not None and not same_source(given, standing):
        what = f"plan with running images from {named_source(given)} instead of {named_source(standing)}"
        context.records.require_granted(context.uid, Role.IMAGE_WRITER, user, what)
    return RunningSource(named_source(given or context.running), user)


def record_choice(context: RegistryContext, given: str | None) -> None:
    """
    Record the configured source with the registry, once a plan has read it.

    A source that was given with the command counts for that plan only.
    """
    if given is None or context.records.recorded_source(context.uid) is None:
        context.records.record_source(context.uid, named_source(context.running), current_user())


def applied_source(context: RegistryContext, planned: str | None) -> str | None:
    """Return the source to ask again if an applied plan used another one; None if none is needed."""
    standing = standing_source(context)
    if standing is None or same_source(standing, planned):
        return None
    return None if context.records.holds(context.uid, Role.IMAGE_WRITER, current_user()) else standing


def read_source(context: RegistryContext, source: str, clock: Clock) -> RunningImages:
    """Read running images from a source; a rehearsal asks no cluster that is not on this machine."""
    from ebbtide.targets.oci.running import running_from  # noqa: PLC0415 (httpx takes a while to load)

    if context.ledger.rehearsal and is_cluster(source):
        host = urlsplit(source).hostname or ""
        check_loopback(host, f"the cluster at {host or 'an unnamed host'}")
    return running_from(source, clock)
