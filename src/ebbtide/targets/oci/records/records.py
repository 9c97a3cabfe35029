"""What is kept of registries, all of it in one class."""

from __future__ import annotations

from ebbtide.targets.oci.records.adoption_book import AdoptionBook
from ebbtide.targets.oci.records.creation_book import CreationBook
from ebbtide.targets.oci.records.event_book import EventBook
from ebbtide.targets.oci.records.identity_book import IdentityBook
from ebbtide.targets.oci.records.log_book import LogBook
from ebbtide.targets.oci.records.mark_book import MarkBook
from ebbtide.targets.oci.records.policy_book import PolicyBook
from ebbtide.targets.oci.records.role_book import RoleBook
from ebbtide.targets.oci.records.running_book import RunningBook


class ImageRecords(
    PolicyBook,
    MarkBook,
    LogBook,
    RoleBook,
    EventBook,
    AdoptionBook,
    CreationBook,
    RunningBook,
    IdentityBook,
):
    """
    All that is kept of registries, by uid: policies, marks, log, roles, events, adoptions, names, scans.

    >>> records = ImageRecords("sqlite:////tmp/ledger.db")  # doctest: +SKIP
    >>> records.put_policy(uid, Policy("Prod", Period(6, Unit.MONTHS), False), by="alice")  # doctest: +SKIP
    >>> records.change_mark(uid, target, assigning("Prod"), "alice", "assign Prod")  # doctest: +SKIP

    Every change is one transaction together with its entry in the log, and looks at the role of who makes it
    in that transaction. Changes of one registry wait for each other; readers wait for nobody.
    """
