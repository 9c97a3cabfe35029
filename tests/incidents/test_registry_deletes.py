"""Deletes by hand that reached further than they were told to (issue 15, A5)."""

from __future__ import annotations

import pytest
from tests.services.ebb import ebb
from tests.services.image_kit import push_image
from tests.services.image_place import ALL, ImagePlace

from ebbtide.core.errors import NotFound

__all__ = ["ebb"]

pytestmark = pytest.mark.spark

REPOSITORIES = ("ua", "ua/b", "ua2", "xua", "other")
START, LOST_A_TAG, TODAY = "2026-01-01T00:00:00Z", "2026-02-05T00:00:00Z", "2026-02-10T00:00:00Z"


def has(place, repository, digest):
    """Tell whether a repository still has a manifest."""
    try:
        place.client.manifest(repository, digest)
    except NotFound:
        return False
    return True


def test_old_untagged_manifests_go_in_the_named_repository_alone(ebb, tmp_path):
    """--untagged deletes in the repository that was named, by the days since the last tag was removed."""
    place = ImagePlace(ebb, tmp_path / "images")
    for repository in REPOSITORIES:
        shared = push_image(place.client, repository, ["moving"], name="the same everywhere")
        push_image(place.client, repository, ["moving"], name="newer")
    late = push_image(place.client, "ua", ["late"], name="tagged until lately")
    place.scan(START)
    push_image(place.client, "ua", ["late"], name="newest")
    place.scan(LOST_A_TAG)
    chosen = ("--older-than", "30d", "--repository", "ua", "--untagged", "--tag", "none")
    place.ebb("image", "delete", place.target, *chosen, *ALL, now=TODAY)

    left = {repository for repository in REPOSITORIES if has(place, repository, shared.digest)}
    assert {*REPOSITORIES} - {"ua"} == left
    assert has(place, "ua", late.digest)
    assert {"moving", "late"} == set(place.tags("ua"))
