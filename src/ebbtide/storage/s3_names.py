"""
Read the names in an S3 listing, or refuse them.

XML cannot hold every character of a key, so listings are asked for with ``encoding-type=url``. A server that
honours this says so in its answer, and its names are decoded exactly once. A server that does not gives names
as they are, as far as it can: many replace what XML cannot hold by U+FFFD, and a parser reads a bare carriage
return as a newline. Such a name may belong to another object, or to none. It is never used: the listing
raises, so that no object is overlooked, deleted in place of another or taken for absent.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree as ET

from ebbtide.core.errors import GarbledName

_REPLACED = "\ufffd"
_ENCODED = re.compile(r"(?:[!-$&-~]|%[0-9A-Fa-f]{2})*")
"""Printable ASCII, in which a percent sign only begins an escape."""
_WHOLE = re.compile(rb"</List[A-Za-z]+Result>\s*\Z")


class UntrustedName(Exception):
    """A name on a page cannot be read beyond doubt; whoever asked for the page knows where it was."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why


def stop_for(problem: UntrustedName, bucket: str, prefix: str, after: str = "") -> GarbledName:
    """Make the error that stops the run, and say which page it was."""
    page = f"s3://{bucket}/{prefix}" + (f" after {after!r}" if after else "")
    name = f": {problem.name!r}" if problem.name else ""
    return GarbledName(
        f"the listing of {page} has a name that cannot be trusted{name}",
        why=f"{problem.why}, so it may be the name of another object",
        fix="rename or remove the object with the server's own tools, or plan with rules for other prefixes",
    )


class NameReader:
    """Reads the names of one page."""

    def __init__(self, *, encoded: bool, body: bytes = b"") -> None:
        self._encoded = encoded
        self._has_returns = b"\r" in body

    def read(self, text: str) -> str:
        """Give the name that this text stands for; raise UntrustedName if that is in doubt."""
        return self._decoded(text) if self._encoded else self.verbatim(text)

    def verbatim(self, text: str) -> str:
        """Give a text that is not encoded, which continuation tokens never are."""
        if _REPLACED in text:
            raise UntrustedName(
                text, "the server did not encode it and has characters in it replaced by U+FFFD"
            )
        if self._has_returns and "\n" in text:
            raise UntrustedName(text, "a newline in it may have been a carriage return")
        return text

    def _decoded(self, text: str) -> str:
        if "%" not in text and "+" not in text and is_printable(text):
            return text
        if not _ENCODED.fullmatch(text):
            raise UntrustedName(text, "the server says that it is URL-encoded, and it is not")
        try:
            return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
        except UnicodeDecodeError:
            raise UntrustedName(text, "it is not valid UTF-8") from None


def is_printable(text: str) -> bool:
    """Tell whether a text is of printable ASCII without blanks, as all encoded names are."""
    return text.isascii() and text.isprintable() and " " not in text


def page_root(answer: dict[str, Any]) -> ET.Element | None:
    """
    Parse a page; None for what is no whole page, which botocore refuses and asks for again.

    A page that came whole and is no XML has a character that XML does not allow. Asking again would not help,
    though botocore takes such a page for a passing error of the server and makes its status 500.
    """
    if answer["status_code"] not in (200, 500):
        return None
    body: bytes = answer["body"]
    try:
        root = ET.fromstring(body)  # noqa: S314 (ElementTree loads no entities)
    except ET.ParseError:
        if _WHOLE.search(body):
            raise UntrustedName(
                "", "a page came that is no XML, as happens with control characters"
            ) from None
        return None
    return root if answer["status_code"] == 200 else None
