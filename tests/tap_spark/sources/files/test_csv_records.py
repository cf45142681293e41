"""Records made from columns of text; tests/tap_spark/sources compares with Spark's."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources import record_arrays
from tap_spark.sources.files.csv_blocks import CsvReader
from tap_spark.sources.files.text_types import typed_column
from tap_spark.stream_config import StreamConfig

READER = CsvReader(StreamConfig("s", "csv"))
NTZ, MONEY = T.TimestampNTZType(), T.DecimalType(5, 2)


def written(dtype: T.DataType, *values: str | None) -> list[str] | None:
    """Return the JSON of values alone in a record; None if only Spark does."""
    column = typed_column(pa.array(values, pa.string()), dtype)
    if column is None:
        return None
    struct = T.StructType([T.StructField("k", dtype)])
    actual = READER.texts_of(pa.record_batch({"k": column}), struct)
    if actual is None:
        return None
    return [text[len('{"k":') : -1] for part in actual for text in part.to_pylist()]


@pytest.mark.parametrize(
    ("dtype", "text", "json"),
    [
        (T.LongType(), "-9223372036854775808", "-9223372036854775808"),
        (T.DecimalType(38, 0), "9" * 38, "9" * 38),
        (MONEY, "-999.90", "-999.90"),
        (MONEY, "-0.00", "0.00"),
        (T.DoubleType(), "100", "100.0"),
        (T.DoubleType(), "0.001", "0.001"),
        (T.DoubleType(), "-0.0", "-0.0"),
        (T.DoubleType(), "0.00012", "1.2E-4"),
        (T.DoubleType(), "-10000000", "-1.0E7"),
        (T.DoubleType(), "12345678.5", "1.23456785E7"),
        (T.BooleanType(), "true", "true"),
        (T.DateType(), "0001-01-01", '"0001-01-01"'),
        (NTZ, "2024-02-29 01:02:03.5", '"2024-02-29T01:02:03.500000"'),
        (T.TimestampType(), "2024-03-01T01:00:00+02:30", '"2024-02-29T22:30:00.000000+00:00"'),
        (T.TimestampType(), "0001-01-01T00:00:00+10:00", '"0000-12-31T14:00:00.000000+00:00"'),
        (T.TimestampType(), "9999-12-31T23:59:59-10:00", '"+10000-01-01T09:59:59.000000+00:00"'),
        (T.StringType(), '\\"\t/\x7f é', '"\\\\\\"\\t/\x7f é"'),
        (T.StringType(), "\x01\x0b", '"\\u0001\\u000B"'),
    ],
)
def test_values(dtype: T.DataType, text: str, json: str) -> None:
    assert written(dtype, text, None) == [json, "null"]


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (T.LongType(), "007"),
        (T.LongType(), "9223372036854775808"),
        (T.LongType(), "1.0"),
        (MONEY, "1.5"),
        (MONEY, "1000.00"),
        (T.DecimalType(2, 2), "0.25"),
        (T.DecimalType(38, 7), "0.0000001"),
        (T.DoubleType(), "1.50"),
        (T.DoubleType(), "1e5"),
        (T.DoubleType(), "NaN"),
        (T.BooleanType(), "True"),
        (T.DateType(), "2023-02-29"),
        (NTZ, "2024-01-01"),
        (T.TimestampType(), "2024-01-01 00:00:00"),
        (T.FloatType(), "1.5"),
        (T.VarcharType(3), "a"),
    ],
)
def test_values_that_are_left_to_spark(dtype: T.DataType, text: str) -> None:
    assert written(dtype, text) is None


def test_names_are_escaped() -> None:
    names = ['a "é', "b"]
    batch = pa.record_batch([pa.array([1]), pa.array([1])], names)
    struct = T.StructType([T.StructField(name, T.LongType()) for name in names])
    actual = READER.texts_of(batch, struct)
    assert actual is not None
    assert [part.to_pylist() for part in actual] == [['{"a \\"é":1,"b":1}']]


def test_many_rows_come_in_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_arrays, "PIECE_BYTES", 10)
    assert written(T.LongType(), *map(str, range(9))) == [str(n) for n in range(9)]
