"""Which tags keep_newest holds where times are equal or unknown, and when images say that they were built."""

from __future__ import annotations

from random import Random

import pytest
from tests.services.image_kit import push_image, push_index
from tests.worlds_of_images import tables

from ebbtide.core.instant import days_after, parse_instant
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import RegistrySpec
from ebbtide.targets.oci.model import Image, Tag
from ebbtide.targets.oci.oracle_graph import build_graph, newest_holds
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.purge.creation_dates import creation_date, read_creation_dates, undecided_images

NOW = parse_instant("2026-01-01")
UNKNOWN = "the order is unknown"


def drawn(random, repository="app"):
    """Draw tags whose moves and creation dates are few, so that many are equal or unknown."""
    images = []
    for number in range(random.randint(1, 9)):
        moved = random.choice([None, None, *(days_after(NOW, -day) for day in (1, 2))])
        seen = random.choice([None, *(days_after(NOW, -day) for day in (0, 1, 2))])
        created = random.choice([None, *(days_after(NOW, -day) for day in (20, 30, 40))])
        digest = f"sha256:{number:064x}"
        images.append(
            Image(repository, digest, (Tag(f"t{number}", moved, seen_at=seen),), created_at=created)
        )
    return images


def certainly_newer(one, other):
    """Tell, in the words of the documentation, that an image's tag is newer than that of another."""
    (mine,), (theirs,) = one.tags, other.tags
    if mine.moved_at is not None:
        limit = theirs.moved_at or theirs.seen_at
        if limit is not None and mine.moved_at > limit:
            return True
    if (mine.moved_at is None) != (theirs.moved_at is None):
        return False
    same = mine.moved_at == theirs.moved_at if mine.moved_at else mine.seen_at == theirs.seen_at
    known = mine.moved_at is not None or mine.seen_at is not None
    dated = one.created_at is not None and other.created_at is not None
    return same and known and dated and one.created_at > other.created_at


def held(images, count):
    """Give the tags that a rule for all tags holds, and whether in doubt."""
    rules = read_policies({"keep_newest": [{"repository": "*", "tag": ".*", "count": count}]}).keep_newest
    return {node[2]: UNKNOWN in words for node, words in newest_holds(build_graph(images), rules)}


def test_a_tag_is_held_unless_enough_are_certainly_newer():
    """On every drawn repository the held tags are those that a comparison of all pairs gives."""
    doubts = 0
    for number in range(3000):
        random = Random(number)
        images, count = drawn(random), random.randint(1, 4)
        newer = {one.tags[0].name: sum(certainly_newer(other, one) for other in images) for one in images}
        actual = held(images, count)

        assert {name for name, others in newer.items() if others < count} == actual.keys(), number
        doubts += sum(actual.values())
    assert doubts > 500


def test_no_more_are_held_than_asked_for_where_all_is_known():
    """With creation dates that all differ a rule holds exactly its count, and says nothing of doubt."""
    images = [
        Image("app", f"sha256:{n:064x}", (Tag(f"t{n}", seen_at=NOW),), created_at=days_after(NOW, -9 - n))
        for n in range(6)
    ]

    assert {"t0": False, "t1": False} == held(images, 2)
    assert {"t0": False} == held(images, 1)


def test_without_dates_all_that_are_tied_are_held():
    """Where nobody can say which is newer all stay, and the words say that the order is unknown."""
    plain = [Image("app", f"sha256:{n:064x}", (Tag(f"t{n}", NOW),)) for n in range(3)]
    equal = [
        Image("app", f"sha256:{n:064x}", (Tag(f"t{n}", NOW),), created_at=days_after(NOW, -9))
        for n in range(3)
    ]

    assert {"t0": True, "t1": True, "t2": True} == held(plain, 2) == held(equal, 2)
    assert {"t0": False, "t1": False, "t2": False} == held(plain, 3)


@pytest.mark.spark
def test_the_images_to_ask_are_those_among_which_a_rule_has_to_choose(spark):
    """Asked are the tied tags of which a rule keeps some and not all, as a loop over all ties says."""
    count = 2
    rules = read_policies({"keep_newest": [{"repository": "*", "tag": ".*", "count": count}]}).keep_newest
    images, expected = [], set()
    for number in range(150):
        found = drawn(Random(number), f"r{number}")
        images += found
        for one in found:
            [tag] = one.tags
            clock = tag.moved_at or tag.seen_at
            known = [other.tags[0].moved_at for other in found if other.tags[0].moved_at is not None]
            tied = [
                other
                for other in found
                if (other.tags[0].moved_at is None) == (tag.moved_at is None) and other.tags[0].clock == clock
            ]
            if clock is not None:
                newer = sum(moved > clock for moved in known)
                if newer < count < newer + len(tied):
                    expected.add((one.repository, one.digest))
    _, tags = tables(spark, images)
    rows = undecided_images(tags, rules).toArrow().to_pylist()

    assert expected == {(row["repository"], row["digest"]) for row in rows}
    assert len(expected) > 50


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2025-01-02T03:04:05Z", "2025-01-02T03:04:05Z"),
        ("2025-01-02T03:04:05.123456789Z", "2025-01-02T03:04:05.123456Z"),
        ("2025-01-02T03:04:05.5+02:00", "2025-01-02T01:04:05.500000Z"),
        ("1970-01-01T00:00:00Z", None),
        ("1980-01-01T00:00:01Z", None),
        ("2031-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00Z", None),
        ("2025-13-02T03:04:05Z", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1735786800, None),
    ],
)
def test_the_created_field_of_an_image(text, date):
    """A date with nanoseconds or a zone is read; one that cannot be true is none."""
    assert (None if date is None else parse_instant(date)) == creation_date(text, NOW)


def test_images_and_indexes_are_asked(tmp_path):
    """An image says its own date, an index that of its newest image; what is not there is left out."""
    registry = ImageLayout(RegistrySpec(f"oci-layout:{tmp_path}"))
    old, new, silent = (
        push_image(registry, "app", name=name, created=created)
        for name, created in (("a", "2025-01-01T00:00:00Z"), ("b", "2025-02-01T00:00:00Z"), ("c", None))
    )
    index = push_index(registry, "app", ["multi"], [old, new, silent])
    names = [("app", digest) for digest in (old.digest, silent.digest, index.digest, f"sha256:{'0' * 64}")]

    assert {
        old.digest: parse_instant("2025-01-01"),
        silent.digest: None,
        index.digest: parse_instant("2025-02-01"),
    } == read_creation_dates(registry, names, NOW)
