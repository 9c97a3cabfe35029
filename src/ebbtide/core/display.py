"""What targets hand to commands and pages to show: lines, headings, tables, and the same for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ebbtide.core.errors import SafetyStop


@dataclass(frozen=True)
class Table:
    """Rows under column names, and a line below them."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    numbers: tuple[int, ...] = ()
    """Which columns are aligned as numbers."""
    footer: str = ""


@dataclass(frozen=True)
class Heading:
    """A name that the lines below it are about, and what goes beside it."""

    name: str
    beside: str = ""


Block = str | Heading | Table


@dataclass(frozen=True)
class Explanation:
    """Why an item goes or stays: for people, and for programs."""

    blocks: tuple[Block, ...]
    plain: Any


class ConfirmationNeeded(SafetyStop):
    """A table has to be confirmed with an option of `ebb plan`; nothing was planned."""

    def __init__(
        self, what: str, why: str, fix: str, *, table: Table, plain: dict[str, Any], option: str
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.table = table
        self.plain = plain
        """The same for programs."""
        self.option = option
        """The name of the option that confirms it."""
