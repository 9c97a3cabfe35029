"""Acting on a registry, image by image: what is read again, set aside, removed, and said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.services.bin_kit import tags_of, whole
from tests.services.image_kit import Pushed, push_image, push_index

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import Denied, StoreError, Unsupported
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.oci.bin.contents import entries, read_entry
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec
from ebbtide.targets.oci.policies.policy import RECYCLE_BIN
from ebbtide.targets.oci.purge.actor import Action, PlannedItem, Remover, act_on_all, bin_entry, by_manifest
from ebbtide.targets.oci.purge.recheck import TagRecheck

NOW = datetime(2026, 1, 6, tzinfo=UTC)
REPOSITORY = "team/app"


@pytest.fixture
def registry(tmp_path) -> Registry:
    """Give an empty folder of image layouts."""
    return ImageLayout(RegistrySpec(f"oci-layout:{tmp_path}"))


def rows(image: Pushed, *tags: str, action: Action = Action.RECYCLE) -> list[PlannedItem]:
    """Plan for some names of an image; an empty one is the manifest."""
    return [
        PlannedItem(number, REPOSITORY, image.digest, tag, action, "Default", (), NOW, None)
        for number, tag in enumerate(tags)
    ]


def remover(registry: Registry, *, again: bool = False, scanned: dict[str, str] | None = None) -> Remover:
    """Make a remover with the bin's own policy; by default the last scan saw what is there now."""
    tags = tags_of(registry, REPOSITORY) if scanned is None else scanned
    recheck = TagRecheck(registry, {REPOSITORY: tags})
    return Remover(registry, recheck, lambda group: bin_entry(group, RECYCLE_BIN, 7, NOW), again=again)


def outcomes(results: dict[int, DeleteResult]) -> list[Outcome]:
    """Give the outcomes in the order of their rows."""
    return [results[number].outcome for number in sorted(results)]


def test_a_recycled_image_is_in_the_bin_with_all_its_names(registry):
    """An image that goes is whole in the bin, with its names and until when, and gone from its place."""
    image = push_image(registry, REPOSITORY, ["a", "b"])
    before = whole(registry, REPOSITORY, image.digest)
    found = remover(registry).remove(rows(image, "", "a", "b"))
    entry = read_entry(registry, REPOSITORY, image.digest)

    assert [Outcome.RECYCLED] * 3 == outcomes(found)
    assert {} == tags_of(registry, REPOSITORY)
    assert ("a", "b") == entry.tag_names
    assert RECYCLE_BIN.expires(NOW) == entry.expires_at
    assert before == whole(registry, entry.bin, image.digest)
    assert "can be restored until 2026-01-21" in found[0].reason


def test_what_is_deleted_is_not_in_the_bin(registry):
    """An image whose policy wants no bin is deleted and nothing is set aside."""
    image = push_image(registry, REPOSITORY, ["a"])
    found = remover(registry).remove(rows(image, "", "a", action=Action.DELETE))

    assert [Outcome.DELETED] * 2 == outcomes(found)
    assert [] == list(entries(registry))


def test_a_tag_that_moved_is_left_alone(registry):
    """A tag that stands for another image now stays, and what it stood for goes as planned."""
    image = push_image(registry, REPOSITORY, ["a"])
    newer = push_image(registry, REPOSITORY, ["a"], name="newer")
    registry.put_manifest(REPOSITORY, "b", image.manifest)
    found = remover(registry).remove(rows(image, "", "a", "b"))

    assert [Outcome.RECYCLED, Outcome.CHANGED, Outcome.RECYCLED] == outcomes(found)
    assert {"a": newer.digest} == tags_of(registry, REPOSITORY)
    assert ("b",) == read_entry(registry, REPOSITORY, image.digest).tag_names


def test_a_name_goes_and_the_image_stays(registry):
    """A tag whose image stays goes by itself; the bin can give the name back."""
    image = push_image(registry, REPOSITORY, ["a", "b"])
    found = remover(registry).remove(rows(image, "a"))

    assert [Outcome.RECYCLED] == outcomes(found)
    assert {"b": image.digest} == tags_of(registry, REPOSITORY)
    assert ("a",) == read_entry(registry, REPOSITORY, image.digest).tag_names


def test_what_is_needed_again_is_not_touched(registry):
    """One row that must stay keeps the whole image."""
    image = push_image(registry, REPOSITORY, ["a"])
    kept = [replace(one, kept="it runs") for one in rows(image, "", "a")]
    found = remover(registry).remove([kept[0], rows(image, "", "a")[1]])

    assert [Outcome.CHANGED] * 2 == outcomes(found)
    assert {"a": image.digest} == tags_of(registry, REPOSITORY)


@pytest.mark.parametrize(("again", "expected"), [(False, Outcome.ABSENT), (True, Outcome.RECYCLED)])
def test_what_is_gone_is_absent_or_was_our_own_doing(registry, again, expected):
    """What is not there is absent, but after an interrupted attempt it was this run that took it."""
    image = push_image(registry, REPOSITORY, ["a"])
    registry.delete_manifest(REPOSITORY, image.digest)
    found = remover(registry, again=again).remove(rows(image, "", "a"))

    assert [expected] * 2 == outcomes(found)


@pytest.mark.parametrize("child_first", [True, False])
def test_an_index_and_its_children_go_in_any_order(registry, child_first):
    """An index and its children go whole, whichever comes first, and what is refused at first goes later."""
    child = push_image(registry, REPOSITORY, name="child")
    index = push_index(registry, REPOSITORY, ["multi"], [child])
    before = whole(registry, REPOSITORY, index.digest)
    groups = by_manifest(
        [*rows(child, ""), *(replace(row, number=row.number + 1) for row in rows(index, "", "multi"))]
    )
    ordered = sorted(groups, key=lambda group: (group[0].digest != child.digest) == child_first)
    found = act_on_all(ordered, remover(registry).remove)
    entry = read_entry(registry, REPOSITORY, index.digest)

    assert [Outcome.RECYCLED] * 3 == outcomes(found)
    assert before == whole(registry, entry.bin, index.digest)
    assert {} == tags_of(registry, REPOSITORY)


def many(count: int) -> list[list[PlannedItem]]:
    """Plan for so many images."""
    digests = [f"sha256:{number:064x}" for number in range(count)]
    found = [
        PlannedItem(n, REPOSITORY, digest, "", Action.DELETE, "Default", (), NOW, None)
        for n, digest in enumerate(digests)
    ]
    return by_manifest(found)


def test_a_registry_that_is_down_is_not_asked_for_ever():
    """After a few failures in a row the rest is not reached, and said to be so."""

    def fail(_group: Sequence[PlannedItem]) -> dict[int, DeleteResult]:
        raise StoreError("down")

    found = outcomes(act_on_all(many(100), fail))

    assert {Outcome.FAILED, Outcome.NOT_REACHED} == set(found)
    assert found.count(Outcome.NOT_REACHED) > 80


def test_who_is_not_allowed_is_not_asked_for_ever():
    """Credentials that ended in the middle end the rest, too."""

    def deny(_group: Sequence[PlannedItem]) -> dict[int, DeleteResult]:
        raise Denied("no")

    found = outcomes(act_on_all(many(100), deny))

    assert {Outcome.DENIED, Outcome.NOT_REACHED} == set(found)


def test_what_cannot_be_done_to_one_says_nothing_of_others():
    """A registry that keeps the children of indexes until the indexes are gone gets all of them at last."""
    gone: set[int] = set()

    def children_last(group: Sequence[PlannedItem]) -> dict[int, DeleteResult]:
        number = group[0].number
        if number < 90 and len(gone) < 10:
            raise Unsupported("an index lists it")
        gone.add(number)
        return {number: DeleteResult("x", Outcome.DELETED)}

    found = outcomes(act_on_all(many(100), children_last))

    assert [Outcome.DELETED] * 100 == found
