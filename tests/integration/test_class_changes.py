"""Changing the storage class of an object where it lies, on a real S3 server."""

import pytest
from tests.services.moving import ABOUT, SMALL_PARTS, buckets

from ebbtide.core.decision import Outcome
from ebbtide.storage import s3_objects
from ebbtide.storage.s3_copy import Sizes
from ebbtide.targets.s3.model import Versioning

__all__ = ["buckets"]

OWN_KEY = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:aws:kms:eu-central-1:1:key/k"}
REDIRECT = {"WebsiteRedirectLocation": "/elsewhere"}


class Crash(Exception):
    """The process dies."""


@pytest.fixture
def yard(buckets, tmp_path):
    """Lay out places around a bucket without versions."""
    return buckets.yard(Versioning.DISABLED, tmp_path)


@pytest.fixture
def kept(buckets, tmp_path):
    """Lay out places around a bucket that keeps versions."""
    return buckets.yard(Versioning.ENABLED, tmp_path)


def test_a_change_of_class_is_denied_in_the_words_of_the_store(yard):
    """SeaweedFS copies no object onto itself; the outcome says so and the object is as it was."""
    planned = yard.put(**ABOUT)
    result = yard.move(planned, "STANDARD_IA")

    assert Outcome.DENIED is result.outcome
    assert "illegal" in result.reason
    assert planned.body == yard.current(planned.key)


@pytest.mark.parametrize("sizes", [Sizes(), SMALL_PARTS])
def test_a_change_of_class_keeps_everything_else(yard, sizes, monkeypatch):
    """Where the store allows it the object changes its class in place, with its metadata and tags."""
    allow_copies_onto_themselves(yard, monkeypatch)
    planned = yard.put(b"x" * 4096, Tagging="a=1", **ABOUT)
    result = yard.move(planned, "STANDARD_IA", sizes=sizes)
    found = yard.client.head_object(Bucket=yard.bucket, Key=planned.key)
    tags = yard.client.get_object_tagging(Bucket=yard.bucket, Key=planned.key)["TagSet"]

    assert (Outcome.DELETED, "now STANDARD_IA") == (result.outcome, result.reason)
    assert {**ABOUT, "StorageClass": "STANDARD_IA"} == {n: found[n] for n in (*ABOUT, "StorageClass")}
    assert [{"Key": "a", "Value": "1"}] == tags
    assert planned.body == yard.current(planned.key)


def test_a_change_of_class_is_not_made_twice(yard, monkeypatch):
    """An attempt that finds the class changed by an interrupted one says that it is done."""
    allow_copies_onto_themselves(yard, monkeypatch)
    planned = yard.put()
    with pytest.raises(Crash):
        yard.move(planned, "STANDARD_IA", on_step=crash_when_changed)
    results = [yard.move(planned, "STANDARD_IA", resumed=resumed) for resumed in (True, False)]

    assert [Outcome.DELETED, Outcome.ABSENT] == [result.outcome for result in results]


def test_a_version_changes_its_class_by_no_copy(kept):
    """In a bucket with versions a copy would be a new version with a new age, so it is denied."""
    planned = kept.put()
    result = kept.move(planned, "STANDARD_IA")
    found = kept.client.list_object_versions(Bucket=kept.bucket, Prefix=planned.key)

    assert (Outcome.DENIED, True) == (result.outcome, "new version" in result.reason)
    assert 1 == len(found["Versions"])


@pytest.mark.parametrize("sizes", [Sizes(), SMALL_PARTS])
def test_a_key_of_somebodys_own_and_a_redirection_are_asked_for(yard, sizes, monkeypatch):
    """A server gives a copy its usual key and no redirection, so both are named beside the class."""
    asked = []

    def told(parsed, **_):
        parsed |= OWN_KEY | REDIRECT

    def taken(params, **_):
        asked.append(params)
        raise Crash

    with_hooks(
        monkeypatch,
        {
            "after-call.s3.HeadObject": told,
            "before-parameter-build.s3.CopyObject": taken,
            "before-parameter-build.s3.CreateMultipartUpload": taken,
        },
    )
    planned = yard.put(b"x" * 4096)
    with pytest.raises(Crash):
        yard.move(planned, "STANDARD_IA", sizes=sizes, on_step=print)
    wanted = {**OWN_KEY, **REDIRECT, "StorageClass": "STANDARD_IA"}

    assert [wanted] == [{name: params[name] for name in wanted} for params in asked]


def crash_when_changed(step):
    """Die as soon as the class is changed."""
    if step == "class changed":
        raise Crash


def allow_copies_onto_themselves(yard, monkeypatch):
    """
    Let the server take a copy onto itself, as AWS does.

    SeaweedFS takes one only if it is told all metadata anew, so the request is put in those words on its way.
    """

    def reworded(params, **_):
        if params.get("MetadataDirective") == "COPY":
            found = yard.client.head_object(Bucket=params["Bucket"], Key=params["Key"])
            params |= {name: found[name] for name in ABOUT if name in found}
            params["MetadataDirective"] = "REPLACE"

    with_hooks(monkeypatch, {"before-parameter-build.s3.CopyObject": reworded})


def with_hooks(monkeypatch, hooks):
    """Let every client that is opened from now on call these at its events."""
    connect = s3_objects.connect

    def connected(options):
        client = connect(options)
        for event, hook in hooks.items():
            client.meta.events.register(event, hook)
        return client

    monkeypatch.setattr(s3_objects, "_opened", {})
    monkeypatch.setattr(s3_objects, "connect", connected)
