"""
Image policies of seed 004: a name, a period, whether an image may go earlier, and whether through the bin.

Assigning a policy copies its values onto a tag or manifest, so that a policy may change and what was assigned
does not. ``can_delete_prior`` false is a pin (requirements 3.0 to 5.0 of the seed)::

    can_delete_prior   date      meaning
    false              a date    pinned: must not go before the date, is purged from it on
    false              none      never delete
    true               a date    delete by: may go earlier, and goes at the date
    true               none      may be deleted by hand, is never purged
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from ebbtide.rules.images.period import Period
from ebbtide.rules.instant import NEVER


@dataclass(frozen=True)
class Policy:
    """A named policy of a registry; without a period what it is assigned to never expires."""

    name: str
    period: Period | None = None
    can_delete_prior: bool = True
    recycle: bool = True

    def expires(self, since: datetime) -> datetime:
        """Give the moment at which what is counted from then expires."""
        return NEVER if self.period is None else self.period.after(since)


@dataclass(frozen=True)
class Assigned:
    """The values that were copied onto a tag or manifest; None is what nobody gave."""

    policy: str | None = None
    expires_at: datetime | None = None
    """A date, NEVER where somebody said so, or None: no date."""
    can_delete_prior: bool | None = None
    recycle: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Tell that nothing was assigned; to be free to go earlier is what all are that nobody pinned."""
        return self.policy is None and self.expires_at is None and self.can_delete_prior is not False


def renewed(policy: Policy, now: datetime) -> Assigned:
    """Assign a policy, or assign it again: the values as they are now, and the date counted from now."""
    return Assigned(policy.name, policy.expires(now), policy.can_delete_prior, policy.recycle)


DEFAULT = Policy("Default", Period(5))
RECYCLE_BIN = Policy("Recycle Bin", Period(15), recycle=False)
"""What has expired in the bin is deleted: there is no other bin for it."""
QUARANTINE_FAILED = Policy("Quarantine Failed", Period(5), recycle=False)
UNTAGGED = Policy("Untagged", Period(5))
RELEASED = Policy("Released", Period(180), can_delete_prior=False)

SYSTEM_POLICIES = (DEFAULT, RECYCLE_BIN, QUARANTINE_FAILED, UNTAGGED)
"""They can be changed and not removed: every registry has them."""
GIVEN_POLICIES = (*SYSTEM_POLICIES, RELEASED)
"""What a registry begins with."""


def same_name(name: str) -> str:
    """Give what names of one policy have in common: ``Recycle Bin``, ``recycle-bin``, ``recycle_bin``."""
    return re.sub(r"[-_\s]+", " ", name.strip()).casefold()
