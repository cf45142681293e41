"""Columns of `name=value` folders, whose values are read from the paths of files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.frame_helpers import col

NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = r"0|-?[1-9][0-9]*"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_FORMS: Mapping[type[T.DataType], str] = {
    T.IntegerType: _WHOLE,
    T.LongType: _WHOLE,
    T.DecimalType: _WHOLE,
    T.DateType: _DAY,
    T.TimestampType: _DAY + r" [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,5}[1-9])?",
}
"""Texts that can be restored from values of types that Spark infers."""


def exact_field(field: T.StructField, urls: Iterable[str]) -> T.StructField:
    """Return a column with its type if that keeps the text of every folder, else as text."""
    texts = {value_of(url, field.name) for url in urls} - {NO_PARTITION}
    is_kept = all(_keeps(field.dataType, text) for text in texts)
    return field if is_kept else T.StructField(field.name, T.StringType(), True)


def _keeps(dtype: T.DataType, text: str) -> bool:
    if isinstance(dtype, T.DoubleType):
        return re.fullmatch(r"-?[0-9.]+", text) is not None and repr(float(text)) == text
    form = _FORMS.get(type(dtype))
    return form is None or re.fullmatch(form, text) is not None


def partition_value(field: T.StructField, urls: Sequence[str], number: str = "file") -> Column:
    """Return the value of a column, by the index of the file in a column of numbers."""
    values = [value_of(url, field.name) for url in urls]
    text = F.get(F.split(F.lit("\0".join(values)), "\0"), col(number))
    return F.when(text != NO_PARTITION, text).cast(field.dataType).alias(field.name)


def value_of(url: str, name: str) -> str:
    """Return the text of a column in the path of a file."""
    for folder in reversed(url.split("/")[:-1]):
        key, equals, value = folder.partition("=")
        if equals and unquote(key).lower() == name.lower():
            return unquote(value)
    return NO_PARTITION
