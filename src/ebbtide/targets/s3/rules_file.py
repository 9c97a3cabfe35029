"""Reading lifecycle rules from a file or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from ebbtide.core.documents import format_of
from ebbtide.core.errors import BadInput
from ebbtide.targets.s3.rules.configuration import Configuration
from ebbtide.targets.s3.rules.document import read_configuration_text


def read_rules_file(name: str, locations: Collection[str], minimum_size: str | None = None) -> Configuration:
    """Read a configuration from a file whose name tells its format, or from standard input (`-`)."""
    text, fmt = _standard_input() if name == "-" else (_text(name), _format(name))
    return read_configuration_text(text, fmt, locations=locations, minimum_size=minimum_size)


def _format(name: str) -> str:
    return "xml" if name.lower().endswith(".xml") else format_of(name)


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as broken:
        raise BadInput(f"{name} cannot be read: {broken.strerror}", fix="check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not text", fix="save it as UTF-8") from None


def _standard_input() -> tuple[str, str]:
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError:
        raise BadInput("standard input is not text", fix="send UTF-8") from None
    return text, "xml" if text.lstrip("\ufeff \t\r\n").startswith("<") else "json"
