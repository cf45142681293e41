"""JSON lines to Arrow-ready Python values, exactly, with a reason for each rejected line.

The slow but exact half of the reader: `json_lines` uses it only if Arrow's own JSON reader rejects
a block.

Why beside `fast_json`: Arrow does not say which record of a block is wrong, nor why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from shared.formats.json_text import Refused, Value, decode, json_text
from shared.formats.json_values import Convert, field_values, instant, integer
from shared.formats.schema_nodes import INTEGER_WIDTHS
from shared.formats.spark_types import T


@dataclass
class ExactRows:
    """What was read from lines: one list per column, and the rejected lines."""

    columns: list[list[Value]]
    extracted: list[int | None] = field(default_factory=list)
    versions: list[int | None] = field(default_factory=list)
    rows_read: int = 0
    rejects: list[tuple[int, str]] = field(default_factory=list)


class ExactReader:
    """Reads lines with converters made once from the columns; arguments as `FastReader`."""

    def __init__(
        self, struct: T.StructType, *, free_form: bool, envelope: bool, strict: bool
    ) -> None:
        self.envelope = envelope
        self.width = len(struct.fields)
        self._convert: Callable[[Mapping[str, Value]], list[Value]]
        if free_form:
            self._convert = lambda record: [json_text(record)]
        else:
            self._convert = field_values(struct, strict)

    def read(self, lines: Iterator[tuple[int, bytes]]) -> ExactRows:
        """Read numbered lines; ignore blank ones."""
        rows = ExactRows([[] for _ in range(self.width)])
        for number, line in lines:
            if line.strip(b" \t\r\n"):
                rows.rows_read += 1
                try:
                    self._line(line, rows)
                except Refused as refused:
                    rows.rejects.append((number, str(refused)))
        return rows

    def values(self, record: Mapping[str, Value]) -> list[Value]:
        """Convert a decoded record to the values of its columns.

        Raises:
            Refused: A value does not fit its column.
        """
        try:
            return self._convert(record)
        except RecursionError:
            raise Refused("values are nested too deeply") from None

    def _line(self, line: bytes, rows: ExactRows) -> None:
        message = decode(line)
        record = message.get("record") if self.envelope else message
        if not isinstance(record, dict):
            raise Refused("RECORD message without a 'record' object")
        for column, value in zip(rows.columns, self.values(record), strict=True):
            column.append(value)
        if self.envelope:
            rows.extracted.append(_or_none(instant, message.get("time_extracted")))
            rows.versions.append(_or_none(_VERSION, message.get("version")))


_VERSION = integer(*INTEGER_WIDTHS[T.LongType], strict=True)


def _or_none(convert: Convert, value: Value) -> Value:
    try:
        return convert(value)
    except Refused:
        return None
