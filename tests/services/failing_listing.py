"""Listings as a failing store gives them: small pages, empty ones, keys twice, keys of yesterday."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import parse_qs, quote

from tests.services.fault_plan import Fault, FaultPlan
from tests.services.flaky_proxy import Request

_EMPTY, _FULL = "e", "f"


@dataclass(frozen=True)
class Row:
    """What a listing says of one object."""

    key: str
    size: int
    etag: str
    modified: datetime


@dataclass(frozen=True)
class Question:
    """What a page of a listing was asked for."""

    prefix: str
    after: str
    goes_on: bool
    after_empty: bool
    folders: bool = False
    """Whether keys are given as the folder that they lie in, one step below the prefix."""

    @property
    def name(self) -> str:
        """Name the page, so that a plan can tell it from others."""
        kind = ("folders",) if self.folders else ()
        return "\0".join((self.prefix, self.after, str(self.after_empty), *kind))

    def is_folder(self, key: str) -> bool:
        """Tell whether this is a folder one step below the prefix, and not an object."""
        return self.folders and key.endswith("/") and key != self.prefix

    def grouped(self, rows: Iterable[Row]) -> Iterable[Row]:
        """Put a folder in the place of all rows in it, if that was asked for."""
        if not self.folders:
            return rows
        start = len(self.prefix)
        named = {row.key[: row.key.find("/", start) + 1] or row.key: row for row in rows}
        return [replace(row, key=name) for name, row in named.items()]


def question(request: Request) -> Question:
    """Read the query of a listing; our tokens say where the last page ended, and whether it was empty."""
    asked = {name: values[0] for name, values in parse_qs(request.query).items()}
    token = bytes.fromhex(asked.get("continuation-token", "")).decode()
    after = token[1:] if token else asked.get("start-after", "")
    folders = "delimiter" in asked
    return Question(asked.get("prefix", ""), after, bool(token), token.startswith(_EMPTY), folders)


@dataclass(frozen=True)
class Page:
    """One page, and the faults in it."""

    rows: tuple[Row, ...]
    token: str = ""
    """What to ask for the next page with; nothing if this is the last."""
    faults: tuple[Fault, ...] = ()

    def xml(self, asked: Question) -> bytes:
        """Write the page as S3 does, with URL-encoded keys; its folders stand apart."""
        more = f"<NextContinuationToken>{self.token}</NextContinuationToken>" if self.token else ""
        rows = "".join(
            f"<Contents><Key>{quote(row.key)}</Key><Size>{row.size}</Size><ETag>&quot;{row.etag}&quot;</ETag>"
            f"<LastModified>{row.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            if not asked.is_folder(row.key)
            else f"<CommonPrefixes><Prefix>{quote(row.key)}</Prefix></CommonPrefixes>"
            for row in self.rows
        )
        return (
            f"<ListBucketResult><EncodingType>url</EncodingType><Prefix>{quote(asked.prefix)}</Prefix>"
            f"<KeyCount>{len(self.rows)}</KeyCount><IsTruncated>{'true' if more else 'false'}</IsTruncated>"
            f"{more}{rows}</ListBucketResult>"
        ).encode()


def faulty_page(plan: FaultPlan, asked: Question, seen: int, rows: Iterable[Row]) -> Page:
    """Cut the page that was asked for out of all rows below its prefix, with the faults of the plan."""
    if not asked.after_empty and plan.on_page(Fault.EMPTY, asked.name, seen):
        # The token says that an empty page was given here: a listing never stands still for ever.
        return Page((), _token(_EMPTY, asked.after), (Fault.EMPTY,))
    faults = []
    ordered = sorted(asked.grouped(rows), key=lambda row: row.key)
    left = [row for row in ordered if row.key > asked.after]
    if asked.goes_on and plan.on_page(Fault.OVERLAP, asked.name, seen):
        again = [row for row in ordered if row.key == asked.after]
        faults += [Fault.OVERLAP] * len(again)
        left = again + left
    size = plan.page + len(faults)
    page, more = left[:size], len(left) > size
    token = _token(_FULL, page[-1].key) if more else ""
    if page and plan.on_page(Fault.TWICE, asked.name, seen):
        faults.append(Fault.TWICE)
        page = page[:1] + page
    shown = (replace(row, modified=row.modified + plan.skew(row.key, seen)) for row in page)
    return Page(tuple(shown), token, tuple(faults))


def _token(kind: str, after: str) -> str:
    return (kind + after).encode().hex()
