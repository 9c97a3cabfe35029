"""The server that takes notifications, asked over a real line."""

from __future__ import annotations

import json
import queue
import socket
import struct
from collections.abc import Sequence
from contextlib import closing

import httpx
import pytest

from ebbtide.core.errors import EnvironmentProblem, StoreError
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST
from ebbtide.targets.oci.inventory.events import LARGEST_ENVELOPE, Event, Listener, listener_thread

A = f"sha256:{'a' * 64}"
PUSH = {
    "events": [
        {
            "action": "push",
            "timestamp": "2026-03-01T00:00:00Z",
            "target": {"mediaType": OCI_MANIFEST, "repository": "app", "tag": "v1", "digest": A},
        }
    ]
}
TOKEN = "open sesame"  # noqa: S105 (it opens nothing but the test)
EVENT = Event("push", "app", "v1", A, parse_instant("2026-03-01"))


def post(url: str, body: bytes, **headers: str) -> int:
    """Send a body and give the status of the answer."""
    return httpx.post(url, content=body, headers=headers, trust_env=False, timeout=120).status_code


def test_events_are_handed_on():
    """A notification is answered after its events were stored; one without any is nobody's business."""
    stored: list[Sequence[Event]] = []
    with listener_thread(stored.append) as listener:
        statuses = [post(listener.url, json.dumps(body).encode()) for body in (PUSH, {"events": []})]

    assert [200, 200] == statuses
    assert [[EVENT]] == stored


@pytest.mark.parametrize("failure", [StoreError("the disk is full"), KeyError("x")])
def test_events_that_cannot_be_stored(failure: Exception):
    """If storing fails the registry is told so, and the one who runs the server too."""

    def sink(_events: Sequence[Event]) -> None:
        raise failure

    words: list[str] = []
    with listener_thread(sink, on_trouble=words.append) as listener:
        status = post(listener.url, json.dumps(PUSH).encode())

    assert 503 == status
    assert 1 == len(words)


def test_what_is_no_notification():
    """Bad JSON, other methods, bodies without or with too great a length are refused and store nothing."""
    stored: list[Sequence[Event]] = []
    with listener_thread(stored.append) as listener:
        endless = httpx.post(listener.url, content=iter([b"{}"]), trust_env=False, timeout=120).status_code
        statuses = [
            post(listener.url, b"{"),
            httpx.get(listener.url, trust_env=False, timeout=120).status_code,
            endless,
            _claimed(listener, LARGEST_ENVELOPE + 1),
        ]

    assert [400, 501, 411, 413] == statuses
    assert [] == stored


def _claimed(listener: Listener, length: int) -> int:
    """Claim a length without sending a body, and give the status."""
    host, port = listener.url.removeprefix("http://").rstrip("/").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=120)) as line:
        line.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
        return int(line.recv(100).split()[1])


def test_a_line_that_breaks(capsys):
    """Who hangs up in the middle of a notification stores nothing, is told of, and makes no traceback."""
    stored: list[Sequence[Event]] = []
    words: queue.Queue[str] = queue.Queue()
    with listener_thread(stored.append, on_trouble=words.put) as listener:
        host, port = listener.url.removeprefix("http://").rstrip("/").split(":")
        with closing(socket.create_connection((host, int(port)))) as line:
            line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
            # Not to linger makes the other end see a reset.
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        said = words.get(timeout=120)

    assert "a notification was not answered (ConnectionResetError)" == said
    assert ([], ("", "")) == (stored, tuple(capsys.readouterr()))


def test_a_token():
    """Where a token is wanted nobody gets in without it."""
    stored: list[Sequence[Event]] = []
    body = json.dumps(PUSH).encode()
    with listener_thread(stored.append, token=TOKEN) as listener:
        statuses = [
            post(listener.url, body),
            post(listener.url, body, Authorization="Bearer wrong"),
            post(listener.url, body, Authorization=f"Bearer {TOKEN}"),
        ]

    assert [401, 401, 200] == statuses
    assert [[EVENT]] == stored


def test_a_port_that_is_taken():
    """A port that somebody else has is an error that says what to do."""
    with listener_thread(lambda _events: None) as listener:
        port = int(listener.url.rstrip("/").rsplit(":", 1)[1])
        with pytest.raises(EnvironmentProblem, match="choose another"):
            Listener(lambda _events: None, port=port)
