"""S3's three ways to refuse a configuration; each says which rule and which field it stopped at."""

from __future__ import annotations

from typing import Any

from ebbtide.errors import LifecycleError

MALFORMED = "MalformedXML"
ARGUMENT = "InvalidArgument"
REQUEST = "InvalidRequest"

_SCHEMA = "The XML you provided was not well-formed or did not validate against our published schema"
_LONGEST = 60


def malformed(found: str, *, why: str = "", fix: str = "") -> LifecycleError:
    """Refuse what does not have the form of a configuration; S3's own sentence never says what it found."""
    detail = f"{found}; {why}" if why else found
    return LifecycleError(MALFORMED, f"{_SCHEMA} ({detail})", found, why=why, fix=fix)


def invalid_argument(found: str, sentence: str, *, fix: str) -> LifecycleError:
    """Refuse a value that lies outside what its field takes."""
    return LifecycleError(ARGUMENT, f"{sentence} ({found})", found, why=sentence, fix=fix)


def invalid_request(found: str, sentence: str, *, fix: str) -> LifecycleError:
    """Refuse values that are good each for itself and not together, or that no bucket could hold."""
    return LifecycleError(REQUEST, f"{sentence} ({found})", found, why=sentence, fix=fix)


def label(number: int, rule_id: Any) -> str:
    """Name a rule in a message: by its ID, or by its number where it has none."""
    return f"rule {shown(rule_id)}" if isinstance(rule_id, str) and rule_id else f"rule {number}"


def shown(value: Any) -> str:
    """Write a value into a message: tables and lists by their kind, long texts cut."""
    kinds = {dict: "a table", list: "a list", type(None): "empty", bool: str(value).lower()}
    kind = kinds.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]!r}... ({len(value)} characters)"
    return repr(value)
