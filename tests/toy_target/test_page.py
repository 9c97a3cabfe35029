"""The page that explains the toy target shows its real code."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

from tests.toy_target.installation import PROJECT

PAGE = Path(__file__).parents[2] / "docs/how-to/write-a-target.md"
_CODE = re.compile(r"^```(?:python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_shows_the_code_as_it_is():
    """Every block of Python or TOML on the page is a part of the package, word by word."""
    package = [
        file.read_text(encoding="utf-8") for file in PROJECT.rglob("*") if file.suffix in {".py", ".toml"}
    ]
    blocks = _CODE.findall(PAGE.read_text(encoding="utf-8"))

    assert len(blocks) > 5
    shown = [(block, indent(block, "    ")) for block in blocks]
    assert [] == [top for top, method in shown if not any(top in text or method in text for text in package)]
