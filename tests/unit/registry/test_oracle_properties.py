"""What is true of the oracle for registries on every generated registry, circles and all."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.core.instant import days_after, parse_instant
from ebbtide.targets.oci.model import (
    Image,
    ImageDecision,
    Quarantine,
    QuarantineState,
    RunningImages,
    RunningReference,
    Tag,
)
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.patterns import glob, tag_pattern
from ebbtide.targets.oci.policies.policy import Assigned, KeepNewest

START = parse_instant("2018-01-01")
NOW = days_after(START, 10)
POLICIES = read_policies(
    {
        "policies": {"Scrap": {"days": 1, "recycle": False}, "Forever": {"never": True}},
        "assign": [
            {"repository": "*", "tag": "s.*", "policy": "Scrap"},
            {"repository": "*", "tag": "r.*", "policy": "Released"},
        ],
        "keep_newest": [{"repository": "app", "tag": "k.*", "count": 1}],
    }
)
LETTERS = "abcde"
DIGESTS = [f"sha256:{letter * 64}" for letter in LETTERS]
TAGS = ["s1", "s2", "r1", "k1", "k2", "d1", "d2", *(f"sha256-{letter * 64}.sig" for letter in LETTERS + "f")]
RARELY = st.integers(0, 9).map(lambda number: number == 0)

times = st.none() | st.integers(0, 12).map(lambda days: days_after(START, days))
assigned = st.just(Assigned()) | st.builds(
    Assigned,
    st.sampled_from([None, "Default", "Untagged", "Released", "Quarantine Failed", "Forever", "Gone"]),
    times,
    st.sampled_from([None, None, True, False]),
)
quarantines = st.none() | st.none() | st.builds(Quarantine, st.sampled_from(list(QuarantineState)), times)


@st.composite
def registries(draw):
    """Make a registry of a few manifests that may be tied together in every way."""
    digests = draw(st.lists(st.sampled_from(DIGESTS), min_size=1, unique=True))
    names = draw(st.lists(st.sampled_from(TAGS), unique=True, max_size=7))
    places = [draw(st.sampled_from(digests)) for _ in names]
    return [
        Image(
            "app",
            digest,
            tuple(
                Tag(name, draw(times), draw(assigned), draw(RARELY))
                for name, place in zip(names, places, strict=True)
                if place == digest
            ),
            tuple(draw(st.lists(st.sampled_from(DIGESTS), max_size=2))),
            draw(st.none() | st.none() | st.sampled_from(DIGESTS)),
            draw(times),
            draw(times),
            draw(quarantines),
            draw(assigned),
            draw(RARELY),
        )
        for digest in digests
    ]


references = st.one_of(
    st.sampled_from(TAGS).map(lambda name: RunningReference("host.example/app", name)),
    st.sampled_from(DIGESTS).map(lambda digest: RunningReference("app", None, digest)),
    st.sampled_from(DIGESTS).map(lambda digest: RunningReference(None, None, digest)),
)
runnings = st.none() | st.lists(references, max_size=2).map(lambda found: RunningImages(tuple(found)))


def by_name(judgements):
    """Give judgements by digest and tag."""
    return {(one.digest, one.tag): one for one in judgements}


def going(images, running=None, policies=POLICIES, now=NOW):
    """Name what goes."""
    goes = (ImageDecision.RECYCLE, ImageDecision.DELETE)
    return {(one.digest, one.tag) for one in judge(policies, images, now, running) if one.decision in goes}


@given(registries(), runnings)
def test_nothing_that_stays_needs_what_goes(images, running):
    """A tag that stays has its manifest, an index its children, and a subject its referrers."""
    gone = going(images, running)
    for image in images:
        tags = {(image.digest, tag.name) for tag in image.tags}
        needed = {(child, None) for child in image.children}
        needed |= {
            (other.digest, None)
            for other in images
            if other.subject == image.digest and not other.delete_requested
        }

        assert (image.digest, None) not in gone or tags <= gone
        assert (image.digest, None) in gone or not needed & gone


@given(registries(), runnings)
def test_signature_tags_stay_with_what_they_sign(images, running):
    """A tag named after a digest that stays, or that is unknown, stays unless somebody asks for its end."""
    gone = going(images, running)
    staying = {image.digest for image in images} - {digest for digest, tag in gone if tag is None}
    unknown = {*DIGESTS, f"sha256:{'f' * 64}"} - {image.digest for image in images}
    for image in images:
        for tag in image.tags:
            signed = tag.name.removesuffix(".sig").replace("sha256-", "sha256:")
            asked = tag.delete_requested or image.delete_requested

            assert asked or signed not in staying | unknown or (image.digest, tag.name) not in gone


@given(registries(), runnings, st.data())
def test_a_pin_never_makes_more_go(images, running, data):
    """Whatever is pinned, on a tag or a manifest, nothing goes that stayed before, and it stays itself."""
    number = data.draw(st.integers(0, len(images) - 1))
    pin = Assigned("Released", None, can_delete_prior=False)
    image = images[number]
    tag = data.draw(st.none() | st.sampled_from(image.tags)) if image.tags else None
    if tag is None:
        pinned = replace(image, assigned=pin)
    else:
        tags = tuple(replace(one, assigned=pin) if one == tag else one for one in image.tags)
        pinned = replace(image, tags=tags)
    after = going([*images[:number], pinned, *images[number + 1 :]], running)

    assert after <= going(images, running)
    assert (image.digest, None) not in after


@given(registries(), runnings, references)
def test_what_runs_never_makes_more_go(images, running, reference):
    """One more thing that runs protects, and never the reverse."""
    more = RunningImages((running.references if running else ()) + (reference,))

    assert going(images, more) <= going(images, running)


@given(registries(), st.sampled_from([".*", "s.*", "d1"]), st.integers(1, 3))
def test_keeping_the_newest_never_makes_more_go(images, pattern, count):
    """One more rule of the newest protects, and so does a larger count."""
    rules = [KeepNewest(glob("", "*"), tag_pattern("", pattern), number) for number in (count, count + 1)]
    fewer, more = (replace(POLICIES, keep_newest=(*POLICIES.keep_newest, rule)) for rule in rules)

    assert going(images, policies=more) <= going(images, policies=fewer) <= going(images)


@given(registries(), runnings, st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(images, running, random):
    """Images, tags and children in another order get the same judgements."""
    turned = [
        replace(image, tags=image.tags[::-1], children=image.children[::-1])
        for image in random.sample(images, len(images))
    ]

    assert by_name(judge(POLICIES, images, NOW, running)) == by_name(judge(POLICIES, turned, NOW, running))


@given(registries(), runnings, st.integers(1, 400))
def test_what_goes_today_goes_tomorrow(images, running, days):
    """Time alone never saves anything."""
    assert going(images, running) <= going(images, running, now=days_after(NOW, days))


@given(registries(), runnings)
def test_a_scan_that_failed_stops_everything(images, running):
    """Without a scan that can be trusted nothing goes, and all that would have gone says so."""
    found = running.references if running else ()
    judged = by_name(judge(POLICIES, images, NOW, RunningImages(found, failed="timeout")))

    assert set() == going(images, RunningImages(found, failed="timeout"))
    assert all("timeout" in judged[name].held_by[0] for name in going(images, running))


@given(registries(), runnings)
def test_every_judgement_explains_itself(images, running):
    """What goes has a deadline that has come; what stays has one that has not, or something that holds it."""
    for one in judge(POLICIES, images, NOW, running):
        if one.decision in (ImageDecision.RECYCLE, ImageDecision.DELETE):
            assert () == one.held_by
            assert one.deadline <= NOW
        else:
            assert one.held_by or one.deadline > NOW


@given(registries(), runnings)
def test_what_is_recycled_has_all_its_parts_in_the_bin(images, running):
    """No part of an index that goes into the bin is deleted for good."""
    judged = by_name(judge(POLICIES, images, NOW, running))
    for image in images:
        if judged[image.digest, None].decision is ImageDecision.RECYCLE:
            parts = [judged[child, None] for child in image.children if (child, None) in judged]

            assert ImageDecision.DELETE not in {part.decision for part in parts}


@given(registries(), runnings, st.data())
def test_a_first_sight_never_makes_go_what_the_true_time_keeps(images, running, data):
    """Where only a later first sight of a tag or manifest is known, nothing goes that its true time keeps."""

    def sight(moment):
        """Give when it was first seen: at the moment or later, and not after now."""
        late = data.draw(st.integers(0, 8))
        return max(moment, min(NOW, days_after(moment, late)))

    blurred = [
        replace(
            image,
            pushed_at=None,
            seen_at=image.pushed_at and sight(image.pushed_at),
            tags=tuple(
                replace(tag, moved_at=None, seen_at=tag.moved_at and sight(tag.moved_at))
                if data.draw(st.booleans())
                else tag
                for tag in image.tags
            ),
        )
        for image in images
    ]

    assert going(blurred, running) <= going(images, running)
