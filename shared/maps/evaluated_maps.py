"""Maps of Arrow tables without Spark: Python evaluates the expressions, record by record.

For few rows: it has mapped them before Spark has started. Results are those of Spark's columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.maps.expressions.arrow_records import Arrival
from shared.maps.expressions.arrow_results import is_json
from shared.maps.expressions.evaluator import Task
from shared.maps.expressions.kinds import data_type_of
from shared.maps.transform import ERROR, Cell, Made, Transform

_PLAIN_SCALE = 6
"""Decimal places up to which a decimal has the same digits in JSON."""
_WHOLE = (T.BooleanType, T.IntegralType, T.StringType)
_YEAR_10000 = {"date": 2_932_897, "timestamp": 2_932_897 * 86_400_000_000}
_CONTROL = re.compile(r"\\u[0-9a-f]{4}|\\.")

_View = Callable[[pa.ChunkedArray], pa.ChunkedArray]


@dataclass(frozen=True)
class EvaluatedMap:
    """A map of Arrow tables.

    Attributes:
        cells: The columns of the result.
        made: The computed values, in the order in which their errors are reported.
        filter: Decides which rows are kept; None for all.
        tasks: The work of Python for each of these.
        views: How expressions see source columns: as in a RECORD message.
    """

    cells: tuple[Cell, ...]
    made: tuple[Made, ...]
    filter: Made | None
    tasks: Mapping[Made, Task]
    views: Mapping[str, _View]

    def apply(self, table: pa.Table, keep: Sequence[str] = ()) -> pa.Table:
        """Map the rows of a table.

        Args:
            table: The source columns, with the Arrow types of their Spark types.
            keep: Columns to append unchanged.

        Returns:
            The columns of the map, `ERROR` as `Transform.apply` has it, and those of `keep`. Rows
            that the filter does not keep are dropped; rows with an error stay.
        """
        errors = pa.nulls(table.num_rows, pa.string())
        if self.filter is not None:
            [(good, errors)] = self._values([self.filter], table)
            kept = pc.or_(pc.is_valid(errors), pc.fill_null(good, False))
            table, errors = table.filter(kept), errors.filter(kept)
        values = dict(zip(self.made, self._values(self.made, table), strict=True))
        errors = pc.coalesce(errors, *(error for _, error in values.values()))
        cells = {cell.name: _cell(cell, table, values) for cell in self.cells}
        return pa.table({**cells, ERROR: errors, **{name: table.column(name) for name in keep}})

    def _values(self, made: Iterable[Made], table: pa.Table) -> list[tuple[pa.Array, pa.Array]]:
        """Evaluate expressions; return the values of each, and its errors."""
        seen: dict[str, pa.Array] = {}
        found = []
        for one in made:
            # Each thread evaluates by itself.
            task = replace(self.tasks[one], _ready=None)
            for name in task.expression.columns:
                if name not in seen:
                    seen[name] = _joined(self.views[name](table.column(name)))
            arrays = [seen[name] for name in task.expression.columns]
            both = task(arrays or [pa.nulls(table.num_rows)])
            error = pc.binary_join_element_wise(f"{one.label}: ", both.field("error"), "")
            found.append((both.field("value"), error))
        return found


def evaluated_map(transform: Transform, source: T.StructType) -> EvaluatedMap | None:
    """Return a map in the form that needs no Spark; None if only Spark computes some of it.

    Args:
        transform: The map.
        source: The source columns.
    """
    if transform.explode is not None:
        return None
    made = transform.made if transform.filter is None else (transform.filter.made, *transform.made)
    tasks = {one: task for one in made if (task := _task_of(one)) is not None}
    reads = {name for task in tasks.values() for name in task.expression.columns}
    views = {name: _view(source[name].dataType) for name in reads}
    texts = (_type_at(source, cell.path) for cell in transform.cells if cell.is_json)
    known = {name: view for name, view in views.items() if view is not None}
    if (
        not tasks.keys() >= {*made}
        or len(known) < len(views)
        or (transform.filter is not None and transform.filter.truth is not None)
        or any(cell.finish is not None and not cell.is_json for cell in transform.cells)
        or not all(_is_as_in_json(kind, _WHOLE) for kind in texts)
    ):
        return None
    condition = None if transform.filter is None else transform.filter.made
    return EvaluatedMap(transform.cells, transform.made, condition, tasks, known)


def _type_at(struct: T.StructType, path: Sequence[str]) -> T.DataType:
    """Return the type of a column, or of a field inside it."""
    found: T.DataType = struct
    for name in path:
        assert isinstance(found, T.StructType)  # noqa: S101
        found = found[name].dataType
    return found


def _task_of(made: Made) -> Task | None:
    """Return the work for a value, if its results go into a column as they are."""
    task = None if made.evaluated is None else made.evaluated()
    if task is None or is_json(task.kind) or data_type_of(task.kind) != made.data_type:
        return None
    if task.fake is not None and task.fake.seed is not None:
        return None
    # Columns come as Arrow has them.
    return replace(task, arrivals=[Arrival()] * len(task.arrivals))


def _cell(
    cell: Cell, table: pa.Table, values: Mapping[Made, tuple[pa.Array, pa.Array]]
) -> pa.Array | pa.ChunkedArray:
    if cell.made is not None:
        return values[cell.made][0]
    column = table.column(cell.path[0])
    column = pc.struct_field(column, list(cell.path[1:])) if cell.path[1:] else column
    return pa.array(map(_json, column.to_pylist()), pa.string()) if cell.is_json else column


def _json(value: object) -> str | None:
    """Write texts, integers and booleans in lists and objects as JSON, as Spark does."""
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _CONTROL.sub(lambda found: _capital(found[0]), text) if "\\u" in text else text


def _capital(escape: str) -> str:
    return escape[:2] + escape[2:].upper()


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _view(kind: T.DataType) -> _View | None:
    """Return how a column becomes what it is in a RECORD message; None if only Spark knows."""
    if isinstance(kind, T.DateType):
        return lambda column: _time_text(column, "%Y-%m-%d", _YEAR_10000["date"], pa.int32(), "")
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        zone = "+00:00" if isinstance(kind, T.TimestampType) else ""
        late = _YEAR_10000["timestamp"]
        return lambda column: _time_text(column, "%Y-%m-%dT%H:%M:%S", late, pa.int64(), zone)
    is_decimal = isinstance(kind, T.DecimalType) and kind.scale <= _PLAIN_SCALE
    if is_decimal or _is_as_in_json(kind, (*_WHOLE, T.DoubleType)):
        return lambda column: column
    return None


def _time_text(
    column: pa.ChunkedArray, form: str, late: int, number: pa.DataType, zone: str
) -> pa.ChunkedArray:
    text = pc.strftime(column, form)
    sign = pc.if_else(pc.greater_equal(column.cast(number), late), "+", "")
    return pc.binary_join_element_wise(sign, text, zone, "")


def _is_as_in_json(kind: T.DataType, plain: tuple[type[T.DataType], ...]) -> bool:
    """Return whether Arrow's values are those of JSON: some types, alone, in lists or objects."""
    if isinstance(kind, T.StructType):
        return all(_is_as_in_json(field.dataType, plain) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _is_as_in_json(kind.elementType, plain)
    return isinstance(kind, plain) and not isinstance(kind, T.CharType | T.VarcharType)
