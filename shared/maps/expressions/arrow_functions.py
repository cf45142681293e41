"""Functions of Spark that rules of expressions use, by Spark's names, over Arrow columns.

Rules call them with operands that they have checked. Functions that are not here are Spark's alone.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable
from functools import cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.maps.expressions.arrow_columns import (
    ArrowColumn,
    Case,
    Data,
    Rows,
    called,
    column,
    kernel,
    unchanged,
    view,
)
from shared.maps.expressions.arrow_results import results, taken
from shared.maps.expressions.evaluator import short_error
from shared.maps.expressions.value_kinds import Kind
from shared.maps.expressions.values import Unsupported

lit = column


@cache
def source(path: tuple[str, ...]) -> ArrowColumn:
    """Return a column of the records, or a field inside one."""
    first = ArrowColumn(lambda rows: rows.columns[path[0]])
    return reduce(ArrowColumn.getField, path[1:], first)


def viewed(raw: ArrowColumn, data_type: T.DataType) -> ArrowColumn:
    """Return a column of a type as it is in a RECORD message.

    Raises:
        Unsupported: Only Spark knows how.
    """
    seen = view(data_type)
    if seen is None:
        raise Unsupported(f"values of type {data_type.simpleString()}")
    if data_type not in raw.views:
        raw.views[data_type] = raw if seen is unchanged else called(seen, raw)
    return raw.views[data_type]


def when(condition: ArrowColumn, value: Any) -> Case:
    return Case([(condition, column(value))], column(None))


def coalesce(*columns: ArrowColumn) -> ArrowColumn:
    return called(_first, *columns) if len(columns) > 1 else columns[0]


def _first(*values: Data) -> Data:
    """Return the first value that is not null; what is null in all rows counts for nothing."""
    some = [one for one in values if not isinstance(one, pa.Scalar) or one.is_valid]
    return pc.coalesce(*some) if len(some) > 1 else some[0] if some else values[0]


def array(*columns: ArrowColumn) -> ArrowColumn:
    return called(lambda *scalars: pa.scalar([_scalar(one) for one in scalars]), *columns)


def concat(*columns: ArrowColumn) -> ArrowColumn:
    return called(lambda *texts: pc.binary_join_element_wise(*texts, ""), *columns)


def nullif(one: ArrowColumn, other: ArrowColumn) -> ArrowColumn:
    return when(one != other, one)


def _with_scalars(compute: Callable[..., Data]) -> Callable[..., ArrowColumn]:
    """Return the same for operands of which all but the first are alike in all rows."""
    return kernel(lambda data, *scalars: compute(data, *map(_scalar, scalars)))


def _within_64_bits(operation: Callable[[Data, Data], Data]) -> Callable[..., ArrowColumn]:
    """Return the function of an operation whose result is null if it has more bits."""

    def compute(*operands: Data) -> Data:
        try:
            return operation(*operands)
        except pa.ArrowInvalid:
            arrays = [one for one in operands if isinstance(one, pa.Array)]
        if not arrays or len(arrays[0]) == 1:
            return pa.scalar(None, pa.int64()) if not arrays else pa.nulls(1, pa.int64())
        half = len(arrays[0]) // 2
        halves = [[_cut(one, part) for one in operands] for part in ((0, half), (half, None))]
        return pa.concat_arrays([compute(*each_half) for each_half in halves])

    return kernel(compute)


def _cut(data: Data, part: tuple[int, int | None]) -> Data:
    return data.slice(*part) if isinstance(data, pa.Array) else data


def _cased(turn: Callable[[str], str], in_ascii: Callable[[Data], Data]) -> Callable[[Data], Data]:
    def compute(data: Data) -> Data:
        if pc.all(pc.string_is_ascii(data)).as_py() is not False:
            return in_ascii(data)
        return _by_element(turn, data)

    return compute


def _by_element(turn: Callable[[Any], str], data: Data) -> Data:
    """Turn what is not null to text by a function of Python."""

    def turned(value: Any) -> str | None:
        return None if value is None else turn(value)

    if isinstance(data, pa.Scalar):
        return pa.scalar(turned(data.as_py()), pa.string())
    return pa.array(map(turned, data.to_pylist()), pa.string())


size = kernel(pc.list_value_length)
isnan = kernel(pc.is_nan)
rint = kernel(lambda data: pc.round(data, round_mode="half_to_even"))
negate = operator.neg
try_add = _within_64_bits(pc.add_checked)
try_subtract = _within_64_bits(pc.subtract_checked)
try_multiply = _within_64_bits(pc.multiply_checked)
year, month, day = kernel(pc.year), kernel(pc.month), kernel(pc.day)
lower = kernel(_cased(str.lower, pc.ascii_lower))
upper = kernel(_cased(str.upper, pc.ascii_upper))
char_length = length = kernel(pc.utf8_length)
startswith, endswith = _with_scalars(pc.starts_with), _with_scalars(pc.ends_with)
contains, replace = _with_scalars(pc.match_substring), _with_scalars(pc.replace_substring)
btrim, ltrim = _with_scalars(pc.utf8_trim), _with_scalars(pc.utf8_ltrim)
rtrim = _with_scalars(pc.utf8_rtrim)
right = _with_scalars(lambda data, count: pc.utf8_slice_codeunits(data, -count))


def get(lists: ArrowColumn, place: ArrowColumn) -> ArrowColumn:
    return ArrowColumn(lambda rows: _element(rows.array(lists), rows.data(place)))


def _element(lists: pa.ListArray, place: Data) -> Data:
    inside = pc.and_(pc.greater_equal(place, 0), pc.less(place, pc.list_value_length(lists)))
    places = pc.add(lists.offsets.slice(0, len(lists)), place)
    return lists.values.take(pc.if_else(inside, places, None))


def pmod(number: ArrowColumn, by: ArrowColumn) -> ArrowColumn:
    rest = number % by
    return when(rest < 0, rest + by).otherwise(rest)


def try_divide(one: ArrowColumn, other: ArrowColumn) -> ArrowColumn:
    return called(pc.divide, one, nullif(other, lit(0.0)))


def call_function(name: str, one: ArrowColumn, other: ArrowColumn) -> ArrowColumn:
    if name != "div":
        raise Unsupported(name)
    return called(pc.divide, one, other)


def date_add(date: ArrowColumn, days: ArrowColumn) -> ArrowColumn:
    return (date.cast("int") + days.cast("int")).cast("date")


def date_from_unix_date(days: ArrowColumn) -> ArrowColumn:
    return days.cast("date")


def unix_micros(time: ArrowColumn) -> ArrowColumn:
    return time.cast("bigint")


def repeat(text: ArrowColumn, times: ArrowColumn) -> ArrowColumn:
    # Rows of another branch may have any number here.
    none_below = called(lambda count: pc.max_element_wise(count, 0, skip_nulls=False), times)
    return called(pc.binary_repeat, text, none_below)


def substring(text: ArrowColumn, first: int, count: int) -> ArrowColumn:
    return between(text, first - 1, first - 1 + count)


def between(text: ArrowColumn, low: int, high: int | None) -> ArrowColumn:
    """Return `text[low:high]`, as Python has it."""
    return called(lambda data: pc.utf8_slice_codeunits(data, low, high), text)


def split(text: ArrowColumn, pattern: str, pieces: int) -> ArrowColumn:
    most = None if pieces < 0 else pieces - 1
    if pattern.startswith("["):
        return called(lambda data: pc.split_pattern_regex(data, pattern, max_splits=most), text)
    literal = re.sub(r"\\(.)", r"\1", pattern)
    return called(lambda data: pc.split_pattern(data, literal, max_splits=most), text)


def md5(data: ArrowColumn) -> ArrowColumn:
    return _hashed(data, "md5")


def sha2(data: ArrowColumn, bits: int) -> ArrowColumn:
    return _hashed(data, f"sha{bits}")


def _hashed(data: ArrowColumn, algorithm: str) -> ArrowColumn:
    new = getattr(hashlib, algorithm)
    return called(lambda values: _by_element(lambda value: new(value).hexdigest(), values), data)


def _scalar(scalar: Data) -> Any:
    """Return a value that is the same for all rows."""
    if not isinstance(scalar, pa.Scalar):
        raise Unsupported("an operand that is not the same in all rows")
    return scalar.as_py()


def each(
    function: Callable[..., Any], kind: Kind, *operands: ArrowColumn
) -> tuple[ArrowColumn, ArrowColumn]:
    """Return the columns of what a Python function returns for each row, and of what it raises.

    The kind of its results is not one of lists and dicts.
    """
    take = taken(kind)

    def compute(rows: Rows) -> Data:
        values: list[Any] = []
        errors: list[str | None] = []
        for row in zip(*(rows.array(one).to_pylist() for one in operands), strict=True):
            value = error = None
            try:
                value = take(function(*row))
            except Exception as raised:
                error = short_error(raised)
            values.append(value)
            errors.append(error)
        return results(kind, values, errors)

    both = ArrowColumn(compute)
    return called(lambda data: data.field("value"), both), called(_error_of, both)


def _error_of(both: pa.StructArray) -> Data:
    errors = both.field("error")
    return errors if errors.null_count < len(errors) else pa.scalar(None, pa.string())
