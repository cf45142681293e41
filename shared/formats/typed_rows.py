"""Rows of Parquet, ORC, Avro and CSV files as the columns of a stream, with a verdict on each row.

Columns whose types differ from the stream's are cast by Arrow if nothing can be lost or
mistaken; every other column, and one with a value that does not fit, is converted value by value,
by the converters that read JSON, so that a file of any format is judged as JSON lines are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.arrow_types import (
    as_nullable,
    breaks_nullability,
    conform_column,
    dropped_fields,
    rows_without_columns,
    struct_to_arrow,
)
from shared.formats.json_text import Refused
from shared.formats.row_values import plain_rows, plain_values, row_converter, row_text
from shared.formats.schema_nodes import JsonText, is_free_form, schema_columns
from shared.formats.spark_types import T

_MISSING = "null or missing where a value is required"
_ODD = (T.VariantType, JsonText)


@dataclass(frozen=True)
class RowsRead:
    """What was read from one table of a file.

    Attributes:
        table: The accepted rows, columns in schema order.
        rejects: 0-based row within the table, and the reason, for each rejected row; in order.
        cut: Columns with times whose digits below microseconds are cut.
    """

    table: pa.Table
    rejects: tuple[tuple[int, str], ...] = ()
    cut: frozenset[str] = frozenset()


class RowReader:
    """Brings tables of any file to the columns of a stream.

    Args:
        schema: The stream's JSON Schema.
        strict: Reject values of another type; as for `shared.formats.json_lines.LineReader`.
        texts: Columns hold the texts of a CSV file.
    """

    def __init__(self, schema: Mapping[str, Any], *, strict: bool, texts: bool = False) -> None:
        self._struct = schema_columns(schema, JsonText())
        self._strict = strict
        self._texts = texts
        self._free_form = is_free_form(schema)
        self.arrow_schema: pa.Schema = struct_to_arrow(as_nullable(self._struct))

    def fits(self, names: list[str]) -> bool:
        """Return whether a file with these columns can hold records of the stream."""
        declared = set(self.arrow_schema.names)
        return self._free_form or not declared or bool(declared.intersection(names)) or not names

    def read(self, table: pa.Table) -> RowsRead:
        """Convert all rows."""
        if self._free_form:
            texts = [row_text(row).decode() for row in plain_rows(table)]
            return RowsRead(pa.table([pa.array(texts, pa.string())], schema=self.arrow_schema))
        refusals: dict[int, str] = {}
        cut: set[str] = set()
        columns = [self._column(table, field, refusals, cut) for field in self._struct.fields]
        if not columns:
            return RowsRead(rows_without_columns(table.num_rows))
        whole = pa.Table.from_arrays(columns, schema=self.arrow_schema)
        if not refusals:
            return RowsRead(whole, cut=frozenset(cut))
        refused = pa.array(sorted(refusals), pa.int64())
        rows = pa.array(range(table.num_rows), pa.int64())
        kept = whole.filter(pc.invert(pc.is_in(rows, refused)))
        return RowsRead(kept, tuple(sorted(refusals.items())), frozenset(cut))

    def undeclared(self, table: pa.Table) -> dict[tuple[str, ...], int]:
        """Return the columns, and fields within, that the schema does not name, with their values.

        Values are counted that are not null.
        """
        if self._free_form or not table.num_rows:  # Older Arrow makes no struct of no rows.
            return {}
        return dict(dropped_fields(table.to_struct_array(), pa.struct(self.arrow_schema)))

    def _column(
        self, table: pa.Table, column: T.StructField, refusals: dict[int, str], cut: set[str]
    ) -> pa.Array | pa.ChunkedArray:
        """Return a column; add reasons by row, of which the first one counts, and cut columns."""
        kind = self.arrow_schema.field(column.name).type
        position = (
            table.column_names.index(column.name) if column.name in table.column_names else None
        )
        values = pa.nulls(table.num_rows, kind) if position is None else table.column(position)
        cast = self._cast(values, column.dataType, kind)
        if cast is None:
            return self._converted(values, column, kind, refusals, cut)
        if self._strict and breaks_nullability(cast, column.dataType, column.nullable):
            return self._converted(values, column, kind, refusals, cut)
        return cast

    def _cast(
        self, column: pa.Array | pa.ChunkedArray, data_type: T.DataType, kind: pa.DataType
    ) -> pa.Array | pa.ChunkedArray | None:
        """Return the column as Arrow casts it; None if values must be checked one by one."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if isinstance(data_type, _ODD) and not _is_text(column.type):
            return None
        if isinstance(data_type, T.VariantType) and self._texts:
            return None
        if column.type.equals(kind):
            return column
        if not (_is_text(column.type) and self._texts and _parses(kind)) and not _is_safe(
            column.type, kind
        ):
            return None
        try:
            return conform_column(column, kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def _converted(
        self, column: pa.Array | pa.ChunkedArray, field_: T.StructField, kind: pa.DataType,
        refusals: dict[int, str], cut: set[str],
    ) -> pa.Array:  # fmt: skip
        convert = row_converter(field_.dataType, self._strict, self._texts)
        required = self._strict and not field_.nullable
        if (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and _is_finer(column):
            cut.add(field_.name)
        values: list[Any] = []
        for row, value in enumerate(plain_values(column)):
            try:
                if value is None and required:
                    raise Refused(_MISSING)
                values.append(None if value is None else convert(value))
            except Refused as refused:
                values.append(None)
                refusals.setdefault(row, str(refused.under(field_.name)))
        return pa.array(values, kind)


def _is_finer(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether times that cannot be cast have digits below microseconds."""
    if _is_text(column.type):
        return bool(pc.any(pc.match_substring_regex(column, r"[.,]\d{6}\d*[1-9]")).as_py())
    return getattr(column.type, "unit", None) == "ns"


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _parses(kind: pa.DataType) -> bool:
    """Return whether Arrow reads text as this type as CSV means it."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _is_safe(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow's checked cast keeps the meaning of every value that it lets pass."""
    is_ = pa.types
    if source.equals(target) or is_.is_null(source):
        return True
    if is_.is_list(target) or is_.is_large_list(source):
        return (
            is_.is_list(source)
            and is_.is_list(target)
            and _is_safe(source.value_type, target.value_type)
        )
    if is_.is_struct(target) and is_.is_struct(source):
        return all(
            source.get_field_index(f.name) < 0 or _is_safe(source.field(f.name).type, f.type)
            for f in (target.field(n) for n in range(target.num_fields))
        )
    if is_.is_map(target) and is_.is_map(source):
        return _is_safe(source.key_type, target.key_type) and _is_safe(
            source.item_type, target.item_type
        )
    numbers = is_.is_integer(source) and (
        is_.is_integer(target) or is_.is_floating(target) or is_.is_decimal(target)
    )
    alike = (
        is_.is_floating, is_.is_decimal, is_.is_timestamp, is_.is_date, is_.is_time, _is_text,
        _is_bytes,
    )  # fmt: skip
    return numbers or any(same(source) and same(target) for same in alike)
