"""Reading policy documents: JSON, TOML or YAML in; plain data out, with duplicates refused."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import yaml

from ebbtide.errors import PolicyError

MOST_DAYS = 2**31 - 1


def parse_document(text: str, fmt: str, *, name: str = "policy") -> Any:
    """Read a document in the named format (json, toml or yaml)."""
    reader = _READERS.get(fmt)
    if reader is None:
        raise PolicyError(f"{name}: {fmt!r} is no format", fix="use json, toml or yaml")
    try:
        return reader(text)
    except PolicyError:
        raise
    except (ValueError, yaml.YAMLError, RecursionError) as broken:
        where = str(broken).replace("\n", " ")
        raise PolicyError(f"{name} is not readable as {fmt}: {where}", fix="correct the syntax") from None


def format_of(filename: str) -> str:
    """Tell a document's format from its file name."""
    suffix = filename.rsplit(".", 1)[-1].lower()
    fmt = {"json": "json", "toml": "toml", "yaml": "yaml", "yml": "yaml"}.get(suffix)
    if fmt is None:
        raise PolicyError(
            f"{filename}: its name does not say what it holds", fix="name it .json, .toml or .yaml"
        )
    return fmt


def whole_days(name: str, value: Any, *, why: str, fix: str) -> int:
    """Check a number of days, which is at least one; `why` and `fix` speak of numbers that are not."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyError(f"{name} is {value!r}", fix="write a whole number of days")
    if value <= 0:
        raise PolicyError(f"{name} is {value}", why=why, fix=fix)
    if value > MOST_DAYS:
        raise PolicyError(f"{name} is {value}, which is too many", fix="leave it out")
    return value


def nearest(word: str, choices: Mapping[str, object] | list[str] | tuple[str, ...]) -> str:
    """Suggest the valid word that is meant, or list them all."""
    names = list(choices)
    close = get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(sorted(names))}"


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a table of a JSON object, and refuse a key that is given twice."""
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise PolicyError(
                f"{key!r} is given twice",
                why="only one of the two could be followed, and nobody can say which",
                fix="rename or remove one of them",
            )
        seen[key] = value
    return seen


class _UniqueLoader(yaml.SafeLoader):
    """YAML as plain data, refusing a key that is given twice and leaving dates as text."""


def _yaml_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, Any]:
    pairs = [
        (str(loader.construct_object(k, deep=True)), loader.construct_object(v, deep=True))
        for k, v in node.value
    ]
    return unique_pairs(pairs)


_UniqueLoader.add_constructor("tag:yaml.org,2002:map", _yaml_mapping)
_UniqueLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=unique_pairs)


def _yaml(text: str) -> Any:
    return yaml.load(text, Loader=_UniqueLoader)  # noqa: S506 - _UniqueLoader is a SafeLoader


_READERS: dict[str, Callable[[str], Any]] = {"json": _json, "toml": tomllib.loads, "yaml": _yaml}
