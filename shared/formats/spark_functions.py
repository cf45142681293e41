"""Spark's functions that an older supported release lacks, or what gives the same in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.spark_types import T
from shared.spark.spark_release import too_old

_functions: Any = F


def arrow_udf(work: Callable[..., Any], result: T.DataType) -> Callable[..., Column]:
    """Return a function of columns that Python computes in Arrow arrays.

    Args:
        work: Takes one `pyarrow.Array` per column, and returns one.
        result: Type of the result.

    Raises:
        SettingsError: Spark is older than 4.1.
    """
    if not hasattr(F, "arrow_udf"):
        raise too_old("the expression needs Python in Spark", "4.1")
    function: Callable[..., Column] = _functions.arrow_udf(work, result)
    return function


def parse_json(text: Column) -> Column:
    """Return JSON text as a variant.

    Raises:
        SettingsError: Spark is older than 4.0.
    """
    if not hasattr(F, "parse_json"):
        raise too_old("a column of JSON values needs Spark's type VARIANT", "4.0")
    parsed: Column = _functions.parse_json(text)
    return parsed


def is_variant_null(value: Column) -> Column:
    """Return whether a variant is the JSON null."""
    is_null: Column = _functions.is_variant_null(value)
    return is_null


def is_json_object(text: Column) -> Column:
    """Return whether text is a JSON object."""
    if hasattr(F, "try_variant_get"):
        parsed = _functions.try_parse_json(text)
        is_object: Column = _functions.try_variant_get(
            parsed, "$", "map<string,variant>"
        ).isNotNull()
        return is_object
    return F.from_json(text, "map<string,string>").isNotNull()


def json_scalar(text: Column, dtype: T.DataType) -> Column:
    """Return a JSON value that is no object; null if it is not of the type."""
    if hasattr(F, "try_variant_get"):
        parsed = _functions.try_parse_json(text)
        scalar: Column = _functions.try_variant_get(parsed, "$", dtype.simpleString())
        return scalar
    row = F.concat(F.lit('{"v":'), text, F.lit("}"))
    return F.from_json(row, T.StructType([T.StructField("v", dtype)]))["v"]


def json_types(texts: DataFrame) -> list[str]:
    """Return the types, in DDL, that hold the JSON texts in each column of a small frame.

    Text that is no JSON is ignored; without any, the type is VOID.
    """
    if hasattr(F, "schema_of_variant_agg"):
        parsed = (_functions.try_parse_json(F.col(name)) for name in texts.columns)
        merged = texts.agg(*map(_functions.schema_of_variant_agg, parsed)).first()
        return ["VOID"] * len(texts.columns) if merged is None else list(merged)
    rows = texts.collect()
    columns = [[row[name] for row in rows if _is_json(row[name])] for name in texts.columns]
    arrays = [F.schema_of_json(F.lit(f"[{','.join(column)}]")) for column in columns]
    merged = texts.sparkSession.range(1).select(*arrays).first()
    types = ["ARRAY<VOID>"] * len(columns) if merged is None else list(merged)
    elements = (kind.removeprefix("ARRAY<").removesuffix(">") for kind in types)
    return [kind if any(column) else "VOID" for kind, column in zip(elements, columns, strict=True)]


def is_valid_utf8(text: Column) -> Column:
    """Return whether the bytes of text are UTF-8."""
    if hasattr(F, "is_valid_utf8"):
        is_valid: Column = _functions.is_valid_utf8(text)
        return is_valid
    binary = text.cast("binary")
    return binary == F.encode(F.decode(binary, "UTF-8"), "UTF-8")


def micros_after(start: Column, micros: Column) -> Column:
    """Return a timestamp some microseconds after another."""
    if hasattr(F, "timestamp_add"):
        moment: Column = _functions.timestamp_add("MICROSECOND", micros, start)
        return moment
    zero = F.lit(0)
    seconds = (micros.cast("decimal(20,0)") / F.lit(1_000_000)).cast("decimal(18,6)")
    return start + F.make_dt_interval(zero, zero, zero, seconds)


def _is_json(text: str | None) -> bool:
    try:
        json.loads(text or "")
    except ValueError:
        return False
    return True
