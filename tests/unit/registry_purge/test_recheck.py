"""What is put on an image after the last scan is seen directly before the image is deleted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Barrier, Thread
from typing import Any

import pytest
from tests.services.bin_kit import tags_of, whole
from tests.services.image_kit import push_image, push_index, push_signature
from tests.unit.registry_purge.test_acting import REPOSITORY, outcomes, remover, rows

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import MetadataError, NotFound, StoreError, Unsupported
from ebbtide.targets.oci.bin.contents import entries
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.names import fallback_tag
from ebbtide.targets.oci.client.registry import Descriptor, RegistrySpec
from ebbtide.targets.oci.purge.actor import Action, act_on_all, by_manifest
from ebbtide.targets.oci.purge.recheck import TagRecheck

UNKNOWN = f"sha256:{'0' * 64}"
"""What a tag of an unknown kind stands for."""


@dataclass
class Watched:
    """A registry whose requests are counted, and before which something can happen or fail."""

    inner: Any
    requests: Counter[str] = field(default_factory=Counter)
    before: dict[str, Any] = field(default_factory=dict)
    """What is called before a request of a name, with its arguments; what it returns is the answer."""

    def __getattr__(self, name: str) -> Any:
        """Pass calls on to the wrapped registry."""
        found = getattr(self.inner, name)
        return (lambda *args: self._ask(name, found, args)) if callable(found) else found

    def _ask(self, name: str, request: Any, args: tuple[Any, ...]) -> Any:
        self.requests[name] += 1
        answer = self.before.get(name, lambda *_: None)(*args)
        return request(*args) if answer is None else answer


@pytest.fixture
def registry(tmp_path):
    """Give an empty folder of image layouts, watched."""
    return Watched(ImageLayout(RegistrySpec(f"oci-layout:{tmp_path}")))


@pytest.fixture
def image(registry):
    """Give an image with the tag `a`, beside one that stays."""
    push_image(registry, REPOSITORY, ["prod"], name="other")
    return push_image(registry, REPOSITORY, ["a"])


def check_kept(registry, image, remove, tags=("", "a"), action=Action.RECYCLE):
    """See that nothing of an image goes, and return what is said of it."""
    before = tags_of(registry, REPOSITORY)
    found = remove.remove(rows(image, *tags, action=action))

    assert [Outcome.CHANGED] * len(tags) == outcomes(found)
    assert before == tags_of(registry, REPOSITORY)
    assert whole(registry, REPOSITORY, image.digest)
    assert [] == list(entries(registry))
    return found[0].reason


@pytest.mark.parametrize("action", [Action.RECYCLE, Action.DELETE])
def test_a_tag_that_is_new_since_the_scan_keeps_its_image(registry, image, action):
    """An image that got another tag since the scan stays with all its tags, and the tag is named."""
    remove = remover(registry)
    registry.put_manifest(REPOSITORY, "keep", image.manifest)

    assert "the tag keep" in check_kept(registry, image, remove, action=action)


def test_a_known_tag_that_was_moved_to_an_image_keeps_it(registry, image):
    """A tag that was put back to an old image, as after a failed release, keeps that image."""
    remove = remover(registry)
    registry.put_manifest(REPOSITORY, "prod", image.manifest)

    assert "the tag prod" in check_kept(registry, image, remove)


def test_a_planned_tag_that_was_moved_to_another_planned_image_keeps_that(registry, image):
    """A tag that was to go with one image and stands for another now is not lost with the other."""
    other = push_image(registry, REPOSITORY, ["b"], name="b")
    remove = remover(registry)
    registry.put_manifest(REPOSITORY, "b", image.manifest)

    check_kept(registry, image, remove)
    assert [Outcome.DELETED, Outcome.CHANGED] == outcomes(
        remove.remove(rows(other, "", "b", action=Action.DELETE))
    )
    assert image.digest == registry.resolve(REPOSITORY, "b").digest


def test_an_index_that_was_tagged_since_the_scan_keeps_its_children(registry, image):
    """An image in an index that got a tag since the scan stays; so does one in an index of indexes."""
    remove = remover(registry)
    inner = push_index(registry, REPOSITORY, [], [image])
    push_index(registry, REPOSITORY, ["multi"], [inner])

    assert "the tag multi" in check_kept(registry, image, remove)


def test_what_signs_a_newly_needed_image_stays(registry, image):
    """Signatures by subject and by tag stay with an image that a new tag keeps, and go without it."""
    signature = push_signature(registry, REPOSITORY, image)
    listed = fallback_tag(image.digest)
    fallback = type(image)(registry.manifest(REPOSITORY, listed))
    before = tags_of(registry, REPOSITORY)
    registry.put_manifest(REPOSITORY, "keep", image.manifest)
    remove = remover(registry, scanned=before)

    check_kept(registry, signature, remove, [""])
    check_kept(registry, fallback, remove, ["", listed])
    registry.delete_tag(REPOSITORY, "keep")
    assert {Outcome.RECYCLED} == set(outcomes(remove.remove(rows(fallback, "", listed))))


def test_a_tag_that_is_put_while_an_image_is_copied_is_seen(registry, image):
    """An image that gets a tag while it is copied into the bin stays; the bin may have a copy of it."""
    remove = remover(registry)
    tagged = []

    def tag_meanwhile(_bin, *_args):
        if not tagged:
            tagged.append(registry.inner.put_manifest(REPOSITORY, "keep", image.manifest))

    registry.before["put_manifest"] = tag_meanwhile
    found = remove.remove(rows(image, "", "a"))

    assert [None] == tagged
    assert [Outcome.CHANGED] * 2 == outcomes(found)
    assert {"a", "keep", "prod"} == set(tags_of(registry, REPOSITORY))


def test_a_tag_of_an_unknown_kind_keeps_everything(registry, image):
    """If a new tag stands for something that cannot be understood, nothing of its repository goes."""
    remove = remover(registry)
    odd = "application/vnd.example.new-index+json"
    registry.before |= {
        "tags": lambda _: iter(["a", "prod", "odd"]),
        "resolve": lambda _, ref: Descriptor(UNKNOWN, 1, odd) if ref in ("odd", UNKNOWN) else None,
        "manifest": lambda _, ref: _unknown() if ref == UNKNOWN else None,
    }
    found = remove.remove(rows(image, "", "a"))

    assert [Outcome.CHANGED] * 2 == outcomes(found)
    assert odd in found[0].reason
    assert image.digest == registry.inner.resolve(REPOSITORY, "a").digest


def _unknown():
    raise Unsupported("an unknown kind")


def _down():
    raise StoreError("down")


def _absent():
    raise NotFound("no such repository")


def _cut():
    yield "a"
    raise StoreError("down")


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        pytest.param(_down, StoreError, id="failed"),
        pytest.param(_cut, StoreError, id="cut"),
        pytest.param(_absent, MetadataError, id="absent"),
        pytest.param(lambda: iter(()), MetadataError, id="empty"),
        pytest.param(lambda: iter(["a"]), MetadataError, id="short"),
    ],
)
def test_a_list_that_cannot_be_trusted_deletes_nothing(registry, image, listed, error):
    """A list of tags that fails, ends early, is empty or lacks a known tag is an error, and nothing goes."""
    remove = remover(registry)
    before = tags_of(registry, REPOSITORY)
    registry.before["tags"] = lambda _: listed()
    with pytest.raises(error):
        remove.remove(rows(image, "", "a"))

    assert before == tags_of(registry.inner, REPOSITORY)
    assert [] == list(entries(registry.inner))


def test_after_an_error_the_tags_are_looked_at_again(registry, image):
    """A recheck that failed is not taken for one that found nothing."""
    remove = remover(registry)
    registry.put_manifest(REPOSITORY, "keep", image.manifest)
    registry.before["tags"] = lambda _: _down()
    with pytest.raises(StoreError):
        remove.remove(rows(image, "", "a"))
    del registry.before["tags"]

    check_kept(registry, image, remove)


def test_a_recheck_resolves_few_tags_of_many(registry):
    """With many tags each removed manifest costs a list and, on the average, some HEADs, not one a tag."""
    images = [push_image(registry, REPOSITORY, [f"t{n}"], name=str(n)) for n in range(60)]
    remove = remover(registry)
    registry.requests.clear()
    for image, name in zip(images[:40], range(40), strict=False):
        remove.remove(rows(image, "", f"t{name}", action=Action.DELETE))

    assert 40 == registry.requests["tags"]
    # Per manifest: its tag, its digest, its tag when that is gone, and a share of all tags.
    assert registry.requests["resolve"] <= 60 + 40 * (3 + 4)
    assert 20 == len(tags_of(registry, REPOSITORY))


def test_threads_share_a_recheck_that_began_after_they_asked(registry, image):
    """Threads that wait for a recheck share the next one, and never use one that began before they asked."""
    recheck = TagRecheck(registry, {REPOSITORY: tags_of(registry, REPOSITORY)})
    together, found = Barrier(9), []

    def look():
        together.wait()
        found.append(recheck.reason_to_keep(REPOSITORY, image.digest))

    def tagged_after_the_first_list(_repository):
        listed = list(registry.inner.tags(REPOSITORY))
        if registry.requests["tags"] == 1:
            registry.inner.put_manifest(REPOSITORY, "keep", image.manifest)
            together.wait()
        return iter(listed)

    registry.requests.clear()
    registry.before["tags"] = tagged_after_the_first_list
    early = []
    first = Thread(target=lambda: early.append(recheck.reason_to_keep(REPOSITORY, image.digest)))
    threads = [first, *(Thread(target=look) for _ in range(8))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [""] == early
    assert [True] * 8 == ["the tag keep" in reason for reason in found]
    assert 2 <= registry.requests["tags"] <= 9


def test_all_images_of_a_task_are_rechecked(registry):
    """Of many images that go at once, exactly those stay that got a tag since the scan."""
    images = [push_image(registry, REPOSITORY, [f"t{n}"], name=str(n)) for n in range(20)]
    remove = remover(registry)
    for number in (3, 11):
        registry.put_manifest(REPOSITORY, f"keep{number}", images[number].manifest)
    planned = []
    for number, image in enumerate(images):
        planned += [(image, "", 2 * number), (image, f"t{number}", 2 * number + 1)]
    items = [
        type(row)(**{**vars(row), "number": number})
        for image, tag, number in planned
        for row in rows(image, tag, action=Action.DELETE)
    ]
    found = act_on_all(by_manifest(items), remove.remove)

    assert {6, 7, 22, 23} == {number for number, one in found.items() if one.outcome is Outcome.CHANGED}
    assert {"t3", "keep3", "t11", "keep11"} == set(tags_of(registry, REPOSITORY))
