"""A proxy in front of an S3 server that makes trouble on request: busy answers, refusals, broken lines."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "keep-alive", "expect"}


@dataclass(frozen=True)
class Request:
    """One request as it arrived, numbered from 1."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    number: int


@dataclass(frozen=True)
class Response:
    """One answer; `sent` says how much of the body leaves before the line is cut, None for no answer."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    sent: int | None = -1
    reset: bool = False
    """Whether a line without an answer is torn down, and not just closed."""


When = Callable[[Request], bool]
What = Callable[[Request, Callable[[], Response]], Response]


def error(status: int, code: str) -> What:
    """Answer with an S3 error instead of asking the server."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
    return lambda _request, _forward: Response(status, {"Content-Type": "application/xml"}, body.encode())


slow_down = error(503, "SlowDown")
access_denied = error(403, "AccessDenied")


def dropped(_request: Request, _forward: Callable[[], Response]) -> Response:
    """Close the line without an answer."""
    return Response(0, sent=None)


def truncated(_request: Request, forward: Callable[[], Response]) -> Response:
    """Let the server answer, and cut the line in the middle of the body."""
    answer = forward()
    return replace(answer, sent=len(answer.body) // 2)


class _Server(ThreadingHTTPServer):
    """Serves many at once, and says nothing of those who hang up: tests look at what is on the terminal."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show what went wrong, unless the other end hung up: its task was killed, or it waited no longer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class FlakyProxy:
    """The proxy: forwards everything, the Host header included, so that signatures stay valid."""

    def __init__(self, upstream: str) -> None:
        self.move_to(upstream)
        self.requests: list[Request] = []
        self._rules: list[tuple[When, What, list[int]]] = []
        self._lock = threading.Lock()
        self.server = _Server(("127.0.0.1", 0), self._handler())

    @property
    def endpoint(self) -> str:
        """The URL to use in place of the server's."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def inject(self, when: When, what: What, times: int = 1_000_000) -> None:
        """Make trouble for the next `times` requests for which `when` holds."""
        self._rules.append((when, what, [times]))

    def clear(self) -> None:
        """Make no more trouble, and forget what was asked so far."""
        self._rules.clear()
        self.requests.clear()

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Note the request, find its rule, and answer by the rule or by the server."""
        path, _, query = target.partition("?")
        with self._lock:
            request = Request(method, unquote(path), query, headers, body, len(self.requests) + 1)
            self.requests.append(request)
            rule = next((r for r in self._rules if r[2][0] > 0 and r[0](request)), None)
            if rule:
                rule[2][0] -= 1

        def forward() -> Response:
            return self._forward(method, target, headers, body)

        return rule[1](request, forward) if rule else forward()

    def _forward(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send the request on as it came; a server that is down gives no answer."""
        line = http.client.HTTPConnection(self.upstream, timeout=60)
        with contextlib.closing(line), contextlib.suppress(OSError, http.client.HTTPException):
            line.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    line.putheader(name, value)
            line.putheader("Content-Length", str(len(body)))
            line.endheaders(body)
            answer = line.getresponse()
            return Response(answer.status, dict(answer.getheaders()), answer.read())
        return Response(0, sent=None)

    def move_to(self, upstream: str) -> None:
        """Send requests to another server from now on."""
        self.upstream = urlsplit(upstream).netloc

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        """Make the handler class that http.server wants."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            """Pass each request to the proxy and its answer back."""

            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each body waits 40 ms for its headers to be acknowledged

            def _serve(self) -> None:
                """Serve one request of any method."""
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                answer = proxy.answer(self.command, self.path, dict(self.headers.items()), body)
                if answer.sent is None:
                    self.close_connection = True
                    if answer.reset:
                        _tear_down(self.connection)
                    return
                self.send_response_only(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in _HOP_BY_HOP:
                        self.send_header(name, value)
                said = answer.headers.get("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", said or str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body if answer.sent < 0 else answer.body[: answer.sent])
                self.close_connection = self.close_connection or answer.sent >= 0

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 (http.server's names)

            def log_message(self, *_: object) -> None:
                """Say nothing on the terminal."""

        return Handler


def _tear_down(line: socket.socket) -> None:
    """Close a socket so that the other end gets a reset: it may not linger to say goodbye."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(line.detach())


@contextlib.contextmanager
def flaky_proxy(upstream: str) -> Iterator[FlakyProxy]:
    """Run a proxy in front of a server until the block ends."""
    proxy = FlakyProxy(upstream)
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()
        thread.join()
