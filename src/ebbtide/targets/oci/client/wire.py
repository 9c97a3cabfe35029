"""
One line to one registry: every request goes through here, and so do its time limits, retries and secrets.

Redirects are followed by hand, since a header with a password or token must never reach another host. In a
rehearsal every request is checked to stay on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from ebbtide.core.errors import MetadataError, SlowDown, StoreError
from ebbtide.storage.network import check_answers, check_loopback
from ebbtide.storage.rate_limit import Backoff
from ebbtide.targets.oci.base import Bytes
from ebbtide.targets.oci.client.authorization import Authorization, FindCredentials, Scopes
from ebbtide.targets.oci.client.failures import BROKEN, BUSY, NEVER_SENT, broken, fail, wanted_wait
from ebbtide.targets.oci.client.options import Credentials, RegistryOptions

USER_AGENT = "ebbtide (inventory and purge; not a pull)"
"""Registries count what we read as pulls; by this name their logs and events can tell them apart."""

_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_HOPS = 5
_LONGEST_WAIT = 120.0
_MOST_OF_A_SMALL_ANSWER = 16 * 2**20


@dataclass(frozen=True)
class Ask:
    """One request: what for, in words that fit after "could not"; where; and the rights it needs."""

    what: str
    method: str
    url: str
    scopes: Scopes = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Bytes = b""
    good: frozenset[int] = frozenset({200})
    """Answers to give back; others become errors."""
    limit: int = _MOST_OF_A_SMALL_ANSWER

    @property
    def is_repeatable(self) -> bool:
        """Tell whether sending it twice does what sending it once does; half an upload may have arrived."""
        return self.method in _SAFE_TO_REPEAT and isinstance(self.body, bytes)


@dataclass(frozen=True)
class Answer:
    """A whole answer, and the URL that gave it."""

    status: int
    headers: httpx.Headers
    body: bytes
    url: httpx.URL


class Wire:
    """A line to a registry. It may be used by several threads."""

    def __init__(
        self,
        origin: str,
        options: RegistryOptions,
        credentials: Credentials,
        backoff: Backoff,
        *,
        proxies: bool,
        find: FindCredentials | None = None,
    ) -> None:
        self.origin = httpx.URL(origin)
        check_answers(origin, "the registry")
        self._options, self._backoff = options, backoff
        self._http = httpx.Client(
            timeout=options.timeout,
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # they would reach other ports
            follow_redirects=False,
            trust_env=proxies,
            event_hooks={"request": [_check_local] if options.local_only else []},
        )
        self._authorization = Authorization(self.origin, credentials, self._fetch_token, find)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, ask: Ask) -> Answer:
        """Send a request and read the whole answer, again while the server is busy or the line breaks."""
        with self._retried(ask, whole=True) as (response, body):
            return Answer(response.status_code, response.headers, body, response.url)

    @contextmanager
    def stream(self, ask: Ask) -> Iterator[httpx.Response]:
        """Send a request and give the answer before its body is read; only its beginning is tried again."""
        with self._retried(ask, whole=False) as (response, _):
            yield response

    @contextmanager
    def _retried(self, ask: Ask, *, whole: bool) -> Iterator[tuple[httpx.Response, bytes]]:
        last: Exception | None = None
        for attempt in self._backoff.attempts():
            try:
                response = self._with_rights(ask)
                good = response.status_code in ask.good
                body = self._read(response, ask) if whole or not good else b""
            except BROKEN as error:
                last = error
                if ask.is_repeatable or isinstance(error, NEVER_SENT):
                    continue
                break
            if good:
                try:
                    yield response, body
                finally:
                    response.close()
                return
            again = response.status_code == 429 or (response.status_code in BUSY and ask.is_repeatable)
            if not again or attempt + 1 == self._backoff.tries:
                fail(response.status_code, body, ask.what)
            self._wait(response, ask)
        raise broken(last or StoreError("no try was made"), ask.what) from None

    def _wait(self, response: httpx.Response, ask: Ask) -> None:
        """Wait as long as the server asks, unless that is longer than a run should stand still."""
        seconds = wanted_wait(response.headers)
        if seconds > _LONGEST_WAIT:
            raise SlowDown(
                f"the registry could not {ask.what}",
                why=f"it answered {response.status_code} and wants no request for {seconds:.0f} seconds",
                fix="run again after that",
            )
        if seconds:
            self._backoff.sleep(seconds)

    def _with_rights(self, ask: Ask) -> httpx.Response:
        """Send with what we know of getting in; a 401 is answered once with a new token."""
        header = self._authorization.header(ask.scopes)
        response = self._follow(ask, header)
        if response.status_code != 401 or not self._is_home(response.url):
            return response
        try:
            renewed = self._authorization.renew(response, ask.scopes, header)
        except BaseException:
            response.close()
            raise
        if not renewed:
            return response
        response.close()
        return self._follow(ask, self._authorization.header(ask.scopes))

    def _follow(self, ask: Ask, authorization: str) -> httpx.Response:
        """Send a request and follow where it leads; other hosts get no secret and no plain http."""
        url = self.resolve(self.origin, ask.url)
        for _ in range(_MOST_HOPS + 1):
            if self.origin.scheme == "https" and url.scheme != "https":
                raise StoreError(
                    f"the registry sent us to plain http when it was to {ask.what}",
                    why="whoever listens on the way could read and change what is sent",
                    fix="set the registry's public address to https",
                )
            headers = dict(ask.headers)
            if authorization and self._is_home(url):
                headers["Authorization"] = authorization
            content = ask.body if isinstance(ask.body, bytes) else ask.body()
            request = self._http.build_request(ask.method, url, headers=headers, content=content or None)
            response = self._http.send(request, stream=True)
            target = response.headers.get("location", "")
            if response.status_code not in _REDIRECTS or ask.method not in ("GET", "HEAD") or not target:
                return response
            response.close()
            url = self.resolve(url, target)
        raise StoreError(
            f"the registry could not {ask.what}", why=f"it redirects more than {_MOST_HOPS} times"
        )

    def resolve(self, base: httpx.URL, target: str) -> httpx.URL:
        """Make a URL that an answer gave whole; one that is none is an error."""
        try:
            return base.join(target)
        except httpx.InvalidURL:
            raise MetadataError(
                f"the registry at {self.origin.host} gave an address that is none",
                fix="check the registry's settings",
            ) from None

    def _is_home(self, url: httpx.URL) -> bool:
        return _place(url) == _place(self.origin)

    def _read(self, response: httpx.Response, ask: Ask) -> bytes:
        """Read a whole answer, but not without limits."""
        parts, size, start = [], 0, time.monotonic()
        try:
            for part in response.iter_raw():
                size += len(part)
                if size > ask.limit:
                    raise MetadataError(
                        f"the registry could not {ask.what}",
                        why=f"its answer is larger than {ask.limit} bytes",
                        fix="look at it with a registry tool",
                    )
                if time.monotonic() - start > self._options.patience:
                    raise httpx.ReadTimeout("too slow")
                parts.append(part)
        finally:
            response.close()
        return b"".join(parts)

    def _fetch_token(self, url: httpx.URL, headers: dict[str, str]) -> bytes:
        """Ask for a token. A redirect is not followed: it would take the password elsewhere."""
        ask = Ask(f"get a token from {url.host}", "GET", str(url), limit=2**20)
        last: Exception | None = None
        for attempt in self._backoff.attempts():
            try:
                response = self._http.send(self._http.build_request("GET", url, headers=headers), stream=True)
                body = self._read(response, ask)
            except BROKEN as error:
                last = error
                continue
            if response.status_code == 200:
                return body
            if response.status_code not in BUSY or attempt + 1 == self._backoff.tries:
                fail(response.status_code, body, ask.what)
            self._wait(response, ask)
        raise broken(last or StoreError("no try was made"), ask.what) from None


def _check_local(request: httpx.Request) -> None:
    """Stop before a request leaves this machine, wherever a redirect, an upload or a token leads."""
    check_loopback(request.url.host, f"{request.url.host}, where the registry sends us,")


def _place(url: httpx.URL) -> tuple[str, str, int | None]:
    """Give what makes two URLs one origin; the usual port counts as none."""
    return url.scheme, url.host, url.port
