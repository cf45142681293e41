"""Columns of Parquet files that are copied: as if they were read and written; all else is read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from shared.formats import column_copies, columnar_encoding
from shared.formats.column_copies import ColumnCopy
from shared.formats.columnar_encoding import (
    BINARY,
    DOUBLE,
    I32,
    I64,
    LIST,
    Struct,
    read_struct,
    struct_bytes,
    struct_in,
    structs_in,
)
from shared.formats.file_formats import FORMATS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = [
    pa.int64(), pa.int32(), pa.int16(), pa.bool_(), pa.float64(), pa.float32(), pa.string(),
    pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(20, 3),
]  # fmt: skip
CHECKED: dict[str, Any] = {"write_page_checksum": True}
BASE = pa.table({"a": [1, 2, None], "b": ["x", None, "y"]})


def added(rows: int) -> pa.Table:
    batched = pa.scalar(7, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"_at": pa.repeat(batched, rows), "_none": pa.nulls(rows, pa.int64())})


def random_table(chance: random.Random, schema: pa.Schema) -> pa.Table:
    rows, few = chance.choice([1, 3, 200, 5_000]), chance.choice([2, 10**6])
    values = pa.array([chance.randrange(few) for _ in range(rows)], pa.int64())
    small = pa.array([chance.randrange(100) for _ in range(rows)], pa.int32())

    def column(field: pa.Field) -> pa.Array:
        kind = field.type
        if pa.types.is_boolean(kind):
            array = pc.greater(small, 50)
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            array = values.cast(pa.string()).cast(kind)
        elif kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
            array = values.cast(kind)
        else:
            array = (small.cast(pa.decimal128(17)) if "dec" in str(kind) else small).cast(kind)
        share = chance.choice([0, 0, 0.5, 1]) if field.nullable else 0
        gone = pa.array([chance.random() < share for _ in range(rows)])
        return pc.if_else(gone, pa.scalar(None, kind), array)

    return pa.table([column(field) for field in schema], schema=schema)


def copy(
    folder: Path,
    sources: Sequence[tuple[str, range | None]],
    own: pa.Schema,
    packed: str = "snappy",
) -> pa.Table | None:
    url = str(folder / "copy.parquet")
    columns = ColumnCopy(sources, own, added, lambda _: True)
    rows = columns.write(url, packed)
    assert rows is None or columns.fitting(packed)
    if rows is None:
        assert not Path(url).exists()
        return None
    result = pq.read_table(url, page_checksum_verification=True)
    result.validate(full=True)
    assert rows == len(result) == pq.read_metadata(url).num_rows
    return result


Sources = list[tuple[str, range | None]]


def random_sources(
    chance: random.Random, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[pa.Schema, Sources, list[pa.Table], str]:
    """Write files that can be copied; return their columns, groups, rows, and compression."""
    monkeypatch.setattr(column_copies, "LEAST_BYTES", 0)
    monkeypatch.setattr(column_copies, "_BLOCK_ROWS", chance.choice([1, 7, 1000, 10**5]))
    monkeypatch.setattr(columnar_encoding, "ROW_GROUP_BYTES", chance.choice([500, 10**4, 10**7]))
    kinds = chance.choices(KINDS, k=chance.randint(1, 6))
    fields = [pa.field(f"c{n}", kind, chance.random() < 0.9) for n, kind in enumerate(kinds)]
    schema = pa.schema(fields)
    packed = chance.choice(["snappy", "zstd", "none", "gzip"])
    sources: Sources = []
    tables = []
    for place in range(chance.randint(1, 3)):
        url = str(folder / f"{place}.parquet")
        parts = [random_table(chance, schema) for _ in range(chance.randint(1, 4))]
        FORMATS["parquet"].write(url, schema, parts, packed)
        file = pq.ParquetFile(url)
        first = chance.choice([None, chance.randrange(file.num_row_groups)])
        groups = None if first is None else range(first, file.num_row_groups)
        sources.append((url, groups))
        tables += [file.read_row_group(group) for group in groups or range(file.num_row_groups)]
    return schema, sources, tables, packed


@pytest.mark.parametrize("number", range(40))
def test_a_copy_is_what_reading_and_writing_gives(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(number)
    schema, sources, tables, packed = random_sources(chance, tmp_path, monkeypatch)
    fields = list(schema)
    own = pa.schema(chance.sample(fields, len(fields)), {"org.apache.spark.version": "4"})
    result = copy(tmp_path, sources, own, packed)
    rows = pa.concat_tables(tables)
    expected = pa.table(
        [*rows.columns, *added(len(rows)).columns], names=[*schema.names, "_at", "_none"]
    )
    assert result is not None
    assert result.schema.metadata == {b"org.apache.spark.version": b"4"}
    assert result.replace_schema_metadata().cast(expected.schema).equals(expected)
    old, new = (pq.read_metadata(url) for url in (sources[0][0], tmp_path / "copy.parquet"))
    group = new.row_group(0)
    first = (sources[0][1] or [0])[0]
    assert group.column(0).statistics == old.row_group(first).column(0).statistics
    chunks = [group.column(n) for n in range(group.num_columns)]
    assert group.total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)


def searched(table: pa.Table) -> list[tuple[str, Any, int]]:
    """Return columns, values to search for (None: nulls), and in how many rows they are."""
    searches = [(name, None, table[name].null_count) for name in table.column_names]
    for name in table.column_names:
        values = table[name].drop_null().to_pylist()
        if values:
            middle = values[len(values) // 2]
            searches.append((name, middle, values.count(middle)))
    return searches


@pytest.mark.parametrize("number", range(40, 50))
def test_readers_of_others_read_copies(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each skips pages and row groups by what the footer says of them."""
    schema, sources, _, packed = random_sources(random.Random(number), tmp_path, monkeypatch)
    table = copy(tmp_path, sources, schema, packed)
    assert table is not None
    rows, url = table.to_pylist(), str(tmp_path / "copy.parquet")
    lazy = polars.scan_parquet(url)
    assert lazy.collect().to_arrow().cast(table.schema).to_pylist() == rows
    with duckdb.connect() as database:
        database.execute("SET timezone = 'UTC'")
        read = f"FROM read_parquet('{url}')"
        assert database.sql(read).arrow().read_all().cast(table.schema).to_pylist() == rows
        for name, value, count in searched(table):
            same = polars.col(name).eq_missing(polars.lit(value))
            assert lazy.filter(same).collect().height == count
            query = f"SELECT count(*) {read} WHERE {name} IS NOT DISTINCT FROM ?"
            assert database.execute(query, [value]).fetchone() == (count,)


@pytest.mark.spark
def test_spark_reads_copies(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50, 54):
        folder = tmp_path / str(number)
        folder.mkdir()
        schema, sources, _, packed = random_sources(random.Random(number), folder, monkeypatch)
        table = copy(folder, sources, schema, packed)
        assert table is not None
        frame = spark.read.parquet(str(folder / "copy.parquet"))
        for vectorized in ("true", "false"):
            spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
            rows = frame.toArrow().cast(table.schema).to_pylist()
            assert rows == table.to_pylist()
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
        for name, value, count in searched(table):
            assert frame.where(F.col(name).eqNullSafe(F.lit(value))).count() == count


@pytest.mark.parametrize(
    ("table", "more", "packed"),
    [
        (BASE, {}, "snappy"),  # no checksums
        (BASE, {**CHECKED, "compression": "zstd"}, "snappy"),
        (BASE, {**CHECKED, "write_page_index": True}, "snappy"),
        (BASE, {**CHECKED, "sorting_columns": [pq.SortingColumn(0)]}, "snappy"),
        (BASE, {**CHECKED, "row_group_size": 1}, "snappy"),  # better put together
        (BASE.append_column("more", [[1], [2], [3]]), CHECKED, "snappy"),
        (BASE.append_column("b", [["x"], ["y"], ["z"]]), CHECKED, "snappy"),
        (BASE.select(["a"]), CHECKED, "snappy"),
        (BASE.set_column(0, "a", BASE["a"].cast(pa.int32())), CHECKED, "snappy"),
        (BASE.set_column(0, "a", BASE["a"].cast(pa.duration("us"))), CHECKED, "snappy"),
        (BASE.set_column(1, "b", BASE["b"].dictionary_encode()), CHECKED, "snappy"),
        (BASE, {**CHECKED, "version": "1.0"}, "none"),
        # Spark reads neither of them.
        (
            BASE,
            {**CHECKED, "use_dictionary": False, "column_encoding": {"a": "BYTE_STREAM_SPLIT"}},
            "snappy",
        ),
        (BASE, {**CHECKED, "compression": "brotli"}, "brotli"),
    ],
)
def test_other_files_are_read(
    table: pa.Table, more: dict[str, Any], packed: str, tmp_path: Path
) -> None:
    pq.write_table(table, tmp_path / "a.parquet", **more)
    sources = [(str(tmp_path / "a.parquet"), None)]
    assert copy(tmp_path, sources, BASE.schema, packed) is None
    assert not ColumnCopy(sources, BASE.schema, added, lambda _: True).fitting(packed)


def test_files_with_large_columns_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(BASE, tmp_path / "a.parquet", **CHECKED)
    sources = [(str(tmp_path / "a.parquet"), None)]
    monkeypatch.setattr(column_copies, "MOST_BYTES", 10)
    assert copy(tmp_path, sources, BASE.schema) is None
    assert not ColumnCopy(sources, BASE.schema, added, lambda _: True).fitting("snappy")


def test_files_with_columns_in_other_orders_are_read(tmp_path: Path) -> None:
    pq.write_table(BASE, tmp_path / "a", **CHECKED)
    pq.write_table(BASE.select(["b", "a"]), tmp_path / "b", **CHECKED)
    one, other = (str(tmp_path / "a"), None), (str(tmp_path / "b"), None)
    assert copy(tmp_path, [one], BASE.schema) is not None
    (tmp_path / "copy.parquet").unlink()
    assert copy(tmp_path, [one, other], BASE.schema) is None


def test_a_file_of_another_writer_is_read(tmp_path: Path) -> None:
    pq.write_table(BASE, tmp_path / "a", **CHECKED)
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data.replace(b"parquet-cpp-arrow ", b"parquet-mr version"))
    assert copy(tmp_path, [(str(tmp_path / "a"), None)], BASE.schema) is None


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_FOOTER_BYTES"])
def test_what_would_take_much_memory_is_read(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(BASE, tmp_path / "a", **CHECKED)
    monkeypatch.setattr(column_copies, limit, 10)
    assert copy(tmp_path, [(str(tmp_path / "a"), None)], BASE.schema) is None


def test_rows_that_do_not_fit_are_read(tmp_path: Path) -> None:
    pq.write_table(BASE, tmp_path / "a", **CHECKED)
    columns = ColumnCopy([(str(tmp_path / "a"), None)], BASE.schema, added, lambda _: False)
    assert columns.write(str(tmp_path / "copy.parquet"), "snappy") is None


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    pq.write_table(BASE.slice(0, 0), tmp_path / "a", **CHECKED)
    columns = ColumnCopy([(str(tmp_path / "a"), None)], BASE.schema, added, lambda _: True)
    assert columns.write(str(tmp_path / "copy.parquet"), "snappy") == 0
    assert not (tmp_path / "copy.parquet").exists()


@pytest.mark.parametrize("number", range(10))
def test_a_damaged_file_is_read_and_the_damage_seen(number: int, tmp_path: Path) -> None:
    """Each byte of a page is under its checksum; the rest is under the eyes of both readers."""
    chance = random.Random(number)
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    url = tmp_path / "a.parquet"
    FORMATS["parquet"].write(str(url), schema, [random_table(chance, schema)], "snappy")
    data = bytearray(url.read_bytes())
    chunk = pq.read_metadata(url).row_group(0).column(chance.randrange(2))
    end = chunk.data_page_offset + chunk.total_compressed_size
    if chunk.has_dictionary_page:
        end = chunk.dictionary_page_offset + chunk.total_compressed_size
    data[end - 1] ^= 1 << chance.randrange(8)  # the last byte of its last page
    url.write_bytes(data)
    assert copy(tmp_path, [(str(url), None)], schema) is None
    with pytest.raises(OSError, match="CRC"):
        list(FORMATS["parquet"].read(str(url)))


def rows_changed(_: Struct, group: Struct) -> None:
    group[3] = (I64, 4)


def list_relabelled(_: Struct, group: Struct) -> None:
    """Arrow does not look at the type, and reads all rows."""
    meta = struct_in(structs_in(group, 1)[0], 3)
    codes = [bytes([code << 1]) for code in meta[2][1][1]]
    meta[2] = (LIST, (DOUBLE, codes))


def type_changed(_: Struct, group: Struct) -> None:
    struct_in(structs_in(group, 1)[0], 3)[1] = (I32, 5)


def column_renamed(_: Struct, group: Struct) -> None:
    struct_in(structs_in(group, 1)[0], 3)[3] = (LIST, (BINARY, [b"c"]))


def writer_garbled(tree: Struct, _: Struct) -> None:
    tree[6] = (BINARY, b"parquet-cpp-arr\xef")


@pytest.mark.parametrize(
    "damage", [rows_changed, list_relabelled, type_changed, column_renamed, writer_garbled]
)
def test_files_with_damaged_footers_are_read(
    damage: Callable[[Struct, Struct], None], tmp_path: Path
) -> None:
    pq.write_table(BASE, tmp_path / "a", **CHECKED)
    change_footer(tmp_path / "a", damage)
    assert copy(tmp_path, [(str(tmp_path / "a"), None)], BASE.schema) is None


def change_footer(path: Path, change: Callable[[Struct, Struct], None]) -> None:
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    tree, _ = read_struct(memoryview(data[start:-8]))
    change(tree, structs_in(tree, 4)[0])
    footer = struct_bytes(tree)
    path.write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def less_plain(_: Struct, group: Struct) -> None:
    struct_in(structs_in(group, 1)[0], 3)[6] = (I64, 1)


def test_pages_that_hold_more_than_the_footer_says_are_read(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([0] * 300_000, pa.int64())})
    pq.write_table(table, tmp_path / "a", use_dictionary=False, **CHECKED)
    assert copy(tmp_path, [(str(tmp_path / "a"), None)], table.schema) is not None
    change_footer(tmp_path / "a", less_plain)
    assert copy(tmp_path, [(str(tmp_path / "a"), None)], table.schema) is None


def test_a_damaged_page_header_leaves_no_file(tmp_path: Path) -> None:
    pq.write_table(BASE, tmp_path / "a", **CHECKED)
    data = bytearray((tmp_path / "a").read_bytes())
    data[4] = 0x1D  # the first byte of the first page: a type that Thrift does not have
    (tmp_path / "a").write_bytes(data)
    assert copy(tmp_path, [(str(tmp_path / "a"), None)], BASE.schema) is None


def test_cut_or_missing_files_are_read(tmp_path: Path) -> None:
    pq.write_table(BASE, tmp_path / "a", **CHECKED)
    data = (tmp_path / "a").read_bytes()
    for end in (0, 3, 10, len(data) - 1):
        (tmp_path / "b").write_bytes(data[:end])
        assert copy(tmp_path, [(str(tmp_path / "b"), None)], BASE.schema) is None
    assert copy(tmp_path, [(str(tmp_path / "missing"), None)], BASE.schema) is None


def test_footers_are_written_as_they_were_read(tmp_path: Path) -> None:
    many = pa.table({f"c{n}": pa.array([n], kind) for n, kind in enumerate([pa.int8()] * 40)})
    for table in (BASE, many, pa.table({"n": [[{"x": 1.5}]], "m": [-1]})):
        pq.write_table(table, tmp_path / "a", store_decimal_as_integer=True, write_page_index=True)
        data = (tmp_path / "a").read_bytes()
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
        tree, end = read_struct(memoryview(footer))
        assert end == len(footer)
        assert struct_bytes(tree) == footer
