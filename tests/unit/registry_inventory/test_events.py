"""Notifications: what is read from an envelope, what is left out, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ebbtide.core.errors import BadInput
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST
from ebbtide.targets.oci.inventory.events import LARGEST_ENVELOPE, Event, read_events

A = f"sha256:{'a' * 64}"
AT = "2026-03-01T10:11:12.123456789Z"
TIME = parse_instant("2026-03-01T10:11:12.123456Z")
TARGET = {"mediaType": OCI_MANIFEST, "repository": "team/app", "tag": "v1", "digest": A}


def event(action: str = "push", timestamp: object = AT, **target: object) -> dict[str, Any]:
    """Write an event as the registry does; a field of the target that is None is left out."""
    fields = {name: value for name, value in (TARGET | target).items() if value is not None}
    return {"id": "1", "timestamp": timestamp, "action": action, "target": fields, "request": {}}


def envelope(*events: object) -> bytes:
    """Write an envelope."""
    return json.dumps({"events": events}).encode()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (event(), [Event("push", "team/app", "v1", A, TIME)]),
        (event(tag=None), [Event("push", "team/app", "", A, TIME)]),
        (event("delete", tag=None, mediaType=None), [Event("delete", "team/app", "", A, TIME)]),
        (event("delete", digest=None, mediaType=None), [Event("delete", "team/app", "v1", "", TIME)]),
        (event(timestamp="2026-03-01T11:11:12.123456+01:00"), [Event("push", "team/app", "v1", A, TIME)]),
        (event("pull"), []),
        (event("mount"), []),
        (event(mediaType="application/octet-stream", tag=None), []),
        (event(mediaType="application/vnd.x", url=f"http://h/v2/team/app/blobs/{A}", tag=None), []),
    ],
)
def test_what_is_read(row, expected):
    """Pushes and deletes of manifests are read; pulls, blobs and what else registries tell are left out."""
    assert expected == read_events(envelope(row))


def test_the_order_is_kept():
    """Events come in the order in which the registry tells them."""
    rows = [event(tag=f"v{number}") for number in range(5)]

    assert ["v0", "v1", "v2", "v3", "v4"] == [one.tag for one in read_events(envelope(*rows))]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"events": {}}',
        b'{"events": [1]}',
        b"\xff\xfe",
        envelope({"target": TARGET}),
        envelope({"action": 1}),
        envelope({"action": "push", "timestamp": AT}),
        envelope(event(digest=None)),
        envelope(event(digest="sha256:a")),
        envelope(event(digest=5)),
        envelope(event(repository=None)),
        envelope(event(repository="../etc")),
        envelope(event(tag="-x")),
        envelope(event(timestamp=None)),
        envelope(event(timestamp="soon")),
        envelope(event(timestamp="0001-01-01T00:00:00Z")),
        envelope(event("delete", digest=None, tag=None)),
        envelope(event(), event(digest="no")),
        b" " * (LARGEST_ENVELOPE + 1),
    ],
)
def test_what_is_refused(body):
    """An envelope that is not wholly understood is refused, also if only one of its events is bad."""
    with pytest.raises(BadInput, match="cannot be understood"):
        read_events(body)
