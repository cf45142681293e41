"""The columns that go to Python's evaluator, and those that come back from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import simpleeval
from pyspark import cloudpickle
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type

from shared.formats import spark_types
from shared.formats.record_text import json_column, record_json
from shared.formats.schema_nodes import TEXTS
from shared.formats.spark_conform import arrow_udf, parse_json
from shared.maps.expressions import (
    arrow_results,
    evaluator,
    personal,
    sandbox,
    value_kinds,
)
from shared.maps.expressions.arrow_results import is_json, storage
from shared.maps.expressions.evaluator import Task, evaluated_inside
from shared.maps.expressions.records import PATH, named
from shared.maps.expressions.value_kinds import (
    ANY,
    COMPUTED_DIGITS,
    Kind,
    data_type_of,
    kind_of,
)

SENT = (
    arrow_results,
    evaluator,
    value_kinds,
    personal,
    sandbox,
    simpleeval,
    spark_types,
)
"""Modules that are sent to workers by value, as workers need not have them.

Workers have pyarrow, and use `orjson` if it is installed; `fake` needs `faker` there.
"""

_PLAIN = (T.BooleanType, T.IntegralType, T.DoubleType, *TEXTS)


@dataclass(frozen=True)
class Python:
    """An expression that Python computes: a column of values and errors.

    It is `keyed` if it needs a column that distinguishes records.
    """

    task: Task
    struct: T.StructType
    keyed: bool = False

    @cached_property
    def both(self) -> Column:
        """Return the column of values and errors; one object, so that Spark computes it once."""
        fields = [self.struct[name] for name in self.task.expression.columns]
        inputs = [view(field.dataType)(named(field)) for field in fields]
        return self._called(self.task, [*inputs, *([key(self.struct)] if self.keyed else [])], 0)

    def inside(self, values: Column, depth: int) -> Column:
        """Make arrays of both, for arrays of the values of the record's only column."""
        [field] = self.struct.fields
        views = [view(field.dataType)] if self.task.expression.columns else []
        if self.keyed:
            views.append(lambda value: key_of(value, field.dataType))
        # Without a column, only the length of the lists counts.
        views = views or [lambda value: value.isNull()]
        inputs = [_within(values, depth, each) for each in views]
        return self._called(
            lambda arrays: evaluated_inside(self.task, arrays, depth), inputs, depth
        )

    def _called(
        self, work: Callable[[Sequence[Any]], Any], inputs: Sequence[Column], depth: int
    ) -> Column:
        """Return the column of a function of Arrow arrays, in lists of so many levels."""
        send_by_value()
        result: T.DataType = result_type(self.task.kind)
        for _ in range(depth):
            result = T.ArrayType(result)
        function = arrow_udf(lambda *arrays: work(arrays), result)
        return function(*(inputs or [F.lit(True)]))

    def taken(self, both: Column) -> Column:
        """Return the value of a struct of both."""
        value = both["value"]
        value = parse_json(value) if is_json(self.task.kind) else value
        return value.cast(data_type_of(self.task.kind))


def send_by_value() -> None:
    """Send the modules of `SENT` to workers by value."""
    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    for module in SENT:
        register(module)


def key(struct: T.StructType) -> Column:
    """Return a hash of the whole record, as it is in a RECORD message.

    For a value inside an object, it is a hash of the value.
    """
    inside = [field for field in struct if PATH in field.metadata]
    if inside:
        return key_of(named(inside[0]), inside[0].dataType)
    return F.xxhash64(record_json(struct))


def key_of(value: Column, data_type: T.DataType) -> Column:
    """Return a hash of a value."""
    return F.xxhash64(json_column(value, data_type))


def _within(value: Column, depth: int, change: Callable[[Column], Column]) -> Column:
    """Change the values inside arrays of so many levels."""
    if not depth:
        return change(value)
    return F.transform(value, lambda item: _within(item, depth - 1, change))


def view(data_type: T.DataType) -> Callable[[Column], Column]:
    """Return a function that converts a column to what `arrival` says."""
    if isinstance(data_type, (*TEXTS, T.NullType)):
        return lambda column: column.cast("string")
    if isinstance(data_type, _PLAIN):
        return lambda column: column
    if isinstance(data_type, T.FloatType):
        # Through its text: 0.1 must not become 0.10000000149.
        return lambda column: column.cast("string").cast("double")
    return lambda column: json_column(column, data_type)


def arrival(data_type: T.DataType) -> Kind | None:
    """Return the kind of a column that arrives in Python as JSON text; None for any other."""
    is_plain = isinstance(data_type, (*_PLAIN, T.FloatType, T.NullType))
    return None if is_plain else kind_of(data_type)


def result_kind(kind: Kind, struct: T.StructType, reads: Iterable[str]) -> Kind:
    """Return the kind that results need: `any` for a VARIANT, decimals with all places read."""
    if kind.is_loose:
        return ANY
    columns = (kind_of(struct[name].dataType) for name in reads)
    read = [decimal.digits for column in columns for decimal in column.decimals if decimal.digits]
    precision, least = COMPUTED_DIGITS
    return _with_digits(kind, (precision, max([least, *(scale for _, scale in read)])))


def _with_digits(kind: Kind, digits: tuple[int, int]) -> Kind:
    """Give decimals that Python computes their precision and scale."""
    if kind.name == "decimal":
        return replace(kind, digits=kind.digits or digits)
    item, values = (part and _with_digits(part, digits) for part in (kind.item, kind.values))
    fields = tuple((name, _with_digits(part, digits)) for name, part in kind.fields)
    return replace(kind, item=item, values=values, fields=fields)


def result_type(kind: Kind) -> T.StructType:
    """Return the type that Python's function returns for results of a kind."""
    value = T.StructField("value", from_arrow_type(storage(kind)))
    return T.StructType([value, T.StructField("error", T.StringType())])
