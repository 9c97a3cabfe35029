"""What is kept of registries, all of it in one class."""

from __future__ import annotations

from ebbtide.registry.records.event_book import EventBook
from ebbtide.registry.records.log_book import LogBook
from ebbtide.registry.records.mark_book import MarkBook
from ebbtide.registry.records.policy_book import PolicyBook
from ebbtide.registry.records.role_book import RoleBook


class ImageRecords(PolicyBook, MarkBook, LogBook, RoleBook, EventBook):
    """
    Policies, marks, the log, roles, notifications and the last scans of registries, by their uid.

    >>> records = ImageRecords("sqlite:////tmp/ledger.db")  # doctest: +SKIP
    >>> records.put_policy(uid, Policy("Prod", Period(6, Unit.MONTHS), False), by="alice")  # doctest: +SKIP
    >>> records.change_mark(uid, target, assigning("Prod"), "alice", "assign Prod")  # doctest: +SKIP

    Every change is one transaction together with its entry in the log, and looks at the role of who makes it
    in that transaction. Changes of one registry wait for each other; readers wait for nobody.
    """
