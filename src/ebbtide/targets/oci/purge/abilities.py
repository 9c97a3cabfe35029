"""What the registry can do where something is to go, asked before it is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ebbtide.targets.oci.client.registry import Ability, Capabilities, Registry

_AT_ONCE = 8
_NO_DELETE = {
    Ability.NO: "deleting is switched off in this registry",
    Ability.DENIED: "the registry does not let this user delete here",
}
_NO_UNTAG = {
    Ability.NO: "this registry deletes no tag by itself, and the manifest has to stay",
    Ability.DENIED: "the registry does not let this user delete a tag here, and the manifest has to stay",
    Ability.UNKNOWN: "nobody knows whether this registry deletes a tag by itself; the manifest has to stay",
}


def probed(registry: Registry, repositories: Sequence[str]) -> dict[str, Capabilities]:
    """Ask what can be done in some repositories, several at once."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return dict(zip(repositories, threads.map(registry.capabilities, repositories), strict=True))


def unable(found: Mapping[str, Capabilities]) -> dict[str, str]:
    """Say why nothing can be deleted, by repository."""
    return {
        name: _NO_DELETE[one.manifest_delete]
        for name, one in found.items()
        if one.manifest_delete in _NO_DELETE
    }


def unable_alone(found: Mapping[str, Capabilities]) -> dict[str, str]:
    """Say why no tag can be deleted without its manifest, by repository."""
    return {name: _NO_UNTAG[one.tag_delete] for name, one in found.items() if one.tag_delete in _NO_UNTAG}
