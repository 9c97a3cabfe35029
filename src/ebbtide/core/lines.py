"""Worlds written by hand, one thing a line: every value is what it must be, or an error says where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ebbtide.core.documents import unique_pairs
from ebbtide.core.errors import BadInput, PolicyError, WorldError
from ebbtide.core.instant import parse_instant


def json_lines(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Give where each line stands and what it says; empty ones are passed over."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{name}, line {number}"
            try:
                data = json.loads(line, object_pairs_hook=unique_pairs)
            except PolicyError as twice:
                raise WorldError(f"{where}: {twice.what}", why=twice.why, fix=twice.fix) from None
            except (ValueError, RecursionError) as broken:
                fix = "write one JSON object a line"
                raise WorldError(f"{where} is not JSON: {broken}", fix=fix) from None
            yield where, data


def text_field(where: str, name: str, value: Any) -> str:
    """Expect some text."""
    if not isinstance(value, str) or not value:
        raise WorldError(f"{where}: {name} is {value!r}", fix="write text")
    return value


def flag_field(where: str, name: str, value: Any) -> bool | None:
    """Expect true, false or nothing."""
    if value is not None and not isinstance(value, bool):
        raise WorldError(f"{where}: {name} is {value!r}", fix="write true or false")
    return value


def size_field(where: str, name: str, value: Any) -> int | None:
    """Expect a number of bytes or nothing."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise WorldError(f"{where}: {name} is {value!r}", fix="write a whole number of bytes")
    return value


def moment_field(where: str, name: str, value: Any) -> datetime | None:
    """Expect a moment or nothing."""
    if value is None:
        return None
    try:
        return parse_instant(value)
    except BadInput as wrong:
        raise WorldError(f"{where}: {name}: {wrong.what}", fix=wrong.fix) from None
