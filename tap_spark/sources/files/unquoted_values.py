"""Unquoted JSON values in fields of type text: enclosed in quotes, unchanged.

Spark's `from_json` parses numbers and writes them as text again, which loses digits (`1.10`); its
reader of whole files keeps them. With quotes, both return the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

TEXT = "text"
EVERY = ""
TextFields: TypeAlias = "dict[str, TextFields] | list[TextFields] | str"
_SPACES = frozenset(" \t\r\n")
_DECODER = json.JSONDecoder()
_CHANGED = r"(?:-?[0-9]+[.eE]|-0|[\[{])"


def text_fields_of(dtype: DataType) -> TextFields | None:
    """Find the text fields of a type: by name, in a list for elements; None without any."""
    if isinstance(dtype, StringType):
        return TEXT
    if isinstance(dtype, ArrayType):
        inner = text_fields_of(dtype.elementType)
        return None if inner is None else [inner]
    if isinstance(dtype, MapType):
        inner = text_fields_of(dtype.valueType)
        return None if inner is None else {EVERY: inner}
    if isinstance(dtype, StructType):
        parts = {field.name: text_fields_of(field.dataType) for field in dtype.fields}
        return {name: part for name, part in parts.items() if part is not None} or None
    return None


@dataclass(frozen=True)
class UnquotedValues:
    """Puts unquoted values in quotes; for lines of JSON records or arrays of records.

    Attributes:
        text_fields: The text fields of records.
    """

    text_fields: TextFields

    def __call__(self, lines: pa.Array) -> pa.Array:
        """Return the lines with quoted values; lines that are not JSON stay unchanged."""
        found = pc.match_substring_regex(lines, self._pattern())
        if not found.true_count:
            return lines
        texts = [self.quoted(line) for line in lines.filter(found).to_pylist()]
        return pc.replace_with_mask(lines, found, pa.array(texts, lines.type))

    def _pattern(self) -> str:
        """Return a pattern for lines that may have an unquoted value in a text field."""
        names = [
            re.escape(json.dumps(n, ensure_ascii=False)) for n in {*_text_names(self.text_fields)}
        ]
        several = _has_elements(self.text_fields)
        named = rf"(?:{'|'.join(names)})\s*:\s*{_CHANGED}" if names else ""
        escaped = r"\\u[0-9a-fA-F]{4}[^\"]*\"\s*:"
        element = rf"[:,\[]\s*{_CHANGED}" if several else ""
        return "|".join(filter(None, (named, element, escaped)))

    def quoted(self, line: bytes) -> bytes:
        """Return a line with quoted values; one that is not JSON stays unchanged."""
        try:
            text = line.decode()
            start = _skip(text, 0)
            text_fields = [self.text_fields] if text[start : start + 1] == "[" else self.text_fields
            found: list[tuple[int, int]] = []
            _find(text, start, text_fields, found)
        except (ValueError, IndexError, RecursionError):
            return line
        parts: list[str] = []
        at = 0
        for start, end in found:
            parts += [text[at:start], json.dumps(text[start:end], ensure_ascii=False)]
            at = end
        return "".join([*parts, text[at:]]).encode()


def _text_names(text_fields: TextFields) -> Iterator[str]:
    if isinstance(text_fields, dict):
        for name, inner in text_fields.items():
            if inner == TEXT and name != EVERY:
                yield name
            yield from _text_names(inner)
    elif isinstance(text_fields, list):
        yield from _text_names(text_fields[0])


def _has_elements(text_fields: TextFields) -> bool:
    """Return whether there are text fields without a name, as elements or map values."""
    if isinstance(text_fields, dict):
        return text_fields.get(EVERY) == TEXT or any(map(_has_elements, text_fields.values()))
    return isinstance(text_fields, list) and (
        text_fields[0] == TEXT or _has_elements(text_fields[0])
    )


def _find(text: str, at: int, text_fields: TextFields | None, found: list[tuple[int, int]]) -> int:
    """Add the ranges of unquoted values in the value that starts here; return its end."""
    if isinstance(text_fields, dict) and text[at] == "{":
        return _find_in_object(text, at, text_fields, found)
    if isinstance(text_fields, list) and text[at] == "[":
        return _find_in_array(text, at, text_fields[0], found)
    _, end = _DECODER.raw_decode(text, at)
    if text_fields == TEXT and text[at] != '"' and text[at:end] != "null":
        found.append((at, end))
    return end


def _find_in_object(
    text: str, at: int, text_fields: dict[str, TextFields], found: list[tuple[int, int]]
) -> int:
    at = _skip(text, at + 1)
    if text[at] == "}":
        return at + 1
    while True:
        _expect(text, at, '"')
        name, at = scanstring(text, at + 1)
        at = _skip(text, at)
        _expect(text, at, ":")
        inner = text_fields.get(name, text_fields.get(EVERY))
        at = _skip(text, _find(text, _skip(text, at + 1), inner, found))
        if text[at] == "}":
            return at + 1
        _expect(text, at, ",")
        at = _skip(text, at + 1)


def _find_in_array(text: str, at: int, inner: TextFields, found: list[tuple[int, int]]) -> int:
    at = _skip(text, at + 1)
    if text[at] == "]":
        return at + 1
    while True:
        at = _skip(text, _find(text, at, inner, found))
        if text[at] == "]":
            return at + 1
        _expect(text, at, ",")
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    """Return where the next character that is not a space is."""
    while text[at : at + 1] in _SPACES:
        at += 1
    return at


def _expect(text: str, at: int, char: str) -> None:
    if text[at] != char:
        raise ValueError(at)
