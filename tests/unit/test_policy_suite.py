"""What a case of a suite must name of what is held."""

import pytest

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.targets.repository.policy_suite import _matches
from ebbtide.targets.repository.simulation import Simulated

HELD = {"young": HoldReason.NOT_YET, "current": HoldReason.HEAD, "staged": HoldReason.STAGING}
ROWS = [
    {"address": address, "decision": Decision.HELD, "hold": str(reason)} for address, reason in HELD.items()
]


@pytest.mark.parametrize(
    ("expected", "passes"),
    [
        (["staged"], True),
        (["staged", "young"], True),
        (["staged", "current"], True),
        (["staged", "current", "young"], True),
        (["current", "young"], False),
        (["staged", "other"], False),
    ],
)
def test_young_and_current_objects_may_be_left_out(expected, passes):
    """What waits for its time or for a head to move may be named or not; all else that is held must be."""
    assert passes == _matches("held", expected, Simulated([], [], [], ROWS))
