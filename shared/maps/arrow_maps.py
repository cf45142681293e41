"""Maps of Arrow tables without Spark: by kernels of Arrow, and by Python what those cannot compute.

Results are those of Spark's columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import struct_to_arrow
from shared.maps.expressions.arrow_columns import (
    WHOLE,
    ArrowPair,
    Rows,
    View,
    column,
    is_as_in_json,
    view,
)
from shared.maps.expressions.arrow_results import is_json
from shared.maps.expressions.evaluator import Task
from shared.maps.expressions.syntax import ERROR
from shared.maps.expressions.value_kinds import data_type_of
from shared.maps.expressions.values import Unsupported
from shared.maps.transform import Cell, Transform

if TYPE_CHECKING:
    from shared.maps.expressions.planned import Computed

_ESCAPE = re.compile(r"\\u[0-9a-f]{4}|\\.")

ROWS = 65_536
"""Rows that are mapped at once."""
_BYTES = 64 * 1024 * 1024
"""Bytes of them, if they have so many before."""

Method: TypeAlias = "ArrowPair | Task"


@dataclass(frozen=True)
class ArrowMap:
    """A map of Arrow tables, by the cells, computed values and filter of a transform.

    Attributes:
        ways: How each value is computed, also that of the filter.
        views: How Python sees source columns: as in a RECORD message.
    """

    cells: tuple[Cell, ...]
    computed: tuple[Computed, ...]
    filter: Computed | None
    ways: Mapping[Computed, Method]
    views: Mapping[str, View]

    @property
    def in_python(self) -> bool:
        """Return whether Python evaluates an expression record by record."""
        return any(isinstance(method, Task) for method in self.ways.values())

    def apply(self, table: pa.Table, keep: Sequence[str] = ()) -> pa.Table:
        """Map the rows of a table of source columns, with the Arrow types of their Spark types.

        The result has the columns of the map, `ERROR` as `Transform.apply` has it, and those of
        `keep`, unchanged. Rows that the filter does not keep are dropped; those with an error stay.
        """
        most = max(1, min(ROWS, _BYTES * table.num_rows // max(table.nbytes, 1)))
        starts = range(0, table.num_rows, most) or [0]
        return pa.concat_tables([self._part(table.slice(at, most), keep) for at in starts])

    def _part(self, table: pa.Table, keep: Sequence[str]) -> pa.Table:
        count = table.num_rows
        try:
            return self._mapped(table.combine_chunks(), keep)
        except pa.ArrowCapacityError as error:
            # A column of more than 2 GiB.
            if count > 1:
                halves = (table.slice(0, count // 2), table.slice(count // 2))
                return pa.concat_tables([self._part(half, keep) for half in halves])
            empty = self._mapped(table.slice(0, 0), keep)
            failed = {field.name: pa.nulls(1, field.type) for field in empty.schema}
            failed[ERROR] = pa.array([f"OverflowError: {error}"])
            return pa.table({**failed, **{name: table.column(name) for name in keep}})

    def _mapped(self, table: pa.Table, keep: Sequence[str]) -> pa.Table:
        errors: pa.Array = pa.nulls(table.num_rows, pa.string())
        if self.filter is not None:
            [(good, errors)] = self._values([self.filter], table)
            kept = pc.or_(pc.is_valid(errors), pc.fill_null(good, False))
            table, errors = table.filter(kept).combine_chunks(), errors.filter(kept)
        values = dict(zip(self.computed, self._values(self.computed, table), strict=True))
        failed = [error for _, error in values.values() if error.null_count < len(error)]
        errors = pc.coalesce(errors, *failed)
        cells = {cell.name: _cell(cell, table, values) for cell in self.cells}
        return pa.table({**cells, ERROR: errors, **{name: table.column(name) for name in keep}})

    def _values(
        self, values: Iterable[Computed], table: pa.Table
    ) -> list[tuple[pa.Array, pa.Array]]:
        """Compute values; return those of each, and its errors."""
        columns = {
            name: one.chunk(0) if one.num_chunks == 1 else one.combine_chunks()
            for name, one in zip(table.column_names, table.columns, strict=True)
        }
        rows, seen = Rows(columns, table.num_rows), dict[str, pa.Array]()
        return [self._value(one, rows, seen) for one in values]

    def _value(
        self, computed: Computed, rows: Rows, seen: dict[str, pa.Array]
    ) -> tuple[pa.Array, pa.Array]:
        method = self.ways[computed]
        if isinstance(method, Task):
            for name in method.expression.columns:
                if name not in seen:
                    seen[name] = self.views[name](rows.columns[name])
            arrays = [seen[name] for name in method.expression.columns]
            # Each thread evaluates by itself.
            both = replace(method, _ready=None)(arrays or [pa.nulls(rows.count)])
            value, error = both.field("value"), both.field("error")
        else:
            value = rows.array(method[0])
            error = rows.array(column(None) if method[1] is None else method[1]).cast(pa.string())
        if error.null_count < rows.count:
            error = pc.binary_join_element_wise(f"{computed.label}: ", error, "")
        return value, error


def arrow_map(transform: Transform, source: T.StructType) -> ArrowMap | None:
    """Return a map in the form that needs no Spark; None if only Spark computes some of it."""
    if transform.explode is not None:
        return None
    condition = None if transform.filter is None else transform.filter.computed
    computed = transform.computed if condition is None else (condition, *transform.computed)
    ways = {one: method for one in computed if (method := _method_of(one, source)) is not None}
    tasks = [method for method in ways.values() if isinstance(method, Task)]
    reads = {name for task in tasks for name in task.expression.columns}
    views = {name: view(source[name].dataType) for name in reads}
    texts = (_type_at(source, cell.path) for cell in transform.cells if cell.is_json)
    seen_views = {name: seen for name, seen in views.items() if seen is not None}
    if (
        not ways.keys() >= {*computed}
        or len(seen_views) < len(views)
        or (transform.filter is not None and transform.filter.truth is not None)
        or any(cell.finish is not None and not cell.is_json for cell in transform.cells)
        or not all(is_as_in_json(kind, WHOLE) for kind in texts)
    ):
        return None
    return ArrowMap(transform.cells, transform.computed, condition, ways, seen_views)


def _type_at(struct: T.StructType, path: Sequence[str]) -> T.DataType:
    kind: T.DataType = struct
    for name in path:
        assert isinstance(kind, T.StructType)  # noqa: S101
        kind = kind[name].dataType
    return kind


def _method_of(value: Computed, source: T.StructType) -> Method | None:
    """Return how a value is computed: by kernels of Arrow, else by Python; None if by Spark."""
    pair = value.over_arrow()
    if pair is not None and has_kernels(pair, source):
        return pair
    return _task_of(value)


def has_kernels(pair: ArrowPair, source: T.StructType) -> bool:
    """Return whether Arrow has kernels for all operands, of whatever types they are."""
    columns = {field.name: pa.nulls(0, field.type) for field in struct_to_arrow(source)}
    rows = Rows(columns, 0, everything=True)
    try:
        for column in filter(None, pair):
            rows.array(column)
    except (Unsupported, pa.ArrowException):
        return False
    return True


def _task_of(value: Computed) -> Task | None:
    """Return the work for a value, if its results go into a column as they are."""
    task = None if value.evaluated is None else value.evaluated()
    if task is None or is_json(task.kind) or data_type_of(task.kind) != value.data_type:
        return None
    if task.fake is not None and task.fake.seed is not None:
        return None
    # Columns come as Arrow has them.
    return replace(task, arrivals=[None] * len(task.arrivals))


def _cell(
    cell: Cell, table: pa.Table, values: Mapping[Computed, tuple[pa.Array, pa.Array]]
) -> pa.Array | pa.ChunkedArray:
    if cell.computed is not None:
        return values[cell.computed][0]
    column = table.column(cell.path[0])
    column = pc.struct_field(column, list(cell.path[1:])) if cell.path[1:] else column
    return pa.array(map(_json, column.to_pylist()), pa.string()) if cell.is_json else column


def _json(value: object) -> str | None:
    """Write texts, integers and booleans in lists and objects as JSON, as Spark does."""
    if value is None:
        return None
    text = orjson.dumps(value).decode()
    return _ESCAPE.sub(lambda one: one[0][:2] + one[0][2:].upper(), text) if "\\u" in text else text
