"""Settings in environment variables: ``EBBTIDE_SPARK__MASTER`` is `master` in ``[spark]``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings.sources.utils import parse_env_vars

_NONE = "null"


class Variables(EnvSettingsSource):
    """
    Reads settings from the given variables alone: no ``.env`` file and no other variable counts.

    Tables are written as JSON or with one variable per key. ``null`` unsets a value, and text may be quoted.
    """

    def __init__(self, settings: type[BaseModel], prefix: str, variables: Mapping[str, str]) -> None:
        self._given = {name: _unquoted(text) for name, text in variables.items()}
        super().__init__(
            cast("type[BaseSettings]", settings),
            case_sensitive=False,
            env_prefix=prefix,
            env_nested_delimiter="__",
            env_parse_none_str=_NONE,
        )

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return parse_env_vars(self._given, case_sensitive=False, parse_none_str=_NONE)

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002 - of the base class
        """Read JSON; the validation of the settings refuses anything else, and names the setting."""
        try:
            return json.loads(value)
        except ValueError:
            return value


def _unquoted(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text
