"""A registry's refusals and breakdowns in our words; never its own text, which may repeat a secret."""

from __future__ import annotations

import json
import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import NoReturn

import httpx

from ebbtide.core.errors import Denied, NotFound, SlowDown, StoreError, Unsupported

BUSY = frozenset({408, 429, 500, 502, 503, 504})
BROKEN = (httpx.TransportError,)
"""Lines that break, time out, or end before the answer does."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,40}", re.ASCII)
_MISSING_PART = frozenset({"MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN"})


def codes_of(body: bytes) -> tuple[str, ...]:
    """Give the codes of an error answer, such as MANIFEST_UNKNOWN; anything else in it is left out."""
    try:
        rows = json.loads(body)["errors"]
        found = [row["code"] for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(code for code in found if isinstance(code, str) and _CODE.fullmatch(code))


def fail(status: int, body: bytes, what: str) -> NoReturn:
    """Raise the answer of a registry as one of our errors."""
    codes = codes_of(body)
    said = _said(status, codes)
    if status == 401:
        raise Denied(
            f"the registry does not let us {what}",
            why=said,
            fix="log in with docker or podman login, or set EBBTIDE_REGISTRY_USERNAME and _PASSWORD",
        )
    if status == 403:
        raise Denied(
            f"the registry does not let us {what}",
            why=said,
            fix="give this user the right to do it, or unlock the image",
        )
    if status == 404 or (status == 400 and _MISSING_PART & set(codes)):
        raise NotFound(f"the registry could not {what}", why=said, fix="check the names; it may be gone")
    if status in (405, 501) or (status == 400 and "UNSUPPORTED" in codes):
        raise unsupported(status, body, what)
    if status in (429, 503):
        raise SlowDown(
            f"the registry kept asking for fewer requests when it was to {what}",
            why=said,
            fix="try again later, or with fewer tasks",
        )
    raise StoreError(f"the registry failed to {what}", why=said, fix="try again later, or see its log")


def unsupported(status: int, body: bytes, what: str) -> Unsupported:
    """Make the error for what a registry does not do."""
    return Unsupported(
        f"the registry cannot {what}",
        why=_said(status, codes_of(body)),
        fix="switch it on in the registry's settings, if it has it; see docs/reference/registries.md",
    )


def _said(status: int, codes: tuple[str, ...]) -> str:
    return f"the registry answered {status} {' '.join(codes)}".rstrip()


def broken(error: Exception, what: str) -> StoreError:
    """Make the error for a line that broke; only its kind is named, since its text may hold a URL."""
    return StoreError(
        f"the registry could not be asked to {what}",
        why=f"the line broke at every try ({type(error).__name__})",
        fix="check the address and the network, then try again",
    )


def wanted_wait(headers: httpx.Headers) -> float:
    """
    Say how many seconds the server wants us to wait; 0 if it does not say.

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
