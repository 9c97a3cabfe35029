"""Listings in pages: followed to the very end, or an error. A listing that just stops would lose tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import httpx

from ebbtide.core.errors import MetadataError
from ebbtide.targets.oci.client.authorization import Scopes
from ebbtide.targets.oci.client.wire import Answer, Ask, Wire
from ebbtide.targets.oci.documents import parse_object

_MOST_EMPTY_PAGES = 100


def answers(wire: Wire, ask: Ask) -> Iterator[Answer]:
    """Stream the pages of an answer; a page that leads back to an earlier one is an error."""
    seen: set[str] = set()
    url = str(wire.origin.join(ask.url))
    while url:
        if url in seen:
            raise _broken(ask.what, "a page leads back to an earlier one, so the rest cannot be found")
        seen.add(url)
        answer = wire.send(Ask(ask.what, "GET", url, ask.scopes, ask.headers, good=ask.good))
        yield answer
        url = _next(wire, answer, ask.what)


def names(
    wire: Wire, url: str, key: str, what: str, scopes: Scopes, page: int, is_name: Callable[[str], bool]
) -> Iterator[str]:
    """
    Stream the names of a listing, each once.

    Some registries cut a list at the size that was asked for and do not say so: after a full last page they
    are asked once more for what comes after it.
    """
    seen: set[str] = set()
    ask: Ask | None = Ask(what, "GET", f"{url}?n={page}", scopes)
    while ask is not None:
        found: list[str] = []
        empty = 0
        asked_again = bool(seen)
        for answer in answers(wire, ask):
            found = _read(answer.body, key, what, is_name)
            fresh = [name for name in dict.fromkeys(found) if name not in seen]
            if found and not fresh and not asked_again:
                raise _broken(what, "a page came twice, so the rest cannot be found")
            empty = 0 if found else empty + 1
            if empty > _MOST_EMPTY_PAGES:
                raise _broken(what, f"{empty} pages in a row were empty, and there was always one more")
            seen.update(fresh)
            yield from fresh
            asked_again = asked_again and not fresh
        full = len(found) >= page and not asked_again
        ask = Ask(what, "GET", f"{url}?n={page}&last={quote(found[-1], safe='')}", scopes) if full else None


def _read(body: bytes, key: str, what: str, is_name: Callable[[str], bool]) -> list[str]:
    """Read the names on one page; null stands for none, and a missing list for a broken answer."""
    document = parse_object(body, f"the answer when asked to {what}")
    if key not in document:
        raise _broken(what, f"the answer has no {key}")
    rows = document[key]
    if rows is None:
        return []
    if not isinstance(rows, list):
        raise _broken(what, f"{key} is no list")
    for row in rows:
        if not isinstance(row, str) or not is_name(row):
            raise _broken(what, f"{row!r} among the {key} is no name that could be asked for")
    return rows


def _next(wire: Wire, answer: Answer, what: str) -> str:
    """Find the URL of the next page; nothing at the end."""
    header = ", ".join(answer.headers.get_list("link"))
    try:
        links = httpx.Response(200, headers={"link": header}).links if header else {}
    except (ValueError, IndexError):
        raise _broken(what, "its header Link cannot be understood") from None
    target = links.get("next", {}).get("url")
    if header and target is None:
        raise _broken(what, "its header Link names no next page")
    if target is None:
        return ""
    url = wire.resolve(answer.url, target)
    if (url.host, url.port) != (wire.origin.host, wire.origin.port):
        raise _broken(what, "its next page is on another host")
    return str(url.copy_with(scheme=wire.origin.scheme))


def _broken(what: str, why: str) -> MetadataError:
    return MetadataError(
        f"the registry could not {what} to the end",
        why=why,
        fix="look into the log of the registry",
    )
