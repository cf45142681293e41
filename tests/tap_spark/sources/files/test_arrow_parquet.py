"""Parquet files that Spark refuses: columns and values of other writers, exactly."""

from __future__ import annotations

import pickle
from datetime import datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.files import arrow_parquet
from tap_spark.sources.files.arrow_parquet import (
    ROWS,
    FooterFacts,
    NoCommonTypeError,
    ParquetRows,
    all_facts,
    arrow_struct,
    orc_facts,
    parquet_facts,
)

NUMBER = UUID("12345678-1234-5678-1234-567812345678")
COLUMNS: dict[str, tuple[pa.Array, str, Any]] = {
    "nanos": (pa.array([1_000], pa.timestamp("ns")), "timestamp_ntz", "1970-01-01 00:00:00.000001"),
    "instant": (pa.array([1_000], pa.timestamp("ns", "UTC")), "timestamp", None),
    "millis": (pa.array([1], pa.time32("ms")), "string", "00:00:00.001"),
    "time": (pa.array([1], pa.time64("ns")), "string", "00:00:00.000000001"),
    "half": (pa.array(np.array([1.5], np.float16)), "float", 1.5),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)", Decimal(2**64 - 1)),
    "fixed": (pa.array([b"ab"], pa.binary(2)), "binary", b"ab"),
    "null": (pa.nulls(1), "string", None),
    "words": (pa.array(["a"]).dictionary_encode(), "string", "a"),
    "list": (pa.array([[1]], pa.list_(pa.time32("s"))), "array<string>", ["00:00:01.000"]),
    "struct": (
        pa.array([{"h": np.float16(2)}], pa.struct([("h", pa.float16())])),
        "struct<h:float>",
        {"h": 2},
    ),
    "map": (
        pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.time32("s"))),
        "map<string,string>",
        [("a", "00:00:01.000")],
    ),
    "large": (pa.array([["a"]], pa.large_list(pa.large_string())), "array<string>", ["a"]),
    "pair": (pa.array([[1, 2]], pa.list_(pa.uint8(), 2)), "array<smallint>", [1, 2]),
    "maps": (
        pa.array([[[("a", None)]]], pa.list_(pa.map_(pa.string(), pa.int64()))),
        "array<map<string,bigint>>",
        [[("a", None)]],
    ),
    "view": (pa.array(["a"], pa.string_view()), "string", "a"),
    "bytes": (pa.array([b"a"], pa.binary_view()), "binary", b"a"),
}


def rows(urls: list[str], struct: Any) -> list[dict[str, Any]]:
    read = pickle.loads(pickle.dumps(ParquetRows(struct)))
    return [row for url in urls for batch in read(url) for row in batch.to_pylist()]


@pytest.mark.parametrize("codec", ["brotli", "snappy", "lz4"])
def test_types_of_other_writers(tmp_path: Path, codec: str) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({n: c for n, (c, _, _) in COLUMNS.items()}), path, compression=codec)
    assert parquet_facts(path).is_refused is (codec == "brotli")
    struct = arrow_struct([path])
    actual = {field.name: field.dataType.simpleString() for field in struct}
    assert actual == {name: kind for name, (_, kind, _) in COLUMNS.items()}
    (row,) = rows([path], struct)
    for name, (_, kind, value) in COLUMNS.items():
        if not kind.startswith("timestamp"):
            assert row[name] == value, name
    assert str(row["nanos"]) == COLUMNS["nanos"][2]


@pytest.mark.skipif(not hasattr(pa, "uuid"), reason="this PyArrow has no UUIDs")
def test_uuids(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"u": pa.array([NUMBER.bytes, None], pa.uuid())}), path)
    assert rows([path], arrow_struct([path])) == [{"u": str(NUMBER)}, {"u": None}]


INTS = pa.map_(pa.string(), pa.int32())
FLOATS = pa.map_(pa.string(), pa.float64())
# Arrow before 26, the last for Python 3.10, cannot read a null among lists of one size.
FIXED_NULL = None if int(pa.__version__.partition(".")[0]) >= 26 else ["c", "d"]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (pa.array([1], pa.int32()), pa.array([2**40]), "bigint"),
        (pa.array([1]), pa.array([Decimal("1.5")]), "decimal(20,1)"),
        (pa.array([1], pa.int32()), pa.array([1.5]), "double"),
        (pa.nulls(1), pa.array(["x"]), "string"),
        (pa.array([{"a": 1}]), pa.array([{"b": 2}]), "struct<a:bigint,b:bigint>"),
        (pa.array([[("k", 1)]], INTS), pa.array([[("k", 2.5)]], FLOATS), "map<string,double>"),
    ],
)
def test_files_that_differ(tmp_path: Path, one: pa.Array, other: pa.Array, kind: str) -> None:
    urls = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    pq.write_table(pa.table({"x": one, "y": [1]}), urls[0])
    pq.write_table(pa.table({"z": [2], "x": other}), urls[1])
    struct = arrow_struct(urls)
    assert struct["x"].dataType.simpleString() == kind
    first, second = rows(urls, struct)
    assert (first["y"], first["z"], second["y"], second["z"]) == (1, None, None, 2)
    assert second["x"] in (*other.to_pylist(), {"a": None, "b": 2})


@pytest.mark.parametrize("other", [pa.array(["x"]), pa.array([1.5]), pa.array([True])])
def test_types_that_have_none_in_common(tmp_path: Path, other: pa.Array) -> None:
    urls = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    pq.write_table(pa.table({"x": [2**60]}), urls[0])
    pq.write_table(pa.table({"x": other}), urls[1])
    with pytest.raises(
        NoCommonTypeError, match=r"column 'x' is .*b.parquet', and int64 in .*a.parq"
    ):
        arrow_struct(urls)


def test_lists_with_nulls_of_large_stripes(tmp_path: Path) -> None:
    urls = [str(tmp_path / name) for name in ("a.orc", "b.orc")]
    lists = [[1], None, [2, 3]] * (ROWS // 2)
    for url, kind in zip(urls, (pa.int32(), pa.int64()), strict=True):
        orc.write_table(pa.table({"v": pa.array(lists, pa.list_(kind))}), url)
    struct = arrow_struct(urls, "orc")
    assert struct.simpleString() == "struct<v:array<bigint>>"
    batches = chain.from_iterable(map(ParquetRows(struct, "orc"), urls))
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == 2 * lists


def test_lists_of_other_kinds_with_nulls(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    kinds = {
        "large": pa.large_list(pa.large_string()),
        "fixed": pa.list_(pa.string_view(), 2),
        "map": pa.map_(pa.string(), pa.uint8()),
    }
    values = {
        "large": [["a"], None, [], ["b", None]] * ROWS,
        "fixed": [["a", "b"], FIXED_NULL, [None, "c"], ["d", "e"]] * ROWS,
        "map": [[("a", 1)], None, [], [("b", None), ("c", 3)]] * ROWS,
    }
    table = pa.table({name: pa.array(values[name], kind) for name, kind in kinds.items()})
    pq.write_table(table, path)
    actual = rows([path], arrow_struct([path]))
    assert {name: [row[name] for row in actual] for name in kinds} == values


def test_names_that_differ_by_case_only(tmp_path: Path) -> None:
    """They would be null in some of the files."""
    urls = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    pq.write_table(pa.table({"Id": [1], "y": [1]}), urls[0])
    pq.write_table(pa.table({"y": [1], "ID": [1]}), urls[1])
    with pytest.raises(NoCommonTypeError, match=r"'ID' of .*b.parquet' and 'Id' of .*a.parquet'"):
        arrow_struct(urls)
    assert arrow_struct(urls, case_sensitive=True).names == ["Id", "y", "ID"]
    for url, name in zip(urls, ("zip", "Zip"), strict=True):
        pq.write_table(pa.table({"s": pa.array([[{name: 1}]])}), url)
    with pytest.raises(NoCommonTypeError, match=r"column 's' is .*Zip.*b.parquet', and .*zip.*a.p"):
        arrow_struct(urls)
    with pytest.raises(RuntimeError, match=r"column 's' .*'zip' is spelled 'Zip'.*b.parquet"):
        rows(urls, arrow_struct(urls[:1]))


def test_names_that_are_there_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(NoCommonTypeError, match=r"column 'a' is there twice in .*a.parquet"):
        arrow_struct([path])


def test_nanoseconds_that_would_be_cut(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": pa.array([1_001], pa.timestamp("ns"))}), path)
    with pytest.raises(RuntimeError, match=r"column 'at' holds a value .*a.parquet"):
        rows([path], arrow_struct([path]))


def test_nanoseconds_that_spark_cuts(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([1_001], pa.timestamp("ns")), "n": [1]})
    parquet, zoned = str(tmp_path / "a.parquet"), str(tmp_path / "a.orc")
    inside = pa.table({"s": pa.array([{"at": 1_001}], pa.struct([("at", pa.timestamp("ns"))]))})
    pq.write_table(inside, parquet, use_deprecated_int96_timestamps=True)
    assert parquet_facts(parquet).finer == ("s.at",)
    of_spark = table.replace_schema_metadata({"org.apache.spark.version": "4.1.1"})
    pq.write_table(of_spark, parquet, use_deprecated_int96_timestamps=True)
    assert parquet_facts(parquet).finer == ()
    orc.write_table(table, zoned)
    assert orc_facts(zoned).finer == ("at",)


def test_footers_that_executors_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_parquet, "MOST_BY_DRIVER", 0)
    path = str(tmp_path / "a.orc")
    orc.write_table(pa.table({"at": pa.array([1_001], pa.timestamp("ns"))}), path)
    assert all_facts(spark, [path], orc_facts) == [FooterFacts(finer=("at",))]


def test_int96_of_all_years(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    years = pa.array([datetime(1, 1, 1), datetime(9999, 12, 31, 1, 2, 3, 4)], pa.timestamp("us"))
    pq.write_table(pa.table({"at": years}), path, use_deprecated_int96_timestamps=True)
    assert parquet_facts(path).is_refused
    struct = arrow_struct([path])
    assert struct["at"].dataType == T.TimestampType()
    actual = rows([path], struct)
    assert [row["at"].replace(tzinfo=None) for row in actual] == years.to_pylist()


def test_nanoseconds_of_int96(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    nanos = pa.array([1_000, None, 1_700_000_000_123_456_789, -1] * 5_000, pa.timestamp("ns"))
    table = pa.table({"n": range(len(nanos)), "at": nanos})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=15_000)
    with pytest.raises(
        RuntimeError, match=r"column 'at' .*'schema'.*a.parquet|a.parquet.*'schema'"
    ):
        rows([path], arrow_struct([path]))
    actual = rows([path], T.StructType().add("at", "string").add("n", "long"))
    texts = {
        "1970-01-01T00:00:00.000001000Z",
        None,
        "2023-11-14T22:13:20.123456789Z",
        "1969-12-31T23:59:59.999999999Z",
    }
    assert {row["at"] for row in actual[:4]} == {row["at"] for row in actual[-4:]} == texts
    assert [row["n"] for row in actual] == [*range(len(nanos))]
    # What Hive and Impala write for an endless time, whose nanoseconds are over 64 bits.
    table = pa.table({"at": pa.array([253402300799999999], pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    (row,) = rows([path], T.StructType().add("at", "string"))
    assert row["at"] == "9999-12-31T23:59:59.999999000Z"


def test_nanoseconds_as_text(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": pa.array([1_001], pa.timestamp("ns", "UTC"))}), path)
    (row,) = rows([path], T.StructType().add("at", "string"))
    assert row["at"] == "1970-01-01T00:00:00.000001001Z"
