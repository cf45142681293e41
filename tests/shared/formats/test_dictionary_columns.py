"""Dictionaries are written for columns whose values repeat, and for no others."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shared.formats.columnar_encoding import dictionary_paths
from shared.formats.file_formats import FORMATS

ROWS = 100_000
NAMES = random.Random(1)
NESTED = pa.struct(
    [
        ("list", pa.list_(pa.int32())),
        ("a.b", pa.map_(pa.string(), pa.struct([("x", pa.int8())]))),
        ("large", pa.large_list(pa.struct([("y", pa.string())]))),
        ("fixed", pa.list_(pa.int8(), 2)),
    ]
)


def columns() -> pa.Table:
    numbers = range(ROWS)
    repeated = {
        "few": [n % 7 for n in numbers],
        "periodic": [n % 20_000 for n in numbers],
        "sorted": [n // 5 for n in numbers],
        "rare": [str(n) if n % 1000 == 0 else "same" for n in numbers],
        "null": [None] * ROWS,
    }
    distinct = {
        "number": list(numbers),
        "text": [f"{NAMES.getrandbits(64):x}" for _ in numbers],
        "some": [n if n % 3 else None for n in numbers],
        "float": [NAMES.random() for _ in numbers],
    }
    return pa.table({**distinct, **repeated})


def test_columns_whose_values_repeat() -> None:
    assert dictionary_paths(columns()) == ["few", "periodic", "sorted", "rare", "null"]


def test_few_rows_or_none() -> None:
    few = pa.table({"a": [1, 1, 2], "b": [1, 2, 3], "c": [None, None, None]})
    assert dictionary_paths(few) == ["a", "c"]
    assert dictionary_paths(few.slice(0, 0)) == ["a", "b", "c"]


def test_paths_of_nested_values_are_those_of_the_file(tmp_path: Path) -> None:
    table = pa.table({"n.z": pa.array([None] * 3, NESTED), "plain": [1, 1, 1]})
    pq.write_table(table, tmp_path / "f")
    stored = pq.ParquetFile(tmp_path / "f").schema
    assert dictionary_paths(table) == [stored.column(n).path for n in range(len(stored))]


def test_files_have_dictionaries_where_values_repeat(tmp_path: Path) -> None:
    table = columns()
    path = str(tmp_path / "f.parquet")
    FORMATS["parquet"].write(path, table.schema, iter([table]), "snappy")
    group = pq.read_metadata(path).row_group(0)
    actual = [group.column(n) for n in range(group.num_columns)]
    has = {one.path_in_schema for one in actual if one.has_dictionary_page}
    assert has >= {"few", "periodic", "sorted", "rare"}
    assert not has & {"number", "text", "some", "float"}
    pq.write_table(table, tmp_path / "all", compression="snappy")
    assert Path(path).stat().st_size < 0.95 * (tmp_path / "all").stat().st_size
    assert pq.read_table(path).equals(table)
