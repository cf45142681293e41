"""Columns of Spark in every supported release: functions, and rows brought to wanted columns.

What an older release lacks is made of what it has. Names and types are converted at any depth,
exactly or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.arrow_types import as_nullable
from shared.formats.json_schema import holds_all
from shared.formats.spark_types import T
from shared.settings.texts import quoted
from shared.spark.spark_release import too_old


def arrow_udf(work: Callable[..., Any], result: T.DataType) -> Callable[..., Column]:
    """Return a function of columns that `work` computes in Python.

    It takes an Arrow array for each column, and returns one.

    Raises:
        SettingsError: Spark is older than 4.1.
    """
    if not hasattr(F, "arrow_udf"):
        raise too_old("the expression needs Python in Spark", "4.1")
    function: Callable[..., Column] = F.arrow_udf(work, result)
    return function


def parse_json(text: Column) -> Column:
    """Return JSON text as a variant.

    Raises:
        SettingsError: Spark is older than 4.0.
    """
    if not hasattr(F, "parse_json"):
        raise too_old("a column of JSON values needs Spark's type VARIANT", "4.0")
    return F.parse_json(text)


def is_json_object(text: Column) -> Column:
    """Return whether text is a JSON object."""
    if hasattr(F, "try_variant_get"):
        return F.try_variant_get(F.try_parse_json(text), "$", "map<string,variant>").isNotNull()
    return F.from_json(text, "map<string,string>").isNotNull()


def json_types(texts: DataFrame) -> list[str]:
    """Return the types, in DDL, that hold the JSON texts in each column of a small frame.

    Text that is no JSON is ignored; without any, the type is VOID.
    """
    if hasattr(F, "schema_of_variant_agg"):
        parsed = (F.try_parse_json(F.col(name)) for name in texts.columns)
        merged = texts.agg(*map(F.schema_of_variant_agg, parsed)).first()
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
        return F.is_valid_utf8(text)
    binary = text.cast("binary")
    return binary == F.encode(F.decode(binary, "UTF-8"), "UTF-8")


def micros_after(start: Column, micros: Column) -> Column:
    """Return a timestamp some microseconds after another."""
    if hasattr(F, "timestamp_add"):
        return F.timestamp_add("MICROSECOND", micros, start)
    zero = F.lit(0)
    seconds = (micros.cast("decimal(20,0)") / F.lit(1_000_000)).cast("decimal(18,6)")
    return start + F.make_dt_interval(zero, zero, zero, seconds)


def _is_json(text: str | None) -> bool:
    try:
        json.loads(text or "")
    except ValueError:
        return False
    return True


Path = tuple[str, ...]
Names = Mapping[Path, str | None]
"""Current path of a field to its name in an older version; None if it did not exist yet.

Elements of arrays are called `element`, parts of maps `key` and `value`. Fields that are not
listed have had their name all along.
"""
NO_NAMES: Names = {}


class TypeChangeError(ValueError):
    """A column's type in an older version does not fit into today's."""


def conformed(frame: DataFrame, want: T.StructType, names: Names = NO_NAMES) -> DataFrame:
    """Convert rows of any version to the wanted columns, exactly or not at all.

    Further columns are left out. Names are those of fields when the rows' schema was in force.

    Raises:
        TypeChangeError: A column had a type whose values the wanted one cannot hold.
    """
    fitting = Fitting(names, _exact)
    return frame.select(*fitting.fields(lambda n: F.col(quoted(n)), frame.schema, want, ()))


def check_types(have: T.StructType, want: T.StructType) -> None:
    """Check that today's columns fit into the wanted types.

    Raises:
        TypeChangeError: Naming the column, and both types.
    """
    present = {field.name: field.dataType for field in have.fields}
    fitting = Fitting(NO_NAMES, _exact)
    for field in want.fields:
        if field.name in present:
            fitting.value(F.lit(None), present[field.name], field.dataType, (field.name,))


def widens(have: T.DataType, want: T.DataType) -> bool:
    """Return whether every value of one type is a value of the other."""
    return isinstance(have, T.NullType) or holds_all(have, want)


@dataclass(frozen=True)
class Fitting:
    """How to convert values of one type to another, at any depth.

    Attributes:
        names: Names of the wanted fields in the existing values.
        leaf: Converts a value unless both types are structs, arrays or maps; the arguments are
            the value, its type, the wanted type, and the path.
    """

    names: Names
    leaf: Callable[[Column, T.DataType, T.DataType, Path], Column]

    def value(self, value: Column, have: T.DataType, want: T.DataType, path: Path) -> Column:
        """Return the value as one of the wanted type; keep a value of the same type."""
        is_same = as_nullable(have) == as_nullable(want)
        if is_same and not any(key[: len(path)] == path for key in self.names):
            return value
        if isinstance(have, T.StructType) and isinstance(want, T.StructType):
            fields = self.fields(value.getField, have, want, path)
            return F.when(value.isNotNull(), F.struct(*fields))
        if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
            element = self._part(have.elementType, want.elementType, (*path, "element"))
            return F.transform(value, element)
        if isinstance(have, T.MapType) and isinstance(want, T.MapType):
            key = self._part(have.keyType, want.keyType, (*path, "key"))
            content = self._part(have.valueType, want.valueType, (*path, "value"))
            turned = F.transform_values(value, lambda _, item: content(item))
            return F.transform_keys(turned, lambda item, _: key(item))
        return value if is_same else self.leaf(value, have, want, path)

    def _part(self, have: T.DataType, want: T.DataType, path: Path) -> Callable[[Column], Column]:
        return lambda item: self.value(item, have, want, path)

    def fields(
        self, get: Callable[[str], Column], have: T.StructType, want: T.StructType, path: Path
    ) -> Iterator[Column]:
        """Yield the wanted fields of a struct; `get` returns an existing one by its name."""
        present = {field.name: field.dataType for field in have.fields}
        for field in want.fields:
            inner = (*path, field.name)
            name = self.names.get(inner, field.name)
            dtype = present.get(name) if name is not None else None
            if name is None or dtype is None:
                fitted = F.lit(None).cast(field.dataType)
            else:
                fitted = self.value(get(name), dtype, field.dataType, inner)
            yield fitted.alias(field.name)


def _exact(value: Column, have: T.DataType, want: T.DataType, path: Path) -> Column:
    if widens(have, want):
        return value.cast(want)
    raise TypeChangeError(
        f"column '{'.'.join(path)}' is {have.simpleString()}, not {want.simpleString()}"
    )
