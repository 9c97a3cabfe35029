"""The description of every setting, from the classes that read them: for ebbtide.toml and the reference."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ebbtide.config import Settings

_WIDTH = 100
_HEAD = """# Ebbtide's configuration: every setting, with its default or an example. Take away the # to
# change one. EBBTIDE_ variables override this file: EBBTIDE_SPARK__MASTER is master in [spark].
"""
_ANY = "NAME"
"""Stands for the name that the user chooses for a table of settings."""


@dataclass(frozen=True)
class Setting:
    """One setting: its section, name, default (None if it is not set) and description."""

    section: str
    name: str
    default: Any
    example: Any
    description: str

    @property
    def path(self) -> str:
        """Its name with its section's."""
        return f"{self.section}.{self.name}" if self.section else self.name


def all_settings(kind: type[BaseModel] = Settings, section: str = "") -> Iterator[Setting]:
    """Return every setting; those outside of sections come first."""
    groups = []
    for name, field in kind.model_fields.items():
        inner, inside = _inner(field, name)
        if inner is not None:
            groups.append((inner, f"{section}.{inside}".lstrip(".")))
            continue
        examples = field.examples or [None]
        default = None if field.default is PydanticUndefined else field.get_default(call_default_factory=True)
        yield Setting(section, name, default or _known(default), examples[0], field.description or "")
    for inner, inside in groups:
        yield from all_settings(inner, inside)


def toml_text() -> str:
    """Write a configuration file in which every setting is explained and none is changed."""
    lines, section = [_HEAD.rstrip()], ""
    for setting in all_settings():
        if setting.section != section:
            section = setting.section
            lines += ["", f"# [{section}]" if _ANY in section else f"[{section}]"]
        lines += [
            "",
            *textwrap.wrap(setting.description, _WIDTH, initial_indent="# ", subsequent_indent="# "),
        ]
        set_by_default = setting.default is not None
        value = _toml(setting.default if set_by_default else setting.example)
        lines.append(f"# {setting.name} = {value}{'' if set_by_default else '  # an example'}")
    return "\n".join(lines) + "\n"


def markdown_table() -> str:
    """Write the table of the reference page."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for one in all_settings():
        default = f"`{_toml(one.default)}`" if one.default not in (None, "") else ""
        rows.append(f"| `{one.path}` | {default} | {one.description} |")
    return "\n".join(rows) + "\n"


def _inner(field: FieldInfo, name: str) -> tuple[type[BaseModel] | None, str]:
    """Return the class and the name of a section, or of the sections in a table."""
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind, name
    kinds = [one for one in get_args(kind) if isinstance(one, type) and issubclass(one, BaseModel)]
    return (kinds[0], f"{name}.{_ANY}") if kinds else (None, name)


def _known(default: Any) -> Any:
    """Return None for an empty table, which means "not set"; zero, false and "" are defaults."""
    return None if default == {} else default


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value if isinstance(value, int | float) else str(value))
