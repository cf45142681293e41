"""Keys that the driver reads from parts: as Spark finds them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T  # noqa: N812

from target_spark.core.load_plans import Part
from target_spark.destinations.lakes import small_flush as module
from target_spark.destinations.lakes.flush_frames import key_ranges
from target_spark.destinations.lakes.lake_sql import MOST_VALUES, KeyRange
from target_spark.destinations.lakes.small_flush import part_keys
from target_spark.tables.table_changes import Projected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.timezone.utc
CASES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integer": (pa.int64(), [5, -(2**62), 7, 7]),
    "null": (pa.int32(), [1, None, 3]),
    "nulls alone": (pa.int32(), [None, None]),
    "text": (pa.string(), ["b", "ä", "", "𝄞", "\ufffd"]),
    "boolean": (pa.bool_(), [True, False, True]),
    "decimal": (pa.decimal128(12, 2), [Decimal("1.50"), Decimal("-3.25")]),
    "date": (pa.date32(), [dt.date(2024, 2, 29), dt.date(1582, 10, 15)]),
    "instant": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, 5, 6, 7, 8, UTC)]),
    "local time": (pa.timestamp("us"), [dt.datetime(2024, 1, 1), dt.datetime(2025, 1, 1)]),
}


def parts_of(folder: Path, *tables: pa.Table) -> list[Part]:
    actual = []
    for number, table in enumerate(tables):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        actual.append(Part(str(path), table.num_rows, path.stat().st_size))
    return actual


def as_is(name: str, target: str | None = None, how: str = "as is") -> Projected:
    return Projected(target or name, name, T.LongType(), how)


@pytest.mark.spark
@pytest.mark.parametrize("all_values", [False, True])
def test_spark_finds_the_same(spark: SparkSession, tmp_path: Path, all_values: bool) -> None:
    """In one frame, as Spark looks for the keys of all columns at once."""
    most = max(len(values) for _, values in CASES.values())
    columns = {
        # The last value once more changes no range.
        name: pa.array([*values, *values[-1:] * (most - len(values))], dtype)
        for name, (dtype, values) in CASES.items()
    }
    table = pa.table(columns)
    parts = parts_of(tmp_path, table.slice(0, 1), table.slice(1))
    frame = spark.read.parquet(*(part.url for part in parts))
    names = [*CASES]
    few = tuple(names) if all_values else ()
    expected, count = key_ranges(frame, names, few)
    for order in (names, names[::-1]):
        actual = part_keys(parts, [as_is(name) for name in order], few)
        assert actual is not None
        assert actual[1] == count
        ranges = {one.column: one for one in actual[0]}
        assert [one.column for one in actual[0]] == order
        for other in expected:
            one = ranges[other.column]
            assert (one.first, one.last, one.nulls) == (other.first, other.last, other.nulls)
            assert (one.values is None) == (other.values is None)
            assert set(one.values or ()) == set(other.values or ())


def test_names_in_the_table(tmp_path: Path) -> None:
    parts = parts_of(tmp_path, pa.table({"Id": [2, 1], "x": [0, 0]}))
    assert part_keys(parts, [as_is("Id", "id")], ()) == ((KeyRange("id", 1, 2, False),), 2)


def test_single_values_only_if_there_are_few(tmp_path: Path) -> None:
    for count in (MOST_VALUES, MOST_VALUES + 1):
        actual = part_keys(parts_of(tmp_path, pa.table({"k": range(count)})), [as_is("k")], ("k",))
        assert actual is not None
        assert (actual[0][0].values is None) is (count > MOST_VALUES)


def test_values_that_python_lacks_have_no_range(tmp_path: Path) -> None:
    days = pa.array([-(10**6), 10**7], pa.int32()).cast(pa.date32())
    parts = parts_of(tmp_path, pa.table({"k": days}))
    assert part_keys(parts, [as_is("k")], ("k",)) == ((KeyRange("k", None, None, False),), 2)


def test_spark_has_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"k": [1], "f": [0.0], "a.b": [1]})
    parts = parts_of(tmp_path, table)
    assert part_keys(parts, [as_is("k")], ()) is not None
    assert part_keys(parts, [as_is("k", how="cast")], ()) is None
    assert part_keys(parts, [as_is("k"), as_is("f")], ()) is None, "-0.0 is 0.0 to Spark"
    assert part_keys(parts, [as_is("a.b")], ()) is None
    assert part_keys([Part("s3://bucket/x.parquet", 1, 1)], [as_is("k")], ()) is None
    monkeypatch.setattr(module, "MOST_KEY_BYTES", 1)
    assert part_keys(parts, [as_is("k")], ()) is None
