"""Where nobody saw a tag move or a manifest come, the first sight of it stands for that, on the safe side."""

from __future__ import annotations

import pytest
from tests.worlds_of_images import decisions, image, judged, tag

from ebbtide.core.instant import parse_instant

NEWEST = {"keep_newest": [{"repository": "*", "tag": "v.*", "count": 2}]}


@pytest.mark.parametrize(
    ("times", "deadline"),
    [
        ({"seen_at": "2018-01-03"}, "2018-01-08"),
        ({"moved_at": "2018-01-01", "seen_at": "2018-01-03"}, "2018-01-06"),
        ({}, None),
    ],
)
def test_a_tag_counts_from_its_move_or_its_first_sight(times, deadline):
    """A tag whose move nobody saw counts from its first sight; with neither nobody can count."""
    found = judged(image("a", tag("v1", **times)), now="2018-02-01")["app:v1"]

    assert (deadline and parse_instant(deadline)) == found.deadline
    assert ([] if deadline else ["unknown time"]) == list(found.held_by)


@pytest.mark.parametrize(
    ("seen_at", "deadline"),
    [("2018-01-05", "2018-01-06"), ("2018-01-06", "2018-01-06"), ("2018-01-07", "2018-01-12")],
)
def test_a_date_before_the_first_sight_is_spent(seen_at, deadline):
    """A date that had come before the first sight may be of what the tag named before: it counts anew."""
    one = tag("v1", policy="Default", expires_at="2018-01-06", can_delete_prior=True, seen_at=seen_at)

    assert parse_instant(deadline) == judged(image("a", one), now="2018-02-01")["app:v1"].deadline


def test_a_manifest_counts_from_its_push_or_its_first_sight():
    """A policy that is only named, and the days without tags, count from the first sight of a manifest."""
    found = judged(
        image("a", policy="Default", seen_at="2018-01-03"),
        image("b", policy="Default", pushed_at="2018-01-01", seen_at="2018-01-03"),
        image("c", untagged_since="2018-01-02", seen_at="2018-01-04"),
        image("d", untagged_since="2018-01-05", seen_at="2018-01-04"),
        now="2018-02-01",
    )

    assert [8, 6, 9, 10] == [found[f"app@{letter}"].deadline.day for letter in "abcd"]


@pytest.mark.parametrize(
    ("seen_at", "held"),
    [(None, True), ("2018-01-03", True), ("2018-01-02", True), ("2018-01-01", False)],
)
def test_a_first_sight_among_the_newest(seen_at, held):
    """A tag is held as one of the newest unless so many were moved after its first sight."""
    moved = [image(letter, tag(f"v{letter}", f"2018-01-0{day}")) for day, letter in enumerate("abc", 1)]
    found = decisions(image("d", tag("vd", seen_at=seen_at)), *moved, now="2018-02-01", policies=NEWEST)

    assert {"app:va": "recycle", "app:vb": "keep", "app:vc": "keep"}.items() <= found.items()
    assert ("keep" if held else "recycle") == found["app:vd"]
