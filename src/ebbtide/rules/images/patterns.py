"""
Patterns of repositories and tags: a glob for the one, a regular expression for the other, both anchored.

A glob's ``*`` stands for any text, slashes too, ``?`` for one character, ``[a-z]`` for one of a set, and
``**/`` at the beginning for any folders or none. A tag
pattern must match the whole tag: ``0.0.1`` is not about ``0.0.10``.

A pattern comes from people and must not be able to stop a run. Python's own matcher can take for ever where
repetitions stand inside or beside each other, so patterns of that kind are walked instead: from the set of
positions that can be reached before a part of the pattern to the set that can be reached after it. No text is
tried in two ways, and the answer is the same. What cannot be walked (looking around, references to groups)
is refused, whatever else the pattern has.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ebbtide.errors import PolicyError

LONGEST_PATTERN = 512
_DEEPEST = 4
_FOLDERS = "**/"
_FEW = 2
"""So many repetitions side by side are no trouble on a tag, which has 128 characters at most."""

_parser = importlib.import_module("re._parser")
_constants = importlib.import_module("re._constants")

Walk = Callable[[str, frozenset[int]], frozenset[int]]
"""From the positions in a text before a part of a pattern to those after it."""


@dataclass(frozen=True)
class Glob:
    """A pattern of repository names."""

    text: str

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        whole = fnmatch.translate(self.text)
        rest = self.text.removeprefix(_FOLDERS)
        return re.compile(whole if rest == self.text else f"(?:{whole}|{fnmatch.translate(rest)})")

    def matches(self, name: str) -> bool:
        """Tell whether the whole name matches; upper and lower case differ."""
        return self._compiled.match(name) is not None


@dataclass(frozen=True)
class TagPattern:
    """A pattern of tags; made by :func:`tag_pattern`, which checks it."""

    text: str
    _match: Callable[[str], bool] = field(repr=False, compare=False)

    def matches(self, tag: str) -> bool:
        """Tell whether the whole tag matches."""
        return self._match(tag)

    def __reduce__(self) -> tuple[object, ...]:
        """Cross to an executor as text, which is read again there: what it was made into cannot be sent."""
        return (tag_pattern, ("", self.text))


def glob(where: str, text: Any) -> Glob:
    """Check a pattern of repositories."""
    return Glob(_short(where, text, 'write "*" for every repository, or "team/*"'))


def tag_pattern(where: str, text: Any) -> TagPattern:
    """Check a pattern of tags; an error says where it stands and what is wrong with it."""
    pattern = _short(where, text, 'write ".*" for every tag, or "v[0-9]+"')
    try:
        compiled, tree = re.compile(pattern), _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as broken:
        fix = 'write a regular expression for the whole tag, such as "v.*"'
        raise PolicyError(f"{where}: {pattern!r} is no regular expression: {broken}", fix=fix) from None
    walk = _sequence(where, tree, bool(compiled.flags & re.IGNORECASE), 0)
    if _is_harmless(tree):
        return TagPattern(pattern, lambda tag: compiled.fullmatch(tag) is not None)
    return TagPattern(pattern, lambda tag: len(tag) in walk(tag, frozenset({0})))


def _short(where: str, text: Any, fix: str) -> str:
    if not isinstance(text, str) or not text:
        raise PolicyError(f"{where} is {text!r}", fix=fix)
    if len(text) > LONGEST_PATTERN:
        raise PolicyError(f"{where} has {len(text)} characters", fix=f"use {LONGEST_PATTERN} at most")
    return text


def _is_harmless(tree: Any) -> bool:
    """Tell that Python's matcher cannot take long: few repetitions, and no choice inside one."""
    repeats = [argument for kind, argument in tree if kind in _REPEATS]
    groups = [argument for kind, argument in tree if kind is _constants.SUBPATTERN]
    plain = all(len(body) == 1 and body[0][0] in _SINGLES for _, _, body in repeats)
    simple = all(kind in _SINGLES | _REPEATS | {_constants.AT} for kind, _ in tree)
    return not groups and simple and plain and len(repeats) <= _FEW


_REPEATS = frozenset({_constants.MAX_REPEAT, _constants.MIN_REPEAT})
_SINGLES = frozenset({_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN})


def _sequence(where: str, tree: Iterable[tuple[Any, Any]], folds: bool, depth: int) -> Walk:  # noqa: FBT001 - a flag of the pattern, handed down
    """Walk the parts of a pattern one after the other."""
    parts = [_part(where, kind, argument, folds, depth) for kind, argument in tree]

    def walk(text: str, at: frozenset[int]) -> frozenset[int]:
        for part in parts:
            at = part(text, at)
            if not at:
                break
        return at

    return walk


def _part(where: str, kind: Any, argument: Any, folds: bool, depth: int) -> Walk:  # noqa: FBT001 - as above
    if kind in _SINGLES:
        return _single(_test(kind, argument, folds))
    if kind in _REPEATS and depth < _DEEPEST:
        least, most, body = argument
        return _repeated(_sequence(where, body, folds, depth + 1), least, most)
    if kind is _constants.SUBPATTERN and not argument[1] and not argument[2]:
        return _sequence(where, argument[3], folds, depth)
    if kind is _constants.BRANCH:
        return _branches([_sequence(where, branch, folds, depth) for branch in argument[1]])
    if kind is _constants.AT and argument in _ANCHORS:
        return _ANCHORS[argument]
    raise PolicyError(
        f"{where}: this regular expression uses something that tag patterns do not have",
        why="looking around, references to groups, flags inside and deep nesting can make it run for ever",
        fix="write it with characters, sets, groups, | and repetitions",
    )


def _single(test: Callable[[str], bool]) -> Walk:
    return lambda text, at: frozenset(spot + 1 for spot in at if spot < len(text) and test(text[spot]))


def _test(kind: Any, argument: Any, folds: bool) -> Callable[[str], bool]:  # noqa: FBT001 - as above
    """Test one character the way Python does: a set of one is given to Python's own matcher."""
    if kind is _constants.ANY:
        return lambda character: character != "\n"
    items = [(kind, argument)] if kind is not _constants.IN else argument
    wanted = [(_constants.NEGATE, None), (_constants.LITERAL, argument)]
    compiled = _one_of(wanted if kind is _constants.NOT_LITERAL else items, folds)
    return lambda character: compiled.fullmatch(character) is not None


def _one_of(items: Sequence[tuple[Any, Any]], folds: bool) -> re.Pattern[str]:  # noqa: FBT001 - as above
    """Write a parsed set of characters as a pattern again."""
    text = "".join(_item(kind, argument) for kind, argument in items)
    return re.compile(f"[{text}]", re.IGNORECASE if folds else 0)


def _item(kind: Any, argument: Any) -> str:
    if kind is _constants.NEGATE:
        return "^"
    if kind is _constants.RANGE:
        return f"{_character(argument[0])}-{_character(argument[1])}"
    if kind is _constants.CATEGORY:
        return _CATEGORIES[argument]
    return _character(argument)


def _character(code: int) -> str:
    return f"\\U{code:08x}"


_CATEGORIES = {
    _constants.CATEGORY_DIGIT: r"\d",
    _constants.CATEGORY_NOT_DIGIT: r"\D",
    _constants.CATEGORY_SPACE: r"\s",
    _constants.CATEGORY_NOT_SPACE: r"\S",
    _constants.CATEGORY_WORD: r"\w",
    _constants.CATEGORY_NOT_WORD: r"\W",
}


def _repeated(body: Walk, least: int, most: Any) -> Walk:
    """Walk a part so often; positions that were reached before lead nowhere new."""

    def walk(text: str, at: frozenset[int]) -> frozenset[int]:
        for _ in range(least):
            before, at = at, body(text, at)
            if at in (before, frozenset()):
                break
        # More rounds than characters cannot reach more, and each round goes on from what is new.
        found = fresh = at
        for _ in range(min(int(most) - least, len(text))):
            fresh = body(text, fresh) - found
            if not fresh:
                break
            found |= fresh
        return found

    return walk


def _branches(branches: Sequence[Walk]) -> Walk:
    return lambda text, at: frozenset().union(*(branch(text, at) for branch in branches))


_ANCHORS: dict[Any, Walk] = {
    _constants.AT_BEGINNING: lambda _, at: at & {0},
    _constants.AT_BEGINNING_STRING: lambda _, at: at & {0},
    _constants.AT_END: lambda text, at: at & {len(text)},
    _constants.AT_END_STRING: lambda text, at: at & {len(text)},
}
