"""Entries of the recycle bin: their documents, damaged ones, and two entries for one image."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services.bin_kit import DAY, NOON

from ebbtide.core.errors import MetadataError, Refused
from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.bin.entry import PREFIX, BinEntry, KeptTag, merged, read_entry_document, write_entry
from ebbtide.targets.oci.client.manifest import OCI_INDEX, OCI_MANIFEST
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Descriptor, Manifest

DIGEST = digest_of(b"image")
IMAGE = Descriptor(DIGEST, 5, OCI_MANIFEST)
ENTRY = BinEntry("team/app", DIGEST, NOON, NOON + DAY, (KeptTag("v1"),), run_id=3)

MOMENTS = st.datetimes(timezones=st.just(UTC)) | st.just(NEVER)
TAGS = st.builds(KeptTag, st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,20}\Z"), st.none() | MOMENTS)
ENTRIES = st.builds(
    BinEntry,
    st.just("team/app"),
    st.just(DIGEST),
    MOMENTS,
    MOMENTS,
    st.lists(TAGS, max_size=4, unique_by=lambda tag: tag.name).map(tuple),
    st.text(),
    st.none() | st.integers(0, 2**40),
    st.text(),
    st.sampled_from(["", digest_of(b"subject")]),
    st.integers(0, 2**50),
)


@given(ENTRIES)
def test_an_entry_comes_back_as_it_was_written(entry: BinEntry):
    """Whatever an entry says, its document says the same, and only ASCII goes over the wire."""
    document = write_entry(entry, IMAGE)

    assert entry == read_entry_document(document, entry.bin, entry.tag)
    assert document.body.isascii()


@settings(max_examples=40)
@given(ENTRIES, ENTRIES)
def test_merging_loses_nothing(old: BinEntry, new: BinEntry):
    """Two entries for an image make one with the tags of both, kept as long; once more changes nothing."""
    both = merged(old, new)

    assert {*old.tag_names, *new.tag_names} == set(both.tag_names)
    assert max(old.expires_at, new.expires_at) == both.expires_at
    assert max(old.recycled_at, new.recycled_at) == both.recycled_at
    assert both == merged(both, new)


def test_newer_values_win():
    """Of two values for a tag the later one counts, in whichever order they come."""
    old = replace(ENTRY, tags=(KeptTag("v1", NOON - DAY), KeptTag("v0")))
    new = replace(ENTRY, tags=(KeptTag("v1", NOON),), recycled_at=NOON + DAY)
    expected = (KeptTag("v0"), KeptTag("v1", NOON))

    assert expected == merged(old, new).tags
    assert expected == merged(new, old).tags


def _document(**changes: object) -> dict:
    return json.loads(write_entry(ENTRY, IMAGE).body) | changes


def _noted(**changes: object) -> dict:
    document = _document()
    document["annotations"] |= {f"{PREFIX}{k.replace('_', '-')}": v for k, v in changes.items()}
    return document


def _without(name: str) -> dict:
    document = _document()
    del document["annotations"][f"{PREFIX}{name}"]
    return document


ROW = {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 5}

DAMAGED = {
    "no annotations": _document(annotations=None),
    "annotations that are a list": _document(annotations=[]),
    "another version": _noted(version="2"),
    "another repository": _noted(repository="team/other"),
    "no image": _document(manifests=[]),
    "two images": _document(manifests=[ROW, ROW]),
    "another image": _document(manifests=[{**ROW, "digest": digest_of(b"other")}]),
    "no tags": _without("tags"),
    "no times": _without("expires-at"),
    "tags that are no JSON": _noted(tags="["),
    "tags that are nested without end": _noted(tags="[" * 100_000),
    "tags that are no list": _noted(tags="{}"),
    "a tag that is none": _noted(tags='[{"name": "a/b"}]'),
    "a tag without a name": _noted(tags="[{}]"),
    "a tag with a wrong value": _noted(tags='[{"name": "v1", "moved_at": 7}]'),
    "a time that is none": _noted(recycled_at="yesterday"),
    "a run that is none": _noted(run="seven"),
    "a subject that is none": _noted(subject="v1"),
    "a size that is none": _noted(size="large"),
    "a note that is no text": _noted(reason=3),
}


@pytest.mark.parametrize("document", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_entries_are_named(document: dict):
    """An entry that does not say what it must is an error that names it and says how to get the image."""
    body = json.dumps(document).encode()
    with pytest.raises(MetadataError, match=f"{ENTRY.bin}:{ENTRY.tag}.*--to"):
        read_entry_document(Manifest(digest_of(body), OCI_INDEX, body), ENTRY.bin, ENTRY.tag)


def test_notes_of_others_do_not_matter():
    """Annotations that are not ours are no damage."""
    body = json.dumps(_document(annotations=_document()["annotations"] | {"who": 1})).encode()

    assert ENTRY == read_entry_document(Manifest(digest_of(body), OCI_INDEX, body), ENTRY.bin, ENTRY.tag)


def test_more_tags_than_fit():
    """An image with more tags than a manifest can say is refused."""
    tags = tuple(KeptTag(f"{number:0128d}", datetime(2026, 1, 1, tzinfo=UTC)) for number in range(30_000))
    with pytest.raises(Refused, match="30000 tags"):
        write_entry(replace(ENTRY, tags=tags), IMAGE)
