"""
Getting in: nothing, a password or a token, whichever the registry asks for.

A token is asked for where the registry's challenge says, kept for the rights it was asked for, and asked for
again once when it is refused. No error or log names a secret, nor the URL of a request for one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

import httpx

from ebbtide.core.errors import Denied, MetadataError
from ebbtide.targets.oci.client.challenge import Challenge, parse_challenges
from ebbtide.targets.oci.client.options import Credentials

Scopes = tuple[str, ...]
"""Rights that a request needs, like ``repository:team/app:pull``."""

FindCredentials = Callable[[], Credentials]
Fetch = Callable[[httpx.URL, dict[str, str]], bytes]
"""Gets the answer at a URL with these headers."""


@dataclass
class Authorization:
    """What was learned about getting into one registry; threads share it."""

    origin: httpx.URL
    credentials: Credentials
    fetch: Fetch
    find: FindCredentials | None = None
    """Where to look for credentials when the registry asks for some and none are given."""
    _basic: bool = False
    _tokens: dict[Scopes, str] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def header(self, scopes: Scopes) -> str:
        """Give the header for a request; nothing as long as the registry has not asked for any."""
        if self._basic:
            return _basic(self.credentials)
        token = self._tokens.get(scopes)
        return f"Bearer {token}" if token else ""

    def renew(self, response: httpx.Response, scopes: Scopes, refused: str) -> bool:
        """
        Do what a 401 asks for, and tell whether to send the request again.

        `refused` is the header that was not enough: if another thread has got a better one meanwhile, that
        one is used.
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
        """Ask for a token with the rights that the registry names and those that the request needs."""
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
        """Check where to ask for a token: a password must not leave an https registry by plain http."""
        try:
            realm = httpx.URL(challenge.realm)
        except httpx.InvalidURL:
            realm = httpx.URL("")
        if realm.scheme == "https" or (realm.scheme == "http" and self.origin.scheme == "http"):
            return realm
        raise Denied(
            f"{self.origin.host} wants a token from a place that is not safe",
            why="its realm is no https address, and whoever listens could read the password",
            fix="have the registry's token service use https",
        )


def _basic(credentials: Credentials) -> str:
    pair = f"{credentials.username}:{credentials.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"
