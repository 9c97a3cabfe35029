"""
A small server that takes a registry's notifications.

It says 200 only after the events have been stored: a registry sends again what was not taken. It listens on
this machine alone unless told otherwise, and can ask for a token, since times decide what may go.
"""

from __future__ import annotations

import hmac
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ebbtide.core.errors import BadInput, EbbtideError, EnvironmentProblem
from ebbtide.targets.oci.inventory.events import LARGEST_ENVELOPE, Event, read_events

Sink = Callable[[Sequence[Event]], None]
"""Stores events; when it returns they are safe, and when it raises they come again."""
OnTrouble = Callable[[str], None]
"""Told in words what was not taken, and why."""

_SECONDS = 30


def _say_nothing(_words: str) -> None:
    """Tell nobody."""


class _Server(ThreadingHTTPServer):
    """Serves each request in a thread; a line that breaks is told in words, and is no traceback."""

    daemon_threads = True
    on_trouble: OnTrouble = staticmethod(_say_nothing)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (both are the caller's)
        """Tell that nobody got an answer: the registry sends again what it has none for."""
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
        on_trouble: OnTrouble = _say_nothing,
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
        """Take notifications until `stop` is called from another thread."""
        self._server.serve_forever(0.1)

    def stop(self) -> None:
        """Let `serve` return; it must have begun."""
        self._server.shutdown()

    def close(self) -> None:
        """Let go of the port."""
        self._server.server_close()

    def take(self, body: bytes, authorization: str) -> HTTPStatus:
        """Store what a request brings, and say how it went."""
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
    """Make the handler class that http.server wants."""

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
            """Say nothing on the terminal."""

    return Handler


@contextmanager
def listening(sink: Sink, **options: Any) -> Iterator[Listener]:
    """Listen in a thread until the block ends; the options are those of Listener."""
    listener = Listener(sink, **options)
    thread = threading.Thread(target=listener.serve, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.stop()
        thread.join()
        listener.close()
