"""
The canonical form of an address: one object, one string.

Garbage is "listed and not referenced", and the two sides are compared as strings. So every spelling of an
object must give one string, two objects must not share one by accident, and whatever cannot be normalised
beyond doubt raises :class:`AddressError`, which stops the run.

**Relative addresses are raw keys; full addresses are URLs.** A listing gives raw keys, and in a raw key
``%``, ``?``, ``#`` and ``+`` are ordinary characters: an object named ``dt=00%3A00`` exists and is not
``dt=00:00``. In a URL the same characters are syntax, so ``s3://b/a%20b`` is the key ``a b``, a literal
``%`` must be written ``%25``, and an escape that is none raises instead of being guessed at. A URL is decoded
exactly once, before it is cut into parts, so ``%2F`` is a slash and ``%2E%2E`` is refused like ``..``.
Full addresses come out as RFC 3986 URIs in ASCII, so decoding them again gives the same key. Catalogs
that write raw keys behind ``s3a://`` (Hadoop paths do) must hand over the relative key, not the URL.

**What is merged, and why that is safe.** ``a//b``, ``a/b/`` and ``a/b`` are three keys to S3 and one string
here, as are the composed and decomposed spellings of ``é``. Merging can only keep: if any of them is
referenced, all of them are. But it means that a canonical address does not name the bytes in the store.
*Delete by the raw key that the listing gave, never by the canonical address*: deleting ``a/b`` because
``a//b`` was garbage would delete another object.

**What is refused.** Empty addresses, ``.`` and ``..`` parts, control characters, backslashes, lone
surrogates, queries, fragments, user names, ports, unknown schemes. A relative address that starts with
``/`` is refused because it may mean the bucket's root, the disk's root or a doubled slash; one whose first
part ends in ``:`` because after collapsing slashes it cannot be told from a URL.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import quote, unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.errors import AddressError

_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "file": "file"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_JAVA_FILE = re.compile(r"file:/(?!/)", re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BAD_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_KEPT_IN_URLS = "/-._~!$&'()*+,;=:@"

# Safe because it is a strict subset of what `canonical` gives back unchanged, for raw keys and for the
# tails of URLs alike: ASCII, no '%', '?', '#', ':' or backslash, no empty part, and no part of dots alone.
_PLAIN_PART = r"\.?[A-Za-z0-9_=+,@ -][A-Za-z0-9_=+,@ .-]*"
_PLAIN = rf"\A{_PLAIN_PART}(?:/{_PLAIN_PART})*\z"
_OFFSET_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Place:
    """A parsed full address: the scheme, the bucket (empty for files) and the decoded parts of the path."""

    scheme: str
    host: str
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """The raw key inside the bucket, or the path below the disk's root, without slashes around it."""
        return "/".join(self.parts)

    @property
    def url(self) -> str:
        """The canonical URL; decoding it gives this place again."""
        root = f"{self.scheme}://{self.host}"
        if not self.parts:
            return root + "/" if self.scheme == "file" else root
        return f"{root}/{quote(self.path, safe=_KEPT_IN_URLS)}"


def canonical(address: str, namespace: str | None) -> str:
    """
    Give the one string for this object: relative if it lies inside the namespace, else a full URL.

    >>> canonical("s3a://lake/ns//data/a%20b", "s3://lake/ns")
    'data/a b'
    >>> canonical("S3N://Other/y", "s3://lake/ns")
    's3://other/y'
    """
    if not is_full(address):
        return _relative(_parts(address, address, relative=True), address)
    place = _parse(address)
    if not place.parts:
        _refuse(address, "it names a whole bucket or disk", "name one object in it")
    if namespace is None:
        return place.url
    root = locate(namespace)
    depth = len(root.parts)
    if (root.scheme, root.host, root.parts) != (place.scheme, place.host, place.parts[:depth]):
        return place.url
    return _relative(place.parts[depth:], address)


def canonical_column(addresses: Any, namespace: str | None, *, odd_as_null: bool = False) -> Any:
    """
    Give `canonical` of every address in an Arrow array, in order; one bad address raises AddressError.

    One regular expression proves that nearly all are plain already; only the rest, without their
    duplicates, take the slow road. What is listed, unlike what is referenced, may be named anyhow: with
    `odd_as_null` a name without canonical form gives null.
    """
    column = _one_array(addresses)
    if column.null_count:
        raise AddressError(
            f"{column.null_count} of {len(column)} addresses are null",
            why="a null names no object, and may stand for one that is live",
            fix="look at where this column was read from",
        )
    short = column if namespace is None else _without_namespace(column, namespace)
    odd = pc.invert(pc.match_substring_regex(short, _PLAIN))
    if not pc.any(odd, min_count=0).as_py():
        return short
    return pc.replace_with_mask(short, odd, _one_by_one(column.filter(odd), namespace, odd_as_null))


def canonical_namespace(url: str) -> str:
    """
    Give the canonical URL of a bucket, a prefix or a folder; a plain path is a folder below the current one.

    >>> canonical_namespace("s3a://bucket/ns//x/")
    's3://bucket/ns/x'
    """
    return locate(url).url


def locate(namespace: str) -> Place:
    """Parse a namespace into scheme, bucket and path. Symbolic links are not looked at: this asks no disk."""
    return _locate_url(namespace) if is_full(namespace) else _locate_path(namespace)


def is_full(address: str) -> bool:
    """Return True if this is written as a URL; everything else is a raw key relative to the namespace."""
    if not isinstance(address, str):
        _refuse(address, "it is not text", "look for a null or a number where an address should be")
    return bool(_URL.match(address) or _JAVA_FILE.match(address))


def is_inside(canonical_address: str) -> bool:
    """Return True if a canonical address lies inside its namespace, that is, if it is relative."""
    return "://" not in canonical_address


def _one_array(addresses: Any) -> Any:
    """Join chunks into one array, with wide offsets where 2 GiB of text would not fit."""
    if not isinstance(addresses, pa.ChunkedArray):
        return addresses
    if addresses.type == pa.string() and addresses.nbytes > _OFFSET_LIMIT:
        addresses = addresses.cast(pa.large_string())
    return pa.concat_arrays(addresses.chunks) if addresses.chunks else pa.array([], addresses.type)


def _without_namespace(column: Any, namespace: str) -> Any:
    """Cut the namespace off where it is written plainly; other spellings of it are left to the slow road."""
    root = locate(namespace)
    if "%" in root.url:
        return column
    short = column
    for scheme in (name for name, meant in _SCHEMES.items() if meant == root.scheme):
        start = (scheme + root.url[len(root.scheme) :]).removesuffix("/") + "/"
        begins = pc.starts_with(column, start)
        if pc.any(begins, min_count=0).as_py():
            short = pc.if_else(begins, pc.utf8_slice_codeunits(column, len(start)), short)
    return short


def _one_by_one(odd: Any, namespace: str | None, odd_as_null: bool) -> Any:  # noqa: FBT001 (one caller)
    """Take the slow road for the addresses that are not plain, each distinct one once."""
    distinct = odd.unique()
    try:
        texts = distinct.to_pylist()
    except UnicodeDecodeError:
        raise AddressError(
            "an address is no UTF-8",
            why="its text differs from reader to reader",
            fix="look at where this column was read from",
        ) from None
    form = _canonical_or_none if odd_as_null else canonical
    fixed = pa.array([form(text, namespace) for text in texts], odd.type)
    return fixed.take(pc.index_in(odd, value_set=distinct))


def _canonical_or_none(address: str, namespace: str | None) -> str | None:
    """Return the canonical form if there is one."""
    try:
        return canonical(address, namespace)
    except AddressError:
        return None


@lru_cache(maxsize=64)
def _locate_url(namespace: str) -> Place:
    """Parse a namespace once; the same one comes with every address."""
    return _parse(namespace)


def _locate_path(namespace: str) -> Place:
    """Make a plain path absolute; its characters are literal, because it is no URL."""
    if not namespace:
        _refuse(namespace, "it is empty", "name a folder or a bucket, as in s3://bucket/prefix")
    if namespace.startswith("~"):
        _refuse(namespace, "'~' is left to the shell", "write the whole path")
    kept = "/".join(part for part in namespace.split("/") if part != ".")
    if kept.split("/", 1)[0].endswith(":"):
        _refuse(namespace, "it is neither a URL nor a plain path", "write scheme://bucket/prefix")
    whole = kept if namespace.startswith("/") else f"{os.getcwd()}/{kept}"
    return Place("file", "", _parts(whole, namespace))


def _parse(address: str) -> Place:
    """Take a full address apart, and refuse whatever is more than scheme, bucket and key."""
    scheme, rest = _scheme_and_rest(address)
    if "?" in rest or "#" in rest:
        _refuse(address, "it has a query or a fragment", "write '?' as %3F and '#' as %23 if meant so")
    host, _, path = rest.partition("/")
    if "@" in host:
        _refuse(address, "it has a user name", "take it out; credentials come from the environment")
    if scheme == "file":
        if host.lower() not in ("", "localhost"):
            _refuse(address, "a file address has no host", "write file:///absolute/path")
        host = ""
    elif not _BUCKET.fullmatch(host):
        _refuse(address, "it has no valid bucket name", "write scheme://bucket/key, without a port")
    return Place(scheme, host.lower(), _parts(_decode(path, address), address))


def _scheme_and_rest(address: str) -> tuple[str, str]:
    """Cut off the scheme, also where Java writes a file with a single slash."""
    if _JAVA_FILE.match(address):
        return "file", address[len("file:") :]
    found = _URL.match(address)
    scheme = _SCHEMES.get(found[1].lower()) if found else None
    if found is None or scheme is None:
        _refuse(address, "its scheme is unknown", f"use one of {', '.join(sorted(_SCHEMES))}")
    return scheme, found[2]


def _decode(path: str, address: str) -> str:
    """Undo percent-encoding once; what does not decode to UTF-8 has no meaning that all would share."""
    if "%" not in path:
        return path
    if _BAD_ESCAPE.search(path):
        _refuse(address, "it has a '%' that starts no escape", "write a literal '%' in a URL as %25")
    try:
        return unquote_to_bytes(path).decode("utf-8")
    except UnicodeError:
        _refuse(address, "its escapes are no UTF-8", "encode the key as UTF-8 before escaping it")


def _parts(key: str, address: str, *, relative: bool = False) -> tuple[str, ...]:
    """Cut a raw key into its parts, after NFC, so that nothing composed can slip past the checks."""
    normal = key if key.isascii() else unicodedata.normalize("NFC", key)
    bad = _BAD_CHARACTER.search(normal)
    if bad:
        _refuse(address, f"it has the character U+{ord(bad[0]):04X}", "rename the object without it")
    if relative and normal.startswith("/"):
        _refuse(address, "a leading '/' may mean several roots", "write scheme://bucket/key in full")
    parts = tuple(part for part in normal.split("/") if part)
    if "." in parts or ".." in parts:
        _refuse(address, "'.' and '..' parts mean different things to different stores", "resolve them")
    return parts


def _relative(parts: tuple[str, ...], address: str) -> str:
    """Join the parts of a relative address, unless the result could be taken for a URL."""
    if not parts:
        _refuse(address, "it names no object", "look for an empty address or that of the namespace")
    if parts[0].endswith(":"):
        _refuse(address, "its first part reads like a URL's scheme", "rename the object or the folder")
    return "/".join(parts)


def _refuse(address: object, why: str, fix: str) -> NoReturn:
    """Raise the error that stops the run."""
    raise AddressError(f"{_shown(address)} has no canonical form", why=why, fix=fix)


def _shown(address: object) -> str:
    """Show an address in an error without what may be secret: user names, passwords, signed queries."""
    text = re.sub(r"://[^/]*@", "://...@", str(address))
    if _URL.match(text):
        text = re.sub(r"\?.*", "?...", text, flags=re.DOTALL)
    return repr(text if len(text) <= 200 else text[:200] + "...")
