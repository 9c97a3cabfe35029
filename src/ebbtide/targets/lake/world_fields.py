"""The fields of a written world, one by one: each is what it must be, or an error says where it is not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ebbtide.core.decision import CollectorName
from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput, WorldError
from ebbtide.core.instant import parse_instant


def table(where: str, data: Any) -> dict[str, Any]:
    """Expect a table."""
    if not isinstance(data, dict):
        raise WorldError(f"{where} is not a table", fix="write {...}")
    return data


def row(where: str, data: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    """Expect a table that has no other fields than these."""
    found = table(where, data)
    for name in found:
        if name not in fields:
            raise WorldError(f"{where}: unknown field {name!r}", fix=nearest(name, fields))
    return found


def rows(where: str, data: Any) -> list[Any]:
    """Expect a list."""
    if not isinstance(data, list):
        raise WorldError(f"{where} is not a list", fix="write [...]")
    return data


def moment(where: str, value: Any) -> datetime:
    """Expect a time."""
    if not isinstance(value, str):
        raise WorldError(f"{where} is {value!r}", fix="write a time such as 1998-01-20T00:00:00Z")
    try:
        return parse_instant(value)
    except BadInput as wrong:
        raise WorldError(f"{where}: {wrong.what}", fix=wrong.fix) from None


def size(where: str, value: Any) -> int:
    """Expect a number of bytes."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WorldError(f"{where}: size is {value!r}", fix="write a whole number of bytes")
    return value


def hours(where: str, value: Any) -> timedelta:
    """Expect a number of hours, whole or not."""
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and value >= 0:
            return timedelta(hours=value)
    except OverflowError:
        pass
    raise WorldError(f"{where} is {value!r}", fix="write a number of hours, 0 or more")


def collectors(where: str, data: Any) -> tuple[CollectorName, ...]:
    """Expect names of collectors, each once; they come in the order in which they are asked."""
    names = [str(collector) for collector in CollectorName]
    found = rows(where, data)
    for name in found:
        if name not in names:
            raise WorldError(f"{where}: there is no collector {name!r}", fix=nearest(str(name), names))
    if not found:
        raise WorldError(f"{where} names no collector", fix=f"name some of: {', '.join(names)}")
    if len(set(found)) != len(found):
        raise WorldError(f"{where} names a collector twice", fix="name each once")
    return tuple(collector for collector in CollectorName if collector in found)
