"""Files that a user names on the command line: text and documents, from a path or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ebbtide.core.documents import format_of, parse_document
from ebbtide.core.errors import BadInput

STANDARD_INPUT = "-"


def read_text(name: str) -> str:
    """Read a text file, or standard input."""
    try:
        return sys.stdin.read() if name == STANDARD_INPUT else Path(name).read_text(encoding="utf-8-sig")
    except OSError as broken:
        raise BadInput(f"{name} cannot be read: {broken.strerror}", fix="check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"{shown_name(name)} is not text", fix="save it as UTF-8") from None


def read_rules(name: str) -> tuple[str, str]:
    """Return the text of a JSON, YAML or TOML file, or JSON from standard input, and its format."""
    text = read_text(name)
    return text, "json" if name == STANDARD_INPUT else format_of(name)


def read_document(name: str) -> Any:
    """Read the data of a JSON, YAML or TOML file, or JSON from standard input."""
    return parse_document(*read_rules(name), name=shown_name(name))


def shown_name(name: str) -> str:
    """Return the name of a file for messages."""
    return "standard input" if name == STANDARD_INPUT else name
