"""Lines of CSV parsed without Spark: the same text columns as Spark's, or none.

Spark's parser has answers of its own for damaged or unusual lines. So this one reads only bytes
that leave no choice: UTF-8 lines with equally many fields, each either without quotes or quoted as
RFC 4180 has it. For everything else it returns None, and Spark reads the files.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pa_csv

HEADER_BYTES = 64 * 1024
"""Bytes at the start of a file in which its header is looked for."""

MOST_COLUMNS = 10_000
_OPTIONS = {"header", "sep", "delimiter"}
_SEPARATORS = {",": ",", ";": ";", "|": "|", "\t": "\t", "\\t": "\t"}
_UNUSUAL = (b"\x00", b"\r", b"\xef\xbb\xbf")
"""What may be a line end, or a byte order mark."""

_SPACES = rb"[\x00-\x09\x0b-\x20]+(?:\n|\Z)"
_FIRST_OF_SPACES, _LATER_OF_SPACES = re.compile(_SPACES), re.compile(rb"\n" + _SPACES)
"""A line of nothing but spaces. As one pattern of two choices, they would take thirty times as
long: Python looks for a literal start fast."""


@dataclass(frozen=True)
class PlainCsv:
    """How lines of one stream are parsed.

    Attributes:
        separator: One character.
        header: Whether each file starts with a header line.
    """

    separator: str
    header: bool

    def first_line(self, head: bytes) -> tuple[tuple[str, ...], int] | None:
        """Return the fields of the first line that is not blank, and where the line ends.

        Args:
            head: The start of a file, with the whole line; line feeds end lines.

        Returns:
            None if there is no such line, or Spark may read it in another way.
        """
        start = len(head) - len(head.lstrip(b"\n"))
        end = head.find(b"\n", start)
        end = len(head) if end < 0 else end
        line = self._checked(head[start:end])
        if not line:
            return None
        try:
            (fields,) = csv.reader([line.decode()], delimiter=self.separator, strict=True)
        except csv.Error:
            return None
        return (tuple(fields), end) if len(fields) <= MOST_COLUMNS else None

    def columns(self, data: bytes, count: int) -> list[pa.StringArray] | None:
        """Parse lines into columns of text; an empty field is null.

        Args:
            data: Whole lines without a header; line feeds end lines.
            count: The number of columns.

        Returns:
            None if Spark may read the lines in another way.
        """
        if not data.strip(b"\n"):
            return [pa.array([], pa.string())] * count
        if not self._checked(data):
            return None
        names = [f"c{number}" for number in range(count)]
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(data),
                pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                pa_csv.ParseOptions(delimiter=self.separator, newlines_in_values=False),
                pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [column.combine_chunks() for column in table.columns]

    def _checked(self, data: bytes) -> bytes:
        """Return the data if they leave no choice to a parser; else nothing."""
        if any(found in data for found in _UNUSUAL):
            return b""
        if _FIRST_OF_SPACES.match(data) or _LATER_OF_SPACES.search(data):
            return b""
        try:
            data.decode()
        except UnicodeDecodeError:
            return b""
        if b'"' in data:
            around = re.escape(self.separator.encode()) + b"\\n"
            quoted = rb'(?<![^%b])"[^"\n]*(?:""[^"\n]*)*"(?=[%b]|\Z)' % (around, around)
            # A quote that is left is not part of a quoted field.
            if b'"' in re.sub(quoted, b"", data):
                return b""
        return data


def plain_csv(options: Mapping[str, str], *, header: bool) -> PlainCsv | None:
    """Return how lines are parsed; None if an option asks for more.

    Args:
        options: The stream's reader options.
        header: Whether each file starts with a header line.
    """
    given = {name.lower(): value for name, value in options.items()}
    separators = [given[name] for name in ("sep", "delimiter") if name in given] or [","]
    separator = _SEPARATORS.get(str(separators[0]))
    if given.keys() - _OPTIONS or len(separators) > 1 or separator is None:
        return None
    return PlainCsv(separator, header)
