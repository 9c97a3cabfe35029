"""
Finding out what a registry can do, by asking it to delete what cannot exist.

The digest is 32 random bytes that no content was hashed to, and the tag holds 16 more: to meet one that
exists is as likely as to guess a key. A registry that deletes looks, finds nothing and says 404; one that
does not says 405 or 400 before it looks.
"""

from __future__ import annotations

import secrets

from ebbtide.core.errors import Denied, StoreError, Unsupported
from ebbtide.targets.oci.base import Ability, Capabilities
from ebbtide.targets.oci.client.reading import api_referrers
from ebbtide.targets.oci.client.wire import Wire
from ebbtide.targets.oci.client.writing import delete


def probe(wire: Wire, repository: str) -> Capabilities:
    """Probe one repository, which must exist: a missing one says 404 to everything."""
    nothing = f"sha256:{secrets.token_hex(32)}"
    return Capabilities(
        manifest_delete=_can_delete(wire, repository, nothing),
        tag_delete=_can_delete(wire, repository, f"ebbtide-probe-{secrets.token_hex(16)}"),
        referrers_api=_has_referrers(wire, repository, nothing),
        untagged_listing=Ability.NO,
    )


def _can_delete(wire: Wire, repository: str, reference: str) -> Ability:
    """Try to delete nothing; a registry that claims to have done it says nothing about what it can do."""
    try:
        claimed = delete(wire, repository, reference)
    except Denied:
        return Ability.DENIED
    except Unsupported:
        return Ability.NO
    except StoreError:
        return Ability.UNKNOWN
    return Ability.UNKNOWN if claimed else Ability.YES


def _has_referrers(wire: Wire, repository: str, digest: str) -> Ability:
    try:
        found = api_referrers(wire, repository, digest)
    except Denied:
        return Ability.DENIED
    except StoreError:
        return Ability.UNKNOWN
    return Ability.NO if found is None else Ability.YES
