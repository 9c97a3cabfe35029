"""
Authorization: nothing, a password or a token, as the registry's challenge asks.

A token is requested where the challenge says, kept for the scopes it was requested for, and requested again
once when it is refused. No error or log names a secret, nor the URL of a request for one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

import httpx

from ebbtide.core.errors import Denied, MetadataError
from ebbtide.targets.oci.client.credentials import Credentials

_SCHEME = re.compile(r"\s*,?\s*([A-Za-z][A-Za-z0-9-]*)(?:\s+|$)(?![=])")
_PARAMETER = re.compile(r'\s*,?\s*([A-Za-z_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')


@dataclass(frozen=True)
class Challenge:
    """One way to authenticate: `basic`, or `bearer` with the URL that issues tokens."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """
    Parse the challenges of all WWW-Authenticate headers; ones that are not understood are skipped.

    >>> parse_challenges(['Bearer realm="https://r.example/token",service="r",scope="repository:a:pull,push"'])
    [Challenge(scheme='bearer', realm='https://r.example/token', service='r', scope='repository:a:pull,push')]
    """
    return [challenge for header in headers for challenge in _parse_header(header)]


def _parse_header(header: str) -> Iterable[Challenge]:
    position = 0
    while scheme := _SCHEME.match(header, position):
        position = scheme.end()
        values: dict[str, str] = {}
        while found := _PARAMETER.match(header, position):
            position = found.end()
            quoted = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3]
            values[found[1].lower()] = quoted
        yield Challenge(
            scheme[1].lower(), values.get("realm", ""), values.get("service", ""), values.get("scope", "")
        )


Scopes = tuple[str, ...]
"""Rights that a request needs, like ``repository:team/app:pull``."""

FindCredentials = Callable[[], Credentials]
Fetch = Callable[[httpx.URL, dict[str, str]], bytes]
"""Gets the answer at a URL with these headers."""


@dataclass
class Authorization:
    """The authorization for one registry, learned from its challenges; threads share it."""

    origin: httpx.URL
    credentials: Credentials
    fetch: Fetch
    find: FindCredentials | None = None
    """Where to look for credentials if the registry asks for some and none are given."""
    _basic: bool = False
    _tokens: dict[Scopes, str] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def header(self, scopes: Scopes) -> str:
        """Return the header for a request; empty until the registry has asked for one."""
        if self._basic:
            return _basic(self.credentials)
        token = self._tokens.get(scopes)
        return f"Bearer {token}" if token else ""

    def renew(self, response: httpx.Response, scopes: Scopes, refused: str) -> bool:
        """
        Do what a 401 asks for, and return True if the request should be sent again.

        `refused` is the header that was not enough: if another thread has got a better one in the meantime,
        that one is used.
        """
        with self._lock:
            current = self.header(scopes)
            if current and current != refused:
                return True
            if self.find is not None and not self.credentials:
                self.credentials, self.find = self.find(), None
            challenges = parse_challenges(response.headers.get_list("www-authenticate"))
            bearer = next((c for c in challenges if c.scheme == "bearer" and c.realm), None)
            if bearer:
                self._tokens.pop(scopes, None)
                self._tokens[scopes] = self._token(bearer, scopes)
                return True
            if any(c.scheme == "basic" for c in challenges) and self.credentials.username:
                was, self._basic = self._basic, True
                return not was
            return False

    def _token(self, challenge: Challenge, scopes: Scopes) -> str:
        """Request a token with the rights that the registry names and those that the request needs."""
        if self.credentials.token:
            return self.credentials.token
        realm = self._realm(challenge)
        wanted = dict.fromkeys((*challenge.scope.split(), *scopes))
        pairs = [("service", challenge.service)] if challenge.service else []
        params = (*realm.params.multi_items(), *pairs, *(("scope", scope) for scope in wanted))
        url = realm.copy_with(params=httpx.QueryParams(params))
        headers = {"Authorization": _basic(self.credentials)} if self.credentials.username else {}
        try:
            answer = json.loads(self.fetch(url, headers))
            token = answer.get("token") or answer.get("access_token")
        except (ValueError, AttributeError):
            token = None
        if not isinstance(token, str) or not token.isprintable() or not token.isascii():
            raise MetadataError(
                f"{realm.host} gave no token for {self.origin.host}",
                why="its answer cannot be understood",
                fix="check that the registry's token service works",
            )
        return token

    def _realm(self, challenge: Challenge) -> httpx.URL:
        """Check where to request a token: a password must not leave an https registry by plain http."""
        try:
            realm = httpx.URL(challenge.realm)
        except httpx.InvalidURL:
            realm = httpx.URL("")
        if realm.scheme == "https" or (realm.scheme == "http" and self.origin.scheme == "http"):
            return realm
        raise Denied(
            f"{self.origin.host} asks for a token from an unsafe address",
            why="its realm is not https, so anyone on the network could read the password",
            fix="have the registry's token service use https",
        )


def _basic(credentials: Credentials) -> str:
    pair = f"{credentials.username}:{credentials.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"
