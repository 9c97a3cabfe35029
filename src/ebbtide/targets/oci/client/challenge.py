"""What a registry asks for when it answers 401: the header WWW-Authenticate, read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SCHEME = re.compile(r"\s*,?\s*([A-Za-z][A-Za-z0-9-]*)(?:\s+|$)(?![=])")
_PARAMETER = re.compile(r'\s*,?\s*([A-Za-z_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')


@dataclass(frozen=True)
class Challenge:
    """One way in: `basic`, or `bearer` with the place that gives out tokens."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """
    Read all challenges of all headers; what is not understood is left out, as it opens no door.

    >>> parse_challenges(['Bearer realm="https://r.example/token",service="r",scope="repository:a:pull,push"'])
    [Challenge(scheme='bearer', realm='https://r.example/token', service='r', scope='repository:a:pull,push')]
    """
    return [challenge for header in headers for challenge in _parse(header)]


def _parse(header: str) -> Iterable[Challenge]:
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
