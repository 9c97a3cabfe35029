"""
The words for what holds an image, as verdicts, plans and explanations show them.

Only texts: the oracle and the Spark evaluation decide independently what holds an image, and say it in the
same words, so that the property test can compare them.
"""

from __future__ import annotations

from ebbtide.targets.oci.policies.policy import KeepNewest

UNKNOWN_TIME = "unknown time"
UNKNOWN_POLICY = "unknown policy"
NO_DATE = "no expiration date"
NEVER_DELETE = "pinned: never delete"
UNMATCHED = "unmatched: no rule matches"
NO_SUBJECT = "unknown subject"
NO_TERMS = "nothing says when it may go"
PENDING = "quarantine pending"
ORDER_UNKNOWN = "; the order is unknown: no creation date, or equal ones"
NO_POLICY = "(none)"
"""The policy of assigned values without a name."""


def newest_words(rule: KeepNewest, *, in_doubt: bool = False) -> str:
    """Say that a rule of keep_newest holds a tag; `in_doubt` if only because the order is unknown."""
    return f"keep_newest: {rule}{ORDER_UNKNOWN if in_doubt else ''}"
