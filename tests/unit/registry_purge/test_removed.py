"""Where an image is that a scan saw, by what happened since."""

from __future__ import annotations

import pytest

from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.purge.last_scan import ImagePlace, RemovedImages, _Fact

SCAN, EARLY, FIRST, SECOND, THIRD = (parse_instant(f"2026-01-0{day}") for day in (2, 1, 3, 4, 5))
TAG, AGAIN, IMAGE = "app@sha256:1 v1", "app:v1", "app@sha256:1"
BIN, GONE, PRESENT = ImagePlace.IN_BIN, ImagePlace.GONE, ImagePlace.PRESENT


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        ({}, PRESENT),
        ({TAG: _Fact(FIRST, GONE)}, GONE),
        ({TAG: _Fact(SCAN, BIN)}, BIN),
        ({TAG: _Fact(EARLY, GONE)}, PRESENT),
        ({TAG: _Fact(FIRST, BIN), AGAIN: _Fact(SECOND, PRESENT)}, PRESENT),
        ({TAG: _Fact(THIRD, BIN), AGAIN: _Fact(SECOND, PRESENT)}, BIN),
        ({TAG: _Fact(FIRST, BIN), IMAGE: _Fact(SECOND, GONE)}, GONE),
        ({TAG: _Fact(FIRST, BIN), AGAIN: _Fact(SECOND, PRESENT), IMAGE: _Fact(THIRD, GONE)}, PRESENT),
        ({IMAGE: _Fact(SECOND, GONE)}, PRESENT),
        ({"app@sha256:2 v1": _Fact(FIRST, GONE), "app@sha256:1 v2": _Fact(FIRST, GONE)}, PRESENT),
    ],
)
def test_the_last_thing_that_happened_to_a_tag_counts(facts, place):
    """What happened before the scan says nothing, and emptying the bin takes only what is in it."""
    assert place == RemovedImages(facts, {"app": SCAN}).place("app", "sha256:1", "v1")
