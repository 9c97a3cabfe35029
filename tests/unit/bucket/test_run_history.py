"""What is said of a version that a run had its hands on."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ebbtide.core.decision import Outcome
from ebbtide.targets.s3.model import Action, Versioning
from ebbtide.targets.s3.run_history import PastAction

DONE, ABSENT = Outcome.DELETED, Outcome.ABSENT
ON, PAUSED, OFF = Versioning.ENABLED, Versioning.SUSPENDED, Versioning.DISABLED


@pytest.mark.parametrize(
    ("action", "version", "versioning", "outcome", "reason", "what", "ended"),
    [
        (Action.EXPIRE, "v1", ON, DONE, "", "put a delete marker over it", False),
        (Action.EXPIRE, "v1", ON, Outcome.HIDDEN, "", "put a delete marker over it", False),
        (Action.TRANSITION, "v1", ON, Outcome.MOVED, "moved to s3://c/k/v1", "moved it to s3://c/k/v1", True),
        (Action.EXPIRE, "v1", PAUSED, DONE, "", "put a delete marker over it", False),
        (Action.EXPIRE, "null", PAUSED, DONE, "", "put a delete marker in its place", True),
        (Action.EXPIRE, "null", OFF, DONE, "", "deleted it for good", True),
        (Action.EXPIRE, "v1", ON, ABSENT, "", "found it gone or hidden already", False),
        (Action.DELETE_VERSION, "v1", ON, DONE, "", "deleted it for good", True),
        (Action.DELETE_VERSION, "v1", ON, ABSENT, "", "found it gone or hidden already", True),
        (Action.REMOVE_DELETE_MARKER, "v1", ON, DONE, "", "removed this delete marker", True),
        (Action.ABORT_UPLOAD, "u1", ON, DONE, "", "aborted this upload", True),
        (Action.TRANSITION, "v1", ON, DONE, "moved to s3://c/k/v1", "moved it to s3://c/k/v1", True),
        (Action.TRANSITION, "null", OFF, DONE, "now GLACIER", "changed its class: now GLACIER", False),
    ],
)
def test_what_a_run_did_depends_on_action_and_versioning(
    action, version, versioning, outcome, reason, what, ended
):
    """The same action does different things to a version, and not all of them end it."""
    at = datetime(2025, 1, 1, tzinfo=UTC)
    deed = PastAction(version, action, 1, at, ("r",), outcome, reason, versioning)

    assert (what, ended) == (deed.what, deed.ended_it)
