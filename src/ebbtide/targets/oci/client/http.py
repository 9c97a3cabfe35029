"""
HTTP requests to a registry: time limits, retries, redirects, pages, and errors in our words.

Redirects are followed here and not by httpx, since a header with a password or token must never reach another
host. In a rehearsal every request is checked to stay on this machine. Errors never quote the registry's own
text, which may repeat a secret. A listing is followed to its end or raises: one that merely stops would lose
tags.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import NoReturn
from urllib.parse import quote

import httpx

from ebbtide.core.errors import Denied, MetadataError, NotFound, SlowDown, StoreError, Unsupported
from ebbtide.storage.network import check_answers, check_loopback
from ebbtide.storage.rate_limit import Backoff
from ebbtide.targets.oci.client.authorization import Authorization, FindCredentials, Scopes
from ebbtide.targets.oci.client.credentials import Credentials
from ebbtide.targets.oci.client.manifest import parse_object
from ebbtide.targets.oci.client.registry import Bytes, RegistryOptions

BUSY = frozenset({408, 429, 500, 502, 503, 504})
BROKEN_CONNECTION = (httpx.TransportError,)
"""Connections that break, time out, or end before the answer does."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,40}", re.ASCII)
_MISSING_PART = frozenset({"MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN"})


def error_codes(body: bytes) -> tuple[str, ...]:
    """Return the codes of an error answer, such as MANIFEST_UNKNOWN, and nothing else of it."""
    try:
        rows = json.loads(body)["errors"]
        found = [row["code"] for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(code for code in found if isinstance(code, str) and _CODE.fullmatch(code))


def raise_refusal(status: int, body: bytes, what: str) -> NoReturn:
    """Raise the refusal of a registry as one of our errors."""
    codes = error_codes(body)
    said = _status_text(status, codes)
    if status == 401:
        raise Denied(
            f"the registry does not permit us to {what}",
            why=said,
            fix="log in with docker or podman login, or set EBBTIDE_REGISTRY_USERNAME and _PASSWORD",
        )
    if status == 403:
        raise Denied(
            f"the registry does not permit us to {what}",
            why=said,
            fix="give this user the right to do it, or unlock the image",
        )
    if status == 404 or (status == 400 and _MISSING_PART & set(codes)):
        raise NotFound(
            f"the registry could not {what}", why=said, fix="check the names; the image may be gone"
        )
    if status in (405, 501) or (status == 400 and "UNSUPPORTED" in codes):
        raise unsupported(status, body, what)
    if status in (429, 503):
        raise SlowDown(
            f"the registry kept asking for fewer requests while asked to {what}",
            why=said,
            fix="try again later, or with fewer tasks",
        )
    raise StoreError(f"the registry failed to {what}", why=said, fix="try again later, or see its log")


def unsupported(status: int, body: bytes, what: str) -> Unsupported:
    """Return the error for something that a registry does not support."""
    return Unsupported(
        f"the registry cannot {what}",
        why=_status_text(status, error_codes(body)),
        fix="switch it on in the registry's settings, if it has it; see docs/reference/registries.md",
    )


def _status_text(status: int, codes: tuple[str, ...]) -> str:
    return f"the registry answered {status} {' '.join(codes)}".rstrip()


def connection_error(error: Exception, what: str) -> StoreError:
    """Return the error for a broken connection; only its kind is named, since its text may have a URL."""
    return StoreError(
        f"the registry could not be asked to {what}",
        why=f"the connection broke at every try ({type(error).__name__})",
        fix="check the address and the network, then try again",
    )


def retry_after(headers: httpx.Headers) -> float:
    """
    Return how many seconds the server asks us to wait; 0 if it does not ask.

    A date is counted from the server's own clock, so that ours need not agree with it.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    until, now = _date(text), _date(headers.get("date", ""))
    return max(0.0, (until - now).total_seconds()) if until and now else 0.0


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return found if found.tzinfo else None


USER_AGENT = "ebbtide (inventory and purge; not a pull)"
"""Registries count our reads as pulls; with this name their logs and events can tell them apart."""

_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_LONGEST_WAIT = 120.0
_LARGEST_SMALL_RESPONSE = 16 * 2**20


@dataclass(frozen=True)
class Request:
    """One request: its purpose, in words that fit after "could not", its URL, and the rights it needs."""

    what: str
    method: str
    url: str
    scopes: Scopes = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Bytes = b""
    good: frozenset[int] = frozenset({200})
    """Status codes to return; others become errors."""
    limit: int = _LARGEST_SMALL_RESPONSE

    @property
    def is_repeatable(self) -> bool:
        """Return True if sending it twice has the effect of sending it once; streamed uploads have not."""
        return self.method in _SAFE_TO_REPEAT and isinstance(self.body, bytes)


@dataclass(frozen=True)
class Response:
    """A complete answer, and the URL that gave it."""

    status: int
    headers: httpx.Headers
    body: bytes
    url: httpx.URL


class Connection:
    """A connection to a registry. Several threads may use it."""

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
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # cookies would reach other ports
            follow_redirects=False,
            trust_env=proxies,
            event_hooks={"request": [_check_local] if options.local_only else []},
        )
        self._authorization = Authorization(self.origin, credentials, self._fetch_token, find)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, request: Request) -> Response:
        """Send a request and read the whole answer; retry while the server is busy or the line breaks."""
        with self._retried(request, whole=True) as (response, body):
            return Response(response.status_code, response.headers, body, response.url)

    @contextmanager
    def stream(self, request: Request) -> Iterator[httpx.Response]:
        """Send a request and return the answer before its body is read; only its start is retried."""
        with self._retried(request, whole=False) as (response, _):
            yield response

    @contextmanager
    def _retried(self, request: Request, *, whole: bool) -> Iterator[tuple[httpx.Response, bytes]]:
        last: Exception | None = None
        for attempt in self._backoff.attempts():
            try:
                response = self._with_rights(request)
                good = response.status_code in request.good
                body = self._read(response, request) if whole or not good else b""
            except BROKEN_CONNECTION as error:
                last = error
                if request.is_repeatable or isinstance(error, NEVER_SENT):
                    continue
                break
            if good:
                try:
                    yield response, body
                finally:
                    response.close()
                return
            again = response.status_code == 429 or (response.status_code in BUSY and request.is_repeatable)
            if not again or attempt + 1 == self._backoff.tries:
                raise_refusal(response.status_code, body, request.what)
            self._wait(response, request)
        raise connection_error(last or StoreError("no try was made"), request.what) from None

    def _wait(self, response: httpx.Response, request: Request) -> None:
        """Wait as long as the server asks, unless that is longer than a run should pause."""
        seconds = retry_after(response.headers)
        if seconds > _LONGEST_WAIT:
            raise SlowDown(
                f"the registry could not {request.what}",
                why=f"it answered {response.status_code} and asks for no request for {seconds:.0f} seconds",
                fix="run again after that",
            )
        if seconds:
            self._backoff.sleep(seconds)

    def _with_rights(self, request: Request) -> httpx.Response:
        """Send with the known authorization; a 401 is answered once with a new token."""
        header = self._authorization.header(request.scopes)
        response = self._follow(request, header)
        if response.status_code != 401 or not self._is_home(response.url):
            return response
        try:
            renewed = self._authorization.renew(response, request.scopes, header)
        except BaseException:
            response.close()
            raise
        if not renewed:
            return response
        response.close()
        return self._follow(request, self._authorization.header(request.scopes))

    def _follow(self, request: Request, authorization: str) -> httpx.Response:
        """Send a request and follow redirects; other hosts get no secret, and never plain http."""
        url = self.resolve(self.origin, request.url)
        for _ in range(_MOST_REDIRECTS + 1):
            if self.origin.scheme == "https" and url.scheme != "https":
                raise StoreError(
                    f"the registry redirected to plain http when asked to {request.what}",
                    why="anyone on the network could read and change what is sent",
                    fix="set the registry's public address to https",
                )
            headers = dict(request.headers)
            if authorization and self._is_home(url):
                headers["Authorization"] = authorization
            content = request.body if isinstance(request.body, bytes) else request.body()
            built = self._http.build_request(request.method, url, headers=headers, content=content or None)
            response = self._http.send(built, stream=True)
            target = response.headers.get("location", "")
            if response.status_code not in _REDIRECTS or request.method not in ("GET", "HEAD") or not target:
                return response
            response.close()
            url = self.resolve(url, target)
        raise StoreError(
            f"the registry could not {request.what}", why=f"it redirects more than {_MOST_REDIRECTS} times"
        )

    def resolve(self, base: httpx.URL, target: str) -> httpx.URL:
        """Resolve a URL from an answer; an invalid one is an error."""
        try:
            return base.join(target)
        except httpx.InvalidURL:
            raise MetadataError(
                f"the registry at {self.origin.host} gave an invalid address",
                fix="check the registry's settings",
            ) from None

    def _is_home(self, url: httpx.URL) -> bool:
        return _origin_of(url) == _origin_of(self.origin)

    def _read(self, response: httpx.Response, request: Request) -> bytes:
        """Read a whole answer, within limits of size and time."""
        parts, size, start = [], 0, time.monotonic()
        try:
            for part in response.iter_raw():
                size += len(part)
                if size > request.limit:
                    raise MetadataError(
                        f"the registry could not {request.what}",
                        why=f"its answer is larger than {request.limit} bytes",
                        fix="look at it with a registry tool",
                    )
                if time.monotonic() - start > self._options.patience:
                    raise httpx.ReadTimeout("too slow")
                parts.append(part)
        finally:
            response.close()
        return b"".join(parts)

    def _fetch_token(self, url: httpx.URL, headers: dict[str, str]) -> bytes:
        """Request a token. A redirect is not followed: it would take the password elsewhere."""
        request = Request(f"get a token from {url.host}", "GET", str(url), limit=2**20)
        last: Exception | None = None
        for attempt in self._backoff.attempts():
            try:
                response = self._http.send(self._http.build_request("GET", url, headers=headers), stream=True)
                body = self._read(response, request)
            except BROKEN_CONNECTION as error:
                last = error
                continue
            if response.status_code == 200:
                return body
            if response.status_code not in BUSY or attempt + 1 == self._backoff.tries:
                raise_refusal(response.status_code, body, request.what)
            self._wait(response, request)
        raise connection_error(last or StoreError("no try was made"), request.what) from None


def _check_local(request: httpx.Request) -> None:
    """Stop before a request leaves this machine, wherever a redirect, an upload or a token leads."""
    check_loopback(request.url.host, f"{request.url.host}, to which the registry redirects,")


def _origin_of(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return what makes two URLs one origin; httpx gives the default port as None."""
    return url.scheme, url.host, url.port


_MOST_EMPTY_PAGES = 100


def pages(connection: Connection, request: Request) -> Iterator[Response]:
    """Stream the pages of an answer; a page that leads back to an earlier one is an error."""
    seen: set[str] = set()
    url = str(connection.origin.join(request.url))
    while url:
        if url in seen:
            raise _incomplete_listing(
                request.what, "a page leads back to an earlier one, so the rest cannot be found"
            )
        seen.add(url)
        answer = connection.send(
            Request(request.what, "GET", url, request.scopes, request.headers, good=request.good)
        )
        yield answer
        url = _next_page(connection, answer, request.what)


def listed_names(
    connection: Connection, request: Request, key: str, page: int, is_name: Callable[[str], bool]
) -> Iterator[str]:
    """
    Stream the names of a listing, each once.

    Some registries cut a list at the requested size without saying so: after a full last page they are asked
    once more for what follows it.
    """
    what, seen = request.what, set[str]()
    url: str | None = f"{request.url}?n={page}"
    while url is not None:
        found: list[str] = []
        empty = 0
        asked_again = bool(seen)
        for response in pages(connection, replace(request, url=url)):
            found = _parse_page(response.body, key, what, is_name)
            fresh = [name for name in dict.fromkeys(found) if name not in seen]
            if found and not fresh and not asked_again:
                raise _incomplete_listing(what, "a page came twice, so the rest cannot be found")
            empty = 0 if found else empty + 1
            if empty > _MOST_EMPTY_PAGES:
                raise _incomplete_listing(what, f"{empty} pages in a row were empty, each with a next one")
            seen.update(fresh)
            yield from fresh
            asked_again = asked_again and not fresh
        full = len(found) >= page and not asked_again
        url = f"{request.url}?n={page}&last={quote(found[-1], safe='')}" if full else None


def _parse_page(body: bytes, key: str, what: str, is_name: Callable[[str], bool]) -> list[str]:
    """Parse the names on one page; null means none, and a missing list is a broken answer."""
    document = parse_object(body, f"the answer when asked to {what}")
    if key not in document:
        raise _incomplete_listing(what, f"the answer has no {key}")
    rows = document[key]
    if rows is None:
        return []
    if not isinstance(rows, list):
        raise _incomplete_listing(what, f"{key} is not a list")
    for row in rows:
        if not isinstance(row, str) or not is_name(row):
            raise _incomplete_listing(what, f"{row!r} among the {key} is not a valid name")
    return rows


def _next_page(connection: Connection, answer: Response, what: str) -> str:
    """Return the URL of the next page; empty at the end."""
    header = ", ".join(answer.headers.get_list("link"))
    try:
        links = httpx.Response(200, headers={"link": header}).links if header else {}
    except (ValueError, IndexError):
        raise _incomplete_listing(what, "its header Link cannot be understood") from None
    target = links.get("next", {}).get("url")
    if header and target is None:
        raise _incomplete_listing(what, "its header Link names no next page")
    if target is None:
        return ""
    url = connection.resolve(answer.url, target)
    if (url.host, url.port) != (connection.origin.host, connection.origin.port):
        raise _incomplete_listing(what, "its next page is on another host")
    return str(url.copy_with(scheme=connection.origin.scheme))


def _incomplete_listing(what: str, why: str) -> MetadataError:
    return MetadataError(
        f"the registry could not {what} to the end",
        why=why,
        fix="check the log of the registry",
    )
