"""Registries and their records, for the commands of `ebb image`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ebbtide.cli.state import State
from ebbtide.core.errors import MetadataError
from ebbtide.state.users import current_user
from ebbtide.targets.oci.kind import image_records, registry_context

if TYPE_CHECKING:
    from ebbtide.targets.oci.context import RegistryContext
    from ebbtide.targets.oci.target import RegistryTarget

# ruff: noqa: PLC0415 - commands that read records need no registry client


def open_registry(state: State, target: str) -> RegistryTarget:
    """Open a registry."""
    from ebbtide.targets.oci.target import RegistryTarget

    return RegistryTarget(registry_context(state, target), state)


def identified_registry(state: State, target: str, what: str, *, adopt: bool = False) -> RegistryContext:
    """Return a registry that a command is going to change, after making sure which registry it is."""
    from ebbtide.targets.oci.purge.identity import identify

    context = registry_context(state, target)
    for warning in identify(context, current_user(), what, adopt=adopt):
        print(f"warning: {warning}", file=sys.stderr)
    return context


def records_uid(state: State, target: str, what: str = "") -> str:
    """
    Return the uid of a registry's records, for a command that changes nothing else.

    Records that cannot be merged are found by the spelling of the address, so that they can be made equal.
    With `what` the command changes them, which is refused for an unknown registry while others have roles.
    """
    from ebbtide.targets.oci.client.address import spelled_uid

    context = registry_context(state, target)
    try:
        uid = context.uid
    except MetadataError as contradiction:
        print(f"warning: {contradiction.what}; this is about {target} alone", file=sys.stderr)
        uid = spelled_uid(target)
    if what:
        image_records(state).check_known(context.name, uid, current_user(), what)
    return uid
