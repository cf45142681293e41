"""What the tests of table plans share: short ways to write structs, requests and capabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from target_spark.core.load_plans import Layout, TableName, TableRequest
from target_spark.tables.evolution import plan_change
from target_spark.tables.table_changes import Capabilities, NameRules, TableChange

ALL = Capabilities(widen=lambda old, new: True)
NONE = Capabilities(nested=False)
PLAIN = NameRules()


WORDS = re.compile(r"`[^`]*`|\w+(?:\([\d,]+\))?|[<>,:]")
SCALARS: dict[str, T.DataType] = {
    "TINYINT": T.ByteType(),
    "SMALLINT": T.ShortType(),
    "INT": T.IntegerType(),
    "BIGINT": T.LongType(),
    "FLOAT": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "STRING": T.StringType(),
    "BINARY": T.BinaryType(),
    "BOOLEAN": T.BooleanType(),
    "DATE": T.DateType(),
    "TIMESTAMP": T.TimestampType(),
    "TIMESTAMP_NTZ": T.TimestampNTZType(),
    "VARIANT": T.VariantType(),
    "VOID": T.NullType(),
    "TIME(3)": T.TimeType(3),
    "TIME(6)": T.TimeType(6),
    "INTERVAL DAY": T.DayTimeIntervalType(0, 0),
    "INTERVAL HOUR TO SECOND": T.DayTimeIntervalType(1, 3),
    "INTERVAL DAY TO SECOND": T.DayTimeIntervalType(0, 3),
    "INTERVAL YEAR": T.YearMonthIntervalType(0, 0),
    "INTERVAL MONTH": T.YearMonthIntervalType(1, 1),
    "INTERVAL YEAR TO MONTH": T.YearMonthIntervalType(0, 1),
}


def struct(text: str) -> T.StructType:
    """Return columns from Spark's DDL, read without Spark; NOT NULL is honoured."""
    return _fields(WORDS.findall(text))


def _fields(words: list[str]) -> T.StructType:
    fields = []
    while words and words[0] != ">":
        name = words.pop(0).strip("`")
        if words[0] == ":":
            words.pop(0)
        dtype = _type(words)
        nullable = words[:2] != ["NOT", "NULL"]
        del words[: 0 if nullable else 2]
        if words[:1] == [","]:
            words.pop(0)
        fields.append(T.StructField(name, dtype, nullable))
    return T.StructType(fields)


def _type(words: list[str]) -> T.DataType:
    word = words.pop(0)
    if word in {"STRUCT", "ARRAY", "MAP"}:
        words.pop(0)
        if word == "STRUCT":
            created: T.DataType = _fields(words)
        elif word == "ARRAY":
            created = T.ArrayType(_type(words))
        else:
            key = _type(words)
            words.pop(0)
            created = T.MapType(key, _type(words))
        words.pop(0)
        return created
    if word == "INTERVAL":
        length = 3 if words[1:2] == ["TO"] else 1
        word = " ".join([word, *words[:length]])
        del words[:length]
    if word.startswith("DECIMAL("):
        return T.DecimalType(*map(int, word[8:-1].split(",")))
    if word.startswith("VARCHAR("):
        return T.VarcharType(int(word[8:-1]))
    return SCALARS[word]


def request(columns: str | T.StructType, *keys: str, **changes: Any) -> TableRequest:
    columns = struct(columns) if isinstance(columns, str) else columns
    by = changes.pop("partition_by", ())
    return TableRequest(
        "orders",
        columns,
        TableName("orders"),
        keys=keys,
        layout=Layout(partition_by=tuple(by)),
        **changes,
    )


def plan(
    table: str | T.StructType | None,
    asked: str | TableRequest,
    conflicts: str = "fail",
    *,
    can: Capabilities = ALL,
    rules: NameRules = PLAIN,
    renamed: Mapping[str, str] | None = None,
) -> TableChange:
    table = struct(table) if isinstance(table, str) else table
    asked = request(asked) if isinstance(asked, str) else asked
    return plan_change(table, asked, rules, conflicts, can, renamed or {})


def applied(table: T.StructType | None, change: TableChange) -> T.StructType:
    """Return the table's columns once a destination has done what the change says."""
    if table is None:
        return T.StructType(
            [T.StructField(c.name, c.dtype, c.nullable) for c in change.create or ()]
        )
    types = {item.target: item.dtype for item in change.projection}
    fields = [
        T.StructField(
            f.name,
            types.get(f.name, f.dataType),
            f.nullable or f.name in change.nullable,
            f.metadata,
        )
        for f in table.fields
    ]
    added = [T.StructField(c.name, c.dtype, c.nullable) for c in change.add]
    return T.StructType([*fields, *added])


def sources(change: TableChange) -> dict[str, str | None]:
    return {item.target: item.source for item in change.projection}
