"""How numbers, times and names read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ebbtide.core.format import count, human_bytes, moment, percent, plural, printable, shorten
from ebbtide.core.instant import NEVER


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (10**12, "931.3 GiB"),
        (10**15, "909.5 TiB"),
        (2**63, "8.0 EiB"),
        (2**80, "1048576.0 EiB"),
        (-1536, "-1.5 KiB"),
    ],
)
def test_bytes(size: int, text: str) -> None:
    """Sizes are binary with one decimal; none reads 1024.0 of a unit that has a larger one."""
    actual = human_bytes(size)

    assert text == actual


def test_counts() -> None:
    """Thousands stand apart by a narrow space that does not break."""
    actual = count(1_234_567)

    assert actual == "1\u202f234\u202f567"


@pytest.mark.parametrize(("number", "text"), [(0, "0 objects"), (1, "1 object"), (2, "2 objects")])
def test_plurals(number: int, text: str) -> None:
    """One is singular, nothing and many are plural."""
    actual = plural(number, "object")

    assert text == actual


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "0%"),
        (5, 0, "0%"),
        (0, 9, "0%"),
        (9, 9, "100%"),
        (12, 9, "100%"),
        (1, 10**12, "< 0.1%"),
        (10**12 - 1, 10**12, "> 99.9%"),
        (1, 3, "33.3%"),
    ],
)
def test_percentages(part: int, whole: int, text: str) -> None:
    """Something never reads as nothing, less than all never as all, and nothing is divided by zero."""
    actual = percent(part, whole)

    assert text == actual


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2025, 3, 14, tzinfo=UTC), "2025-03-14 00:00 UTC"),
        (datetime(2025, 3, 14, 3, 4, 5, 678, tzinfo=UTC), "2025-03-14 03:04:05 UTC"),
        (datetime(2025, 3, 14, 1, tzinfo=timezone(timedelta(hours=2))), "2025-03-13 23:00 UTC"),
        (datetime(2025, 3, 14), "2025-03-14 00:00 UTC"),  # noqa: DTZ001 - what Arrow gives without a zone
        (NEVER, "never"),
        (None, "never"),
    ],
)
def test_moments(at: datetime | None, text: str) -> None:
    """Times read in UTC whatever zone they came in; the end of the calendar is never."""
    actual = moment(at)

    assert text == actual


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("données/目録🌊", "données/目録🌊"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("two\nlines", "two\\nlines"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("half \ud83c", "half \\ud83c"),
    ],
)
def test_hidden_characters_show(text: str, shown: str) -> None:
    """What a terminal obeys or an eye misses is written out; letters of any script stay."""
    actual = printable(text)

    assert shown == actual


@pytest.mark.parametrize(("limit", "text"), [(26, "abcdefghijklmnopqrstuvwxyz"), (9, "abcd…wxyz"), (2, "a…")])
def test_long_names_are_cut_in_their_middle(limit: int, text: str) -> None:
    """Both ends of a long name stay, and the result is never longer than asked."""
    actual = shorten("abcdefghijklmnopqrstuvwxyz", limit)

    assert text == actual
