"""
Policy documents: JSON, TOML or YAML in, checked data out.

:func:`parse_document` reads the text and refuses a key that is given twice. :func:`validate` checks plain
data against a :class:`Document`; its error names the field, says why the value is refused and what to write.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from inspect import isclass
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from ebbtide.core.errors import BadInput, PolicyError, WorldError
from ebbtide.core.instant import parse_instant

MOST_DAYS = 2**31 - 1
_LONGEST_SHOWN = 120
_REFUSED = "refused"
_NOT_A_TABLE = ("dict_type", "model_type", "mapping_type")


def parse_document(text: str, fmt: str, *, name: str = "policy") -> Any:
    """Read a document in the named format (json, toml or yaml)."""
    reader = _READERS.get(fmt)
    if reader is None:
        raise PolicyError(f"{name}: unknown format {fmt!r}", fix="use json, toml or yaml")
    try:
        return reader(text)
    except PolicyError:
        raise
    except (ValueError, yaml.YAMLError, RecursionError) as broken:
        where = str(broken).replace("\n", " ")
        raise PolicyError(f"{name} is not readable as {fmt}: {where}", fix="correct the syntax") from None


def format_of(filename: str) -> str:
    """Return the format of a document by its file name."""
    suffix = filename.rsplit(".", 1)[-1].lower()
    fmt = {"json": "json", "toml": "toml", "yaml": "yaml", "yml": "yaml"}.get(suffix)
    if fmt is None:
        raise PolicyError(f"{filename}: unknown file extension", fix="name it .json, .toml or .yaml")
    return fmt


class Document(BaseModel):
    """A table of a document: unknown fields are refused, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)
    example: ClassVar[str] = "{...}"
    """What an error suggests to write."""
    why_required: ClassVar[str] = ""
    """Why a required field has no default."""


@dataclass(frozen=True)
class Fix:
    """Metadata of a field's type: what to write in place of a value that is refused."""

    fix: str
    why: str = ""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Replace every error of the type by one that carries the advice."""
        return core_schema.custom_error_schema(
            handler(source),
            custom_error_type=_REFUSED,
            custom_error_message="refused",
            custom_error_context={"fix": self.fix, "why": self.why},
        )


@dataclass(frozen=True)
class WholeNumber:
    """Metadata of an integer field: at least 1, at most :data:`MOST_DAYS`."""

    unit: str
    why: str = "the least is 1"
    fix: str = "use 1 or more, or leave it out"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Check the value with :meth:`check` alone."""
        return core_schema.no_info_plain_validator_function(self.check)

    def check(self, value: object) -> int:
        """Return the value if it is such a number; True and 1.0 are not."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise refusal(fix=f"write a whole number of {self.unit}")
        if value <= 0:
            raise refusal(why=self.why, fix=self.fix)
        if value > MOST_DAYS:
            raise refusal(f"is {value}, which is too many", fix="leave it out")
        return value


def _has_names(branches: Any) -> Any:
    if isinstance(branches, dict) and "" in branches:
        raise refusal("names an empty branch", fix="name the branch, or give the days of all other branches")
    return branches


BRANCHES = BeforeValidator(_has_names)
"""Metadata of a table by branches: each has a name."""
Flag = Annotated[bool, Fix("write true or false")]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), Fix("write a name")]

D = TypeVar("D", bound=Document)


def refusal(what: str = "", *, why: str = "", fix: str) -> PydanticCustomError:
    """
    Return the error that a validator raises.

    `what` is a predicate of a field ("is empty") or a clause about a table; the default shows the value.
    """
    return PydanticCustomError(_REFUSED, "refused", {"what": what, "why": why, "fix": fix})


def validate(model: type[D], data: object, where: str) -> D:
    """Check plain data; `where` names the table in errors."""
    try:
        return model.model_validate(data)
    except ValidationError as wrong:
        errors = wrong.errors(include_url=False)
    # A misspelt field is often also a missing one; its name says more.
    error = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    raise _explain(model, error, where) from None


def _explain(model: type[Document], error: ErrorDetails, where: str) -> PolicyError:
    *outer, last = error["loc"] or (None,)
    kind, context = error["type"], error.get("ctx", {})
    section, table = _section(model, where, outer)
    if kind == "extra_forbidden":
        return PolicyError(f"{table}: unknown field {last!r}", fix=nearest(str(last), section.model_fields))
    if kind == "missing":
        fix = f"write it like {section.example}"
        return PolicyError(f"{table} has no {last}", why=section.why_required, fix=fix)
    inner, place = _section(model, where, error["loc"])
    if kind in _NOT_A_TABLE:
        return PolicyError(f"{place} is not a table", fix=f"write it like {inner.example}")
    if kind == "list_type":
        return PolicyError(f"{place} is not a list", fix="write [...]")
    found = context.get("what")
    what = f"{place}{' ' if error['loc'] else ': '}{found or 'is ' + shown(error['input'])}"
    return PolicyError(what, why=context.get("why", error["msg"]), fix=context.get("fix", "correct it"))


def _section(
    model: type[Document], where: str, path: Iterable[int | str | None]
) -> tuple[type[Document], str]:
    """Follow a path into a document: the table that it leads to, and its name in errors."""
    place, separator = where, ": "
    for part in path:
        field = model.model_fields.get(str(part))
        if part is not None:
            place += f"{separator}{part}" if field else f"[{part!r}]"
            separator = "."
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        model = next((kind for kind in kinds if isclass(kind) and issubclass(kind, Document)), model)
    return model, place


def shown(value: object) -> str:
    """Write a value for an error; a long one is cut."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def nearest(word: str, choices: Iterable[str]) -> str:
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
                why="only one of the two could be followed, and it is unclear which",
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


def json_lines(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the place and the content of each line that is not empty."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{name}, line {number}"
            try:
                data = json.loads(line, object_pairs_hook=unique_pairs)
            except PolicyError as twice:
                raise WorldError(f"{where}: {twice.what}", why=twice.why, fix=twice.fix) from None
            except (ValueError, RecursionError) as broken:
                fix = "write one JSON object per line"
                raise WorldError(f"{where} is not JSON: {broken}", fix=fix) from None
            yield where, data


def check_fields(where: str, data: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a field that is not known."""
    for name in data:
        if name not in known:
            raise WorldError(f"{where}: unknown field {name!r}", fix=nearest(str(name), known))


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
