"""Plain English: phrases that readers have to puzzle over do not come back (see CONTRIBUTING.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (
    "README.md",
    "docs/*.md",
    "docs/how-to/*.md",
    "docs/reference/*.md",
    "docs/explanation/*.md",
    "docs/design/*.md",
    "src/ebbtide/*.py",
    "src/ebbtide/cli/*.py",
    "src/ebbtide/core/*.py",
    "src/ebbtide/engine/**/*.py",
    "src/ebbtide/report/*.py",
    "src/ebbtide/state/**/*.py",
    "src/ebbtide/storage/*.py",
    "src/ebbtide/targets/*.py",
    "src/ebbtide/targets/lake/**/*.py",
    "src/ebbtide/targets/repository/*.py",
    "src/ebbtide/targets/oci/**/*.py",
    "src/ebbtide/targets/s3/**/*.py",
)
ODD = {
    r"\bTell whether\b": "Return True if",
    r'"""(Give|Tell|Say)\b': "Return, Print or Show",
    r"\b[Ww]hoever\b": "the user who, every process that",
    r"\b[Ss]omebody\b": "a user, a client",
    r"\b[Nn]obody\b": "no user, unknown",
    r"\bfor ever\b": "forever",
    r"\bso many (days|times|hours|seconds)\b": "this many",
    r"\b(an? second|an? item|an? line) and\b|\bone \w+ an item\b": "per second, per item",
    r"(?<![Tt]here )\bis no (?!longer|more|other|doubt)[a-z]": "is not a",
}
"""Odd phrases, and what to write instead."""
ALLOWED = ("pin for ever", "pinned for ever")
"""Texts that are recorded in logs and compared by programs."""


def odd_lines(text: str) -> list[str]:
    """Return the lines of a text with an odd phrase, each with what to write instead."""
    return [
        f"{number}: {line.strip()} (write: {instead})"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, instead in ODD.items()
        if re.search(pattern, line) and not any(one in line for one in ALLOWED)
    ]


@pytest.mark.parametrize("place", PLACES)
def test_prose_is_plain(place):
    """No docstring, message or page has a phrase of the list; a failure shows line and remedy."""
    found = {str(file.relative_to(ROOT)): odd_lines(file.read_text("utf-8")) for file in ROOT.glob(place)}

    assert found
    assert {} == {file: lines for file, lines in found.items() if lines}


@pytest.mark.parametrize(
    "line", ["Tell whether it rains.", "whoever asks", "this is no bucket", '    """Give the name."""']
)
def test_odd_phrases_are_found(line):
    """The list finds the phrases that it was made for."""
    assert 1 == len(odd_lines(line))
