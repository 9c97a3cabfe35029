"""
Patterns of repositories and tags. Both must match the whole name: ``0.0.1`` does not match ``0.0.10``.

A repository pattern is a glob: ``*`` matches any text, slashes too, ``?`` one character, ``[a-z]`` one of a
set, and ``**/`` at the beginning any folders or none. A tag pattern is a regular expression that RE2 matches
in time linear to the length of the tag, so no pattern can stall a run. RE2 has no lookarounds and no
backreferences; :func:`tag_pattern` refuses them.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from ebbtide.core.errors import PolicyError

LONGEST_PATTERN = 512
_FOLDERS = "**/"


@dataclass(frozen=True)
class Glob:
    """A pattern of repository names; made by :func:`glob`, which checks it."""

    text: str

    def matches(self, name: str) -> bool:
        """Return True if the whole name matches; case matters."""
        return _compiled_glob(self.text).match(name) is not None


@dataclass(frozen=True)
class TagPattern:
    """A pattern of tags; made by :func:`tag_pattern`, which checks it."""

    text: str

    def matches(self, tag: str) -> bool:
        """Return True if the whole tag matches."""
        return _compiled_tag(self.text).fullmatch(tag.encode()) is not None


def glob(where: str, text: Any) -> Glob:
    """Check a pattern of repositories; `where` names it in errors."""
    return Glob(_checked(where, text, 'write "*" for every repository, or "team/*"'))


def tag_pattern(where: str, text: Any) -> TagPattern:
    """Check a pattern of tags; `where` names it in errors."""
    pattern = _checked(where, text, 'write ".*" for every tag, or "v[0-9]+"')
    try:
        _compiled_tag(pattern)
    except (re2.error, UnicodeEncodeError) as refused:
        reason = refused.args[0].decode(errors="replace") if isinstance(refused, re2.error) else str(refused)
        raise PolicyError(
            f"{where}: {pattern!r} is not a regular expression that RE2 can match: {reason}",
            why="RE2 has no lookarounds, no backreferences and no repetitions over 1000",
            fix='write a pattern of the whole tag with characters, sets, groups, | and *, as in "v[0-9.]+"',
        ) from None
    return TagPattern(pattern)


def _checked(where: str, text: Any, fix: str) -> str:
    if not isinstance(text, str) or not text:
        raise PolicyError(f"{where} is {text!r}", fix=fix)
    if len(text) > LONGEST_PATTERN:
        raise PolicyError(f"{where} has {len(text)} characters", fix=f"use at most {LONGEST_PATTERN}")
    return text


@lru_cache
def _compiled_glob(text: str) -> re.Pattern[str]:
    # The star of fnmatch never backtracks past an earlier star, so this cannot stall either.
    whole = fnmatch.translate(text)
    rest = text.removeprefix(_FOLDERS)
    return re.compile(whole if rest == text else f"(?:{whole}|{fnmatch.translate(rest)})")


@lru_cache
def _compiled_tag(text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return re2.compile(_in_re2_syntax(text).encode(), options)


_DIALECT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{,\d*\}", re.DOTALL)


def _in_re2_syntax(pattern: str) -> str:
    r"""
    Rewrite what Python and RE2 read differently, so that stored patterns keep their meaning.

    ``{,3}`` is text in RE2 and becomes ``{0,3}``; ``\Z`` becomes ``\z``; ``[`` in a set, which may begin a
    POSIX class in RE2, becomes ``\[``.
    """

    def rewrite(token: re.Match[str]) -> str:
        text = token[0]
        if text.startswith("{"):
            return "{0" + text[1:]
        if text.startswith("["):
            return "[" + re.sub(r"\\.|\[", lambda part: r"\[" if part[0] == "[" else part[0], text[1:])
        return r"\z" if text == r"\Z" else text

    return _DIALECT.sub(rewrite, pattern)
