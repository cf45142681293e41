"""Compiles expressions over one frame in one Spark job, and evaluates them by Python beside it."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import simpleeval
from comparing import by_kernels

from shared.errors import Where
from shared.maps.expressions.columns import compiled
from shared.maps.expressions.planned import plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.values import Names, Value

WHERE = Where(setting="stream_maps.orders.total")
ERROR = "an error"


class PythonsOwn(simpleeval.EvalWithCompoundTypes):
    """What the SDK evaluates expressions with, as far as operators go."""

    def _check_disallowed_items(self, item: Any) -> None:
        return


FUNCTIONS = {
    **simpleeval.DEFAULT_FUNCTIONS,
    "bool": bool,
    "len": len,
    "round": round,
    "abs": abs,
    "md5": lambda text: hashlib.md5(text.encode()).hexdigest(),
    "datetime": simpleeval.ModuleWrapper(datetime),
    "json": simpleeval.ModuleWrapper(json),
}


def value_of(text: str, names: Names, *, truth: bool = False) -> Value:
    """Compile an expression, or its truth."""
    return compiled(parse(text, WHERE), names, WHERE, is_truth=truth)[0]


def python(text: str, record: Mapping[str, Any], names: Names | None = None) -> Any:
    """Evaluate an expression as the SDK does; ERROR where it raises."""
    existing = {**record, "_": record, "record": record, "config": names.config if names else {}}
    if names is not None:
        existing |= {"__stream_name__": names.stream, "__original_stream_name__": names.original}
        if names.own in record:
            existing["self"] = record[str(names.own)]
    try:
        return PythonsOwn(functions=dict(FUNCTIONS), names=existing).eval(text)
    except Exception:
        return ERROR


def spark_results(
    spark: Any,
    rows: Sequence[Mapping[str, Any]],
    names: Names,
    expressions: Sequence[str],
    truth: bool = False,
) -> dict[str, list[Any]]:
    """Compute expressions in one job, as they are planned: values, or ERROR.

    Results of the evaluator whose kind depends on the record are skipped, and copies of columns,
    which keep their own type.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    actual = {text: _created(text, names, truth=truth) for text in expressions}
    created = {text: both for text, both in actual.items() if both is not None}
    columns = []
    for place, (value, error) in enumerate(created.values()):
        columns.append(value.alias(f"v{place}"))
        columns.append((F.lit(None).cast("string") if error is None else error).alias(f"e{place}"))
    data = [tuple(row.get(name) for name in names.struct.names) for row in rows]
    # No frame of Spark's has char or varchar columns, though tables do.
    varying = (T.CharType, T.VarcharType)
    texts = [isinstance(field.dataType, varying) for field in names.struct]
    types = [T.StringType() if t else f.dataType for t, f in zip(texts, names.struct, strict=True)]
    fields = [T.StructField(n, t) for n, t in zip(names.struct.names, types, strict=True)]
    frame = spark.createDataFrame(data, T.StructType(fields)).coalesce(1)
    rows_found = frame.select(*columns).collect() if columns else []
    return {
        text: [ERROR if row[f"e{i}"] is not None else plain(row[f"v{i}"]) for row in rows_found]
        for i, text in enumerate(created)
    }


def _created(text: str, names: Names, *, truth: bool) -> tuple[Any, Any] | None:
    """Return the columns of values and errors: Spark's, or those of the evaluator."""
    value = value_of(text, names, truth=truth)
    if value.column is not None:
        return value.column(), value.error() if value.error else None
    if value.kind.name == "any" or value.mixed or value.source:
        return None
    actual = plan(parse(text, WHERE), names, WHERE, truth=truth)
    return actual.value(), actual.error()


def plain(value: Any) -> Any:
    """Convert Spark's values to JSON's."""
    if type(value).__name__ == "VariantVal":
        return json.loads(value.toJson())
    if hasattr(value, "asDict"):
        return {key: plain(part) for key, part in value.asDict().items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return value


def alike(one: Any, other: Any) -> bool:
    """Return whether two results are the same JSON value: 1 and 1.0 are, True and 1 are not."""
    if isinstance(one, (int, float, Decimal)) and isinstance(other, (int, float, Decimal)):
        if isinstance(one, bool) or isinstance(other, bool):
            return one is other
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        signs = isinstance(one, float) and isinstance(other, float) and one == 0
        return one == other and (not signs or math.copysign(1, one) == math.copysign(1, other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def differences(
    spark: Any,
    rows: Sequence[Mapping[str, Any]],
    names: Names,
    expressions: Sequence[str],
    records: Sequence[Mapping[str, Any]] | None = None,
) -> list[str]:
    """Return where compiled results differ from Python's; integers beyond 64 bits are errors.

    Args:
        spark: The session.
        rows: What the columns hold.
        names: What expressions can name.
        expressions: All to compare; see `spark_results`.
        records: The rows as JSON has them, where that differs.
    """
    wrong = []
    for text, actual in spark_results(spark, rows, names, expressions).items():
        for record, got in zip(records or rows, actual, strict=True):
            due = python(text, record, names)
            if not alike(got, due) and not (got == ERROR and _too_large(text, record, names)):
                wrong.append(f"{text} of {record}: {got!r}, Python: {due!r}")
    return [*wrong, *differences_over_arrow(rows, names, expressions, records)]


def differences_over_arrow(
    rows: Sequence[Mapping[str, Any]],
    names: Names,
    expressions: Sequence[str],
    records: Sequence[Mapping[str, Any]] | None = None,
) -> list[str]:
    """Return such lines of the expressions that are computed without Spark."""
    wrong = []
    for text, pairs in by_kernels(names, expressions, rows).items():
        for record, (value, error) in zip(records or rows, pairs, strict=True):
            got, due = (value if error is None else ERROR), python(text, record, names)
            if not alike(got, due) and not (got == ERROR and _too_large(text, record, names)):
                wrong.append(f"{text} of {record}: {got!r} over Arrow, Python: {due!r}")
    return wrong


def _too_large(text: str, record: Mapping[str, Any], names: Names) -> bool:
    """Return whether Python's integers, at any point of it, have more than 64 bits."""
    seen: list[int] = []

    class Watching(PythonsOwn):
        def _eval(self, node: Any) -> Any:
            result = super()._eval(node)
            if isinstance(result, int):
                seen.append(result)
            return result

    existing = {**record, "_": record, "record": record, "config": names.config}
    try:
        Watching(functions=dict(FUNCTIONS), names=existing).eval(text)
    except Exception:
        return False
    return any(not -(2**63) <= number < 2**63 for number in seen)
