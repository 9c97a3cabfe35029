"""
Notifications of registries: strict parsing, and a small server that receives them.

The format is that of Docker's distribution. Pulls are ignored, because a scan itself counts as one, and so is
everything that is not about a manifest. The server answers 200 only after the events have been stored: a
registry sends again what was not accepted. It listens on this machine only unless told otherwise, and can
require a token, since times decide what expires.
"""

from __future__ import annotations

import hmac
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ebbtide.core.errors import BadInput, EbbtideError, EnvironmentProblem
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.client.names import is_digest, is_repository, is_tag

PUSH, DELETE = "push", "delete"
LARGEST_ENVELOPE = 8 * 2**20
_BLOB = "application/octet-stream"
_UNSET = 1
"""The year of a time that a registry has not set."""


@dataclass(frozen=True)
class Event:
    """A manifest was pushed or deleted, under a tag or by its digest; a delete may name only one of them."""

    action: str
    repository: str
    tag: str
    """Empty if it was pushed or deleted by its digest."""
    digest: str
    at: datetime


def read_events(body: bytes) -> list[Event]:
    """Parse an envelope of events; BadInput if it is invalid, and then none of it counts."""
    if len(body) > LARGEST_ENVELOPE:
        raise _invalid(f"it is larger than {LARGEST_ENVELOPE} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise _invalid("it is not JSON") from None
    rows = document.get("events") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise _invalid("it has no list of events")
    return [event for row in rows for event in _parse_event(row)]


def _parse_event(row: object) -> Sequence[Event]:
    """Parse one event; return none if it is irrelevant."""
    if not isinstance(row, Mapping):
        raise _invalid("an event is not an object")
    action, target = row.get("action"), row.get("target")
    if not isinstance(action, str):
        raise _invalid("an event has no action")
    if action not in (PUSH, DELETE):
        return ()
    if not isinstance(target, Mapping):
        raise _invalid(f"a {action} has no target")
    if target.get("mediaType") == _BLOB or "/blobs/" in str(target.get("url") or ""):
        return ()
    tag, digest = _name(target, "tag", is_tag), _name(target, "digest", is_digest)
    repository = _name(target, "repository", is_repository)
    if not repository or not (digest or (action == DELETE and tag)):
        raise _invalid(f"a {action} does not say what it is about")
    return (Event(action, repository, tag, digest, _time(row)),)


def _name(target: Mapping[str, Any], name: str, is_good: Any) -> str:
    value = target.get(name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not is_good(value):
        raise _invalid(f"{str(value)[:200]!r} is no {name}")
    return value


def _time(row: Mapping[str, Any]) -> datetime:
    text = row.get("timestamp")
    try:
        found = parse_instant(text) if isinstance(text, str) else None
    except BadInput:
        found = None
    if found is None or found.year == _UNSET:
        raise _invalid("an event has no time")
    return found


def _invalid(why: str) -> BadInput:
    return BadInput(
        "a notification cannot be understood", why=why, fix="send notifications of the distribution registry"
    )


Sink = Callable[[Sequence[Event]], None]
"""Stores events; when it returns they are safe, and when it raises they are sent again."""
OnTrouble = Callable[[str], None]
"""Called with a description of what was refused, and why."""

_SECONDS = 30


def _ignore(_words: str) -> None:
    """Report nothing."""


class _Server(ThreadingHTTPServer):
    """Serves each request in a thread; a broken connection is reported in words, without a traceback."""

    daemon_threads = True
    on_trouble: OnTrouble = staticmethod(_ignore)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (both are the caller's)
        """Report that a request got no answer: the registry sends it again."""
        self.on_trouble(f"a notification was not answered ({type(sys.exception()).__name__})")


class Listener:
    """A server at a host and port; 0 is any free port. Close it when done."""

    def __init__(
        self,
        sink: Sink,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        on_trouble: OnTrouble = _ignore,
    ) -> None:
        self._sink, self._token, self._on_trouble = sink, token, on_trouble
        try:
            self._server = _Server((host, port), _handler(self))
        except (OSError, OverflowError) as failure:
            raise EnvironmentProblem(
                f"cannot listen at {host}:{port} ({type(failure).__name__})",
                fix="choose another host or port",
            ) from None
        self._server.on_trouble = on_trouble
        self.url = f"http://{host}:{self._server.server_port}/"

    def serve(self) -> None:
        """Receive notifications until `stop` is called from another thread."""
        self._server.serve_forever(0.1)

    def stop(self) -> None:
        """Let `serve` return; it must have begun."""
        self._server.shutdown()

    def close(self) -> None:
        """Release the port."""
        self._server.server_close()

    def take(self, body: bytes, authorization: str) -> HTTPStatus:
        """Store the events of a request, and return the status to answer."""
        if self._token and not hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode()):
            self._on_trouble("a notification without the right token was refused")
            return HTTPStatus.UNAUTHORIZED
        try:
            events = read_events(body)
        except BadInput as bad:
            self._on_trouble(str(bad))
            return HTTPStatus.BAD_REQUEST
        try:
            if events:
                self._sink(events)
        except EbbtideError as failure:
            self._on_trouble(str(failure))
            return HTTPStatus.SERVICE_UNAVAILABLE
        except Exception as failure:  # noqa: BLE001 (whatever it is, the registry must keep the events)
            self._on_trouble(f"events could not be stored ({type(failure).__name__})")
            return HTTPStatus.SERVICE_UNAVAILABLE
        return HTTPStatus.OK


def _handler(listener: Listener) -> type[BaseHTTPRequestHandler]:
    """Return the handler class that http.server needs."""

    class Handler(BaseHTTPRequestHandler):
        """Read a request within limits, and answer without a body."""

        timeout = _SECONDS

        def do_POST(self) -> None:
            """Take one notification."""
            text = self.headers.get("Content-Length", "")
            if not (text.isascii() and text.isdecimal()):
                return self._answer(HTTPStatus.LENGTH_REQUIRED)
            if len(text) > 9 or int(text) > LARGEST_ENVELOPE:
                return self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            body = self.rfile.read(int(text))
            if len(body) < int(text):
                return self._answer(HTTPStatus.BAD_REQUEST)
            return self._answer(listener.take(body, self.headers.get("Authorization", "")))

        def _answer(self, status: HTTPStatus) -> None:
            self.send_response_only(status)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return Handler


@contextmanager
def listener_thread(sink: Sink, **options: Any) -> Iterator[Listener]:
    """Run a listener in a thread until the block ends; the options are those of Listener."""
    listener = Listener(sink, **options)
    thread = threading.Thread(target=listener.serve, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.stop()
        thread.join()
        listener.close()
