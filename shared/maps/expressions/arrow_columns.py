"""Columns over Arrow batches, with the functions of Spark that rules of expressions use.

A column is computed for a batch if something needs it, and once. As Spark's, none raises for any
values: what cannot be computed is null, and a rule's checks tell why. The branches of a condition
are only computed for batches in which a row takes them. Expressions see columns as they are in a
RECORD message.

Why beside Spark's columns: tasks that read by Arrow map without a DataFrame
(`benchmarks.maps_ways`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import spark_to_arrow
from shared.maps.expressions.values import Unsupported

Data: TypeAlias = pa.Array | pa.Scalar
"""The values of a column in a batch; a scalar if all rows have the same one."""

_NAMED = {
    **{"bigint": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string()},
    **{"binary": pa.binary(), "date": pa.date32(), "array<string>": pa.list_(pa.string())},
}
_LEAST, _MOST = -(2.0**63), 2.0**63


class Rows:
    """A batch, and what is computed of it.

    With `everything`, branches that no row takes are computed as well, to see that it can be done.
    """

    def __init__(
        self, columns: Mapping[str, pa.Array], count: int, *, everything: bool = False
    ) -> None:
        self.columns = columns
        self.count = count
        self.everything = everything
        self._data: dict[int, Data] = {}

    def data(self, column: ArrowColumn) -> Data:
        """Return the values of a column."""
        key = id(column)
        if key not in self._data:
            self._data[key] = column.compute(self)
        return self._data[key]

    def array(self, column: ArrowColumn) -> pa.Array:
        """Return the values of a column, one for each row."""
        data = self.data(column)
        if not isinstance(data, pa.Scalar):
            return data
        # Arrow cannot repeat a list zero times.
        return pa.repeat(data, self.count) if self.count else pa.array([], data.type)

    def mask(self, column: ArrowColumn) -> bool | pa.Array:
        """Return where a condition holds, null counting as false; a bool if for all rows or none.

        With `everything`, it is never decided.
        """
        data = self.data(column)
        if isinstance(data, pa.Scalar) and not self.everything:
            return data.as_py() is True
        data = pc.fill_null(self.array(column), False)
        if self.everything:
            return data
        return bool(data.true_count) if data.true_count in {0, self.count} else data


def kernel(compute: Callable[..., Data]) -> Callable[..., ArrowColumn]:
    """Return the function of columns that computes this of their values."""
    return lambda *operands: called(compute, *operands)


def _modulo(data: Data, by: Data) -> Data:
    """Return the remainder of integers, with the sign of the dividend."""
    # The least integer has no quotient by -1.
    by = pc.if_else(pc.equal(by, -1), 1, by)
    return pc.subtract(data, pc.multiply(pc.divide(data, by), by))


def _is_null(data: Data) -> Data:
    if isinstance(data, pa.Array) and not data.null_count:
        return pa.scalar(False)
    return pc.is_null(data)


class ArrowColumn:
    """A column, computed in each batch; operators and methods are those of Spark's `Column`.

    `views` are the same as expressions see it, by its type.
    """

    def __init__(self, compute: Callable[[Rows], Data]) -> None:
        self.compute = compute
        self.views: dict[T.DataType, ArrowColumn] = {}

    __hash__ = object.__hash__
    __eq__, __ne__ = kernel(pc.equal), kernel(pc.not_equal)  # type: ignore[assignment]
    __lt__, __le__ = kernel(pc.less), kernel(pc.less_equal)
    __gt__, __ge__ = kernel(pc.greater), kernel(pc.greater_equal)
    __add__, __sub__ = kernel(pc.add), kernel(pc.subtract)
    __mul__, __mod__ = kernel(pc.multiply), kernel(_modulo)
    __and__, __or__ = kernel(pc.and_kleene), kernel(pc.or_kleene)
    __neg__, __invert__ = kernel(pc.negate), kernel(pc.invert)
    isNull = kernel(_is_null)  # noqa: N815

    def isNotNull(self) -> ArrowColumn:  # noqa: N802
        return ~self.isNull()

    def isin(self, values: Sequence[Any]) -> ArrowColumn:
        return called(lambda data: pc.is_in(data, pa.array(values)), self)

    def between(self, low: Any, high: Any) -> ArrowColumn:
        return called(pc.and_kleene, self >= low, self <= high)

    def getField(self, name: str) -> ArrowColumn:  # noqa: N802
        return called(lambda data: pc.struct_field(data, name), self)

    def cast(self, kind: str | T.DataType) -> ArrowColumn:
        return called(lambda data: _cast(data, _type(kind)), self)

    def try_cast(self, kind: str) -> ArrowColumn:
        return called(lambda data: _try_cast(data, _type(kind)), self)


ArrowPair: TypeAlias = tuple[ArrowColumn, ArrowColumn | None]
"""Values and errors."""


class Case(ArrowColumn):
    """The value of the first branch whose condition holds.

    A trial of all branches tells its type. Without one, a batch in which no row takes any other
    branch than None has values of no type, which most kernels refuse.
    """

    def __init__(
        self, branches: Sequence[tuple[ArrowColumn, ArrowColumn]], other: ArrowColumn
    ) -> None:
        super().__init__(self._typed)
        self._branches = branches
        self._other = other
        self._type: pa.DataType | None = None

    def when(self, condition: ArrowColumn, value: Any) -> Case:
        return Case([*self._branches, (condition, column(value))], self._other)

    def otherwise(self, value: Any) -> Case:
        return Case(self._branches, column(value))

    def _typed(self, rows: Rows) -> Data:
        chosen = self._chosen(rows)
        if rows.everything:
            self._type = chosen.type
        return chosen if self._type is None else _cast(chosen, self._type)

    def _chosen(self, rows: Rows) -> Data:
        taken_: list[tuple[pa.Array, ArrowColumn]] = []
        last = self._other
        for condition, value in self._branches:
            mask = rows.mask(condition)
            if mask is True:
                last = value
                break
            if mask is not False:
                taken_.append((mask, value))
        chosen = rows.data(last)
        for mask, value in reversed(taken_):
            chosen = pc.if_else(mask, rows.data(value), chosen)
        return chosen


def column(value: Any) -> ArrowColumn:
    """Return a column, or that of a plain value."""
    if isinstance(value, ArrowColumn):
        return value
    scalar = pa.scalar(value)
    return ArrowColumn(lambda _: scalar)


def called(function: Callable[..., Data], *operands: Any) -> ArrowColumn:
    """Return the column that a function makes of the values of others."""
    columns = [column(operand) for operand in operands]
    return ArrowColumn(lambda rows: function(*(rows.data(column) for column in columns)))


@cache
def _type(kind: str | T.DataType) -> pa.DataType:
    if isinstance(kind, T.DataType):
        return spark_to_arrow(kind)
    if kind.startswith("decimal("):
        return pa.decimal128(*map(int, kind[len("decimal(") : -1].split(",")))
    return _NAMED[kind]


def _cast(data: Data, kind: pa.DataType) -> Data:
    if data.type == kind:
        return data
    if pa.types.is_boolean(data.type) and pa.types.is_floating(kind):
        data = data.cast(pa.int64())
    return data.cast(options=pc.CastOptions.unsafe(kind))


def _try_cast(data: Data, kind: pa.DataType) -> Data:
    """Cast a double; null if it is outside the type."""
    if pa.types.is_integer(data.type) or pa.types.is_boolean(data.type):
        return _cast(data, kind)
    if not pa.types.is_floating(data.type) or kind != pa.int64():
        raise Unsupported(f"{data.type} as {kind}")
    inside = pc.and_(pc.greater_equal(data, _LEAST), pc.less(data, _MOST))
    return _cast(pc.if_else(inside, data, None), kind)


View: TypeAlias = Callable[[pa.Array], pa.Array]

WHOLE = (T.BooleanType, T.IntegralType, T.StringType)
_PLAIN_SCALE = 6
"""Decimal places up to which a decimal has the same digits in JSON."""
_YEAR_10000 = {"date": 2_932_897, "timestamp": 2_932_897 * 86_400_000_000}


def view(kind: T.DataType) -> View | None:
    """Return how a column becomes what it is in a RECORD message; None if only Spark knows."""
    if isinstance(kind, T.DateType):
        return lambda column: _time_text(column, "%Y-%m-%d", _YEAR_10000["date"], pa.int32(), "")
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        zone = "+00:00" if isinstance(kind, T.TimestampType) else ""
        late = _YEAR_10000["timestamp"]
        return lambda column: _time_text(column, "%Y-%m-%dT%H:%M:%S", late, pa.int64(), zone)
    is_decimal = isinstance(kind, T.DecimalType) and kind.scale <= _PLAIN_SCALE
    if is_decimal or is_as_in_json(kind, (*WHOLE, T.DoubleType)):
        return unchanged
    return None


def unchanged(column: pa.Array) -> pa.Array:
    """Return a column that expressions see as it is."""
    return column


def _time_text(column: pa.Array, form: str, late: int, number: pa.DataType, zone: str) -> pa.Array:
    text = pc.strftime(column, form)
    sign = pc.if_else(pc.greater_equal(column.cast(number), late), "+", "")
    return pc.binary_join_element_wise(sign, text, zone, "")


def is_as_in_json(kind: T.DataType, plain: tuple[type[T.DataType], ...]) -> bool:
    """Return whether Arrow's values are those of JSON: some types, alone, in lists or objects."""
    if isinstance(kind, T.StructType):
        return all(is_as_in_json(field.dataType, plain) for field in kind)
    if isinstance(kind, T.ArrayType):
        return is_as_in_json(kind.elementType, plain)
    return isinstance(kind, plain) and not isinstance(kind, T.CharType | T.VarcharType)
