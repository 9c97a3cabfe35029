"""
Configurations as XML: read without entities, document types or surprises, and written as S3 writes them.

The parser stops at the first declaration that could make a small document large or reach for another file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, NoReturn
from xml.parsers import expat

from ebbtide.rules.documents import nearest
from ebbtide.rules.s3.refusals import malformed, shown
from ebbtide.rules.s3.shape import CONFIGURATION, Field, Kind

ROOT = "LifecycleConfiguration"
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"

_MOST_ELEMENTS = 200_000
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_FLAGS = {"true": True, "false": False}
_LINE_ENDS = {ord("\r"): "&#13;"}


@dataclass
class _Element:
    name: str
    pieces: list[str] = field(default_factory=list)
    children: list[_Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def xml_to_plain(text: str) -> Any:
    """Read XML into boto3's form; values of the wrong kind stay texts, for the common check to refuse."""
    root = _Reader().read(text)
    if root.name != ROOT:
        raise malformed(f"the document is <{root.name}>", fix=f"its root is <{ROOT}>")
    plain = _value(ROOT, CONFIGURATION, root)
    return {"Rules": []} | plain if isinstance(plain, dict) else {"Rules": plain}


def plain_to_xml(plain: Mapping[str, Any]) -> str:
    """Write rules in boto3's form as XML in S3's namespace."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<{ROOT} xmlns="{NAMESPACE}">']
    lines += _lines(CONFIGURATION, plain, "  ")
    return "\n".join([*lines, f"</{ROOT}>", ""])


class _Reader:
    """Builds the tree of elements while the parser goes through the text."""

    def __init__(self) -> None:
        self._open: list[_Element] = []
        self._root: _Element | None = None
        self._namespace = ""
        self._elements = 0
        # The encoding is given because the text is decoded already, whatever its first line says.
        self._parser = expat.ParserCreate("UTF-8", namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = _refuse_declaration
        self._parser.EntityDeclHandler = _refuse_declaration
        self._parser.ExternalEntityRefHandler = _refuse_declaration
        self._parser.SkippedEntityHandler = _refuse_declaration

    def read(self, text: str) -> _Element:
        try:
            self._parser.Parse(text.encode(), True)
        except (expat.ExpatError, UnicodeEncodeError) as broken:
            raise malformed(f"this is not XML: {broken}", fix="correct the syntax") from None
        if self._root is None:
            raise malformed("this is not XML: no element found", fix="correct the syntax")
        return self._root

    def _start(self, spelled: str, attributes: dict[str, str]) -> None:
        namespace, _, name = spelled.rpartition(" ")
        if not self._open:
            self._namespace = namespace
        if namespace != self._namespace or namespace not in ("", NAMESPACE):
            raise malformed(f"<{name}> is in the namespace {shown(namespace)}", fix=f"use {NAMESPACE}")
        if attributes:
            raise malformed(f"<{name}> has the attribute {shown(min(attributes))}", fix="leave it out")
        self._elements += 1
        if self._elements > _MOST_ELEMENTS:
            raise malformed(f"<{name}> is one element too many", fix="write fewer rules")
        element = _Element(name)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, _name: str) -> None:
        element = self._open.pop()
        if element.children:
            if element.text.strip():
                raise malformed(f"<{element.name}> holds text beside elements", fix="remove the text")
            element.pieces.clear()

    def _characters(self, text: str) -> None:
        self._open[-1].pieces.append(text)


def _refuse_declaration(*_what: Any) -> NoReturn:
    raise malformed(
        "the document declares a document type or entities",
        why="these can make a small document endless or read other files, and no configuration needs them",
        fix="remove the declaration",
    )


def _value(place: str, kind: Kind | Mapping[str, Field], element: _Element) -> Any:
    if isinstance(kind, Kind):
        if element.children:
            raise malformed(f"{place} holds elements", fix=f"write {kind}")
        return _leaf(kind, element.text)
    if element.text.strip():
        return element.text
    names = {field.element or name: name for name, field in kind.items()}
    plain: dict[str, Any] = {}
    for child in element.children:
        _add(f"{place}/{child.name}", names, kind, child, plain)
    return plain


def _add(
    place: str, names: Mapping[str, str], fields: Mapping[str, Field], child: _Element, plain: dict[str, Any]
) -> None:
    name = names.get(child.name)
    if name is None:
        raise malformed(f"{place}: unknown element", fix=nearest(child.name, names))
    value = _value(place, fields[name].kind, child)
    if fields[name].many:
        plain.setdefault(name, []).append(value)
    elif name in plain:
        raise malformed(f"{place} is given twice", fix="remove one of the two")
    else:
        plain[name] = value


def _leaf(kind: Kind, text: str) -> Any:
    if kind is Kind.WHOLE and _WHOLE.fullmatch(text):
        return int(text)
    return _FLAGS.get(text, text) if kind is Kind.FLAG else text


def _lines(fields: Mapping[str, Field], plain: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for name, field_ in fields.items():
        if name in plain:
            items = plain[name] if field_.many else [plain[name]]
            for item in items:
                lines += _element_lines(field_.element or name, field_.kind, item, indent)
    return lines


def _element_lines(name: str, kind: Kind | Mapping[str, Field], value: Any, indent: str) -> list[str]:
    if isinstance(kind, Kind):
        written = str(value).lower() if kind is Kind.FLAG else str(value)
        # A bare carriage return would be read back as a line feed.
        return [f"{indent}<{name}>{escape(written, quote=False).translate(_LINE_ENDS)}</{name}>"]
    return [f"{indent}<{name}>", *_lines(kind, value, f"{indent}  "), f"{indent}</{name}>"]
