"""Files of every format written and read back; lines cut into blocks and ranges."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from datetime import datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.formats import line_encodings
from shared.formats.file_formats import FORMATS, packed_lines, read_lines
from shared.formats.line_encodings import ROW_GROUP_BYTES, grouped, text_bytes
from shared.formats.typed_rows import plain_values
from shared.storage.files import open_input, open_output
from shared.storage.urls import join, local_path, shown

TABLE = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "text": pa.array(['a "b", c\nd', "", None]),
        "real": pa.array([1.5, float("nan"), float("-inf")]),
        "at": pa.array([0, None, 1782907200123456], pa.timestamp("us", "UTC")),
        "bytes": pa.array([b"\x00\xff", b"", None]),
        "exact": pa.array(["1.10", None, "-3.00"]).cast(pa.decimal128(10, 2)),
    }
)
CASES = [(name, codec) for name, form in FORMATS.items() for codec in form.compressions]


def write(form: str, codec: str, folder: Path, *tables: pa.Table, schema: Any = None) -> str:
    url = str(folder / f"x{FORMATS[form].extension(codec)}")
    FORMATS[form].write(url, schema or tables[0].schema, iter(tables), codec)
    return url


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


AT = logical("long", "timestamp-micros")
NODE = {
    "type": "record",
    "name": "node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "node"]}],
}
NODES = [{"v": 1, "next": {"v": 2, "next": None}}]
LONG = Decimal("1." + "1234567890" * 4)
UNION = ["null", "string", "bytes", "long", "double", AT, {"type": "array", "items": "bytes"}]
MIXED = [None, "x", "1", 1, 2**60 + 1, 1.5, float("nan"), b"\x00\xff", [b"\x00\xff"],
         datetime(2026, 7, 1, tzinfo=timezone.utc)]  # fmt: skip
AS_JSON = [None, "x", "1", 1, 2**60 + 1, 1.5, "NaN", "AP8=", ["AP8="],
           "2026-07-01T00:00:00.000000+00:00"]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (UNION, MIXED, AS_JSON),
        ({"type": "array", "items": UNION}, [MIXED, []], [AS_JSON, []]),
        (["null", {"type": "map", "values": UNION}], [{"a": 1, "b": "1"}, None],
         [{"a": 1, "b": "1"}, None]),
        (["null", "int", "long"], [1, 2**62, None], [1, 2**62, None]),
        (["float", "double"], [0.5, 1e300], [0.5, 1e300]),
        (["null"], [None], [None]),
        (["null", logical("int", "date")], [2_932_897, None], ["+10000-01-01", None]),
        (logical("string", "date"), ["x"], ["x"]),
        (logical("string", "uuid"), ["none"], ["none"]),
        (logical("int", "time-millis"), [86_399_999], [time(23, 59, 59, 999_000)]),
        (logical("long", "timestamp-nanos"), [10**18 + 1], ["2001-09-09T01:46:40.000000001+00:00"]),
        (logical("long", "local-timestamp-micros"), [-(10**17)], ["-1199-02-15T14:13:20.000000"]),
        (logical("bytes", "decimal", precision=76, scale=40), [LONG], [LONG]),
        (logical("bytes", "decimal", precision=99, scale=40), [LONG], [LONG]),
        (NODE, NODES, NODES),
    ],
)  # fmt: skip
def test_values_of_avro(tmp_path: Path, kind: Any, values: list[Any], expected: list[Any]) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    with (tmp_path / "x.avro").open("wb") as sink:
        fastavro.writer(sink, schema, [{"a": value} for value in values])
    (table,) = FORMATS["avro"].read(str(tmp_path / "x.avro"))
    assert plain_values(table["a"]) == expected
    assert plain_values(table.take(pa.array([0]))["a"]) == expected[:1]


@pytest.mark.parametrize(("form", "codec"), CASES)
def test_round_trip(form: str, codec: str, tmp_path: Path) -> None:
    if FORMATS[form].rows == "lines":
        lines = pa.table({"value": ['{"a":1}\n', '{"a":"ü"}\n', None, "{}\n"]})
        url = write(form, codec, tmp_path, lines, lines.slice(1))
        text = '{"a":1}\n{"a":"ü"}\n{}\n{"a":"ü"}\n{}\n'
        assert b"".join(read_lines(url)) == text.encode()
        assert FORMATS[form].read(url).__next__().column(0)[0].as_py() == text.encode()
        return
    url = write(form, codec, tmp_path, TABLE, TABLE.slice(1))
    back = pa.concat_tables(FORMATS[form].read(url))
    assert back.column_names == TABLE.column_names
    assert back.num_rows == 5
    if form == "csv":
        assert back.column("text").to_pylist()[:3] == ['a "b", c\nd', "", None]
        assert back.column("real").to_pylist()[:3] == ["1.5", "NaN", "-Infinity"]
        assert back.column("bytes").to_pylist()[:3] == ["AP8=", "", None]
        assert back.column("at").to_pylist()[2] == "2026-07-01 12:00:00.123456Z"
        assert back.column("exact").to_pylist()[:3] == ["1.10", None, "-3.00"]
    else:
        assert str(back.slice(0, 3).to_pylist()) == str(TABLE.cast(back.schema).to_pylist())


@pytest.mark.parametrize("form", ["parquet", "orc", "csv"])
def test_a_file_without_rows_has_its_columns(form: str, tmp_path: Path) -> None:
    codec = FORMATS[form].default_compression
    url = str(tmp_path / "x")
    FORMATS[form].write(url, TABLE.schema, (), codec)
    tables = list(FORMATS[form].read(url))
    assert sum(table.num_rows for table in tables) == 0
    assert Path(url).stat().st_size > 0


def test_lines_are_read_by_content(tmp_path: Path) -> None:
    path = tmp_path / "labelled.jsonl"
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b"))
    assert b"".join(read_lines(str(path))) == b"a\nb"
    path.write_bytes(b"")
    assert list(read_lines(str(path))) == []


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b".")), max_size=30),
    block=st.integers(1, 40),
    step=st.integers(1, 60),
    end=st.booleans(),
)
def test_ranges_give_every_line_once(
    tmp_path_factory: Any, lines: list[bytes], block: int, step: int, end: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_encodings, "_LINE_STEP", 1 + step % 9)  # Some lines are long then.
        check_ranges(tmp_path_factory, lines, block, step, end=end)


def check_ranges(factory: Any, lines: list[bytes], block: int, step: int, *, end: bool) -> None:
    path = factory.getbasetemp() / "ranges"
    data = b"\n".join(lines) + (b"\n" if end and lines else b"")
    path.write_bytes(data)
    actual = b""
    for start in range(0, len(data), step):
        for piece in read_lines(str(path), start, min(step, len(data) - start), block):
            assert piece.endswith(b"\n") or data.endswith(piece)
            actual += piece
    assert actual == data
    assert b"".join(_raw(path, block)) == data


def _raw(path: Path, block: int) -> list[bytes]:
    # A magic number at the start would mean compression.
    return list(read_lines(str(path), 0, path.stat().st_size, block))


@pytest.mark.parametrize("lines", range(5, 60))
def test_no_block_is_much_shorter_than_others(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "x"
    path.write_bytes((b"x" * 9 + b"\n") * lines)
    sizes = [len(block) for block in read_lines(str(path), 0, 10 * lines, 100)]
    assert sum(sizes) == 10 * lines
    assert all(50 <= size <= 150 for size in sizes)


def test_blocks_end_with_lines(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(1000)))
    blocks = list(read_lines(str(path), block_bytes=100))
    assert all(block.endswith(b"\n") and len(block) <= 200 for block in blocks)
    assert b"".join(blocks) == path.read_bytes()


def test_wide_rows_are_read_in_tables_of_bounded_bytes(tmp_path: Path) -> None:
    rows = pa.table({f"c{n}": pa.array(range(n, n + 20_000), pa.int64()) for n in range(150)})
    url = write("parquet", "snappy", tmp_path, rows)
    tables = list(FORMATS["parquet"].read(url))
    assert max(table.nbytes for table in tables) <= 8 << 20
    assert pa.concat_tables(tables).equals(rows)


def test_grouped() -> None:
    tables = [TABLE] * 5
    assert [group.num_rows for group in grouped(tables, 1)] == [3] * 5
    assert [group.num_rows for group in grouped(tables, 10**9)] == [15]
    assert list(grouped([], 1)) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_bytes(kind: pa.DataType) -> None:
    texts = pa.array(["a", "bc", None, "", "ü"], kind)
    assert text_bytes(texts).to_pybytes() == "abcü".encode()
    assert text_bytes(texts.slice(1, 1)).to_pybytes() == b"bc"
    assert text_bytes(texts.slice(5)).to_pybytes() == b""
    assert text_bytes(pa.array([""], kind)).to_pybytes() == b""


def test_names_of_places(tmp_path: Path) -> None:
    assert local_path("/a b") == "/a b"
    assert local_path("file:///a") == "/a"
    assert local_path("file:/a") == "/a"
    assert local_path("a/b") == "a/b"
    assert local_path("s3://a") is None
    assert join("/", "a") == "/a"
    assert join("s3://b/", "a", "c") == "s3://b/a/c"
    assert shown("s3://me:secret@host/a?token=1") == "s3://host/a"
    assert shown("http://me:secret@[host/a#b/c") == "http://[host/a"
    assert shown("jdbc:postgresql://me:secret@host/a?password=x") == "jdbc:postgresql://host/a"
    assert shown("/a@b") == "/a@b"


def test_remote_files() -> None:
    with open_output("memory://x/a.gz", "gzip") as sink:
        sink.write(b"text")
    with open_input("memory://x/a.gz") as source:
        assert source.read() == b"text"


@pytest.mark.once
@pytest.mark.parametrize("codec", ["gzip", "zstd", "bzip2"])
@pytest.mark.parametrize("shares", [1, 2, 3, 7])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_shares_of_a_compressed_file(tmp_path: Path, codec: str, shares: int, end: bytes) -> None:
    import random

    created = random.Random(shares)
    lines = [created.randbytes(created.randrange(1, 300)).hex().encode() for _ in range(20_000)]
    url = str(tmp_path / "x")
    with open_output(url, codec) as sink:
        sink.write(b"\n".join(lines) + end)
    size = Path(url).stat().st_size
    step = -(-size // shares)
    actual, filled = [], 0
    for start in range(0, size, step):
        blocks = list(packed_lines(url, start, step, 100_000))
        filled += bool(blocks)
        for block, before in blocks:
            assert before == len(actual)
            actual += block.splitlines()
    assert actual == lines
    assert filled == shares


def test_a_large_row_group_is_read_in_bounded_memory(tmp_path: Path) -> None:
    url = write("parquet", "none", tmp_path, pa.table(_random_columns()))
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    peak = max(pool.bytes_allocated() - before for _ in FORMATS["parquet"].read(url))
    assert peak < 2**24, "of 48 MiB in one row group"


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_one_row_group_at_a_time_is_collected(tmp_path: Path, form: str) -> None:
    pool = pa.default_memory_pool()
    before, held = pool.bytes_allocated(), []

    def tables() -> Iterator[pa.Table]:
        numbers = pa.array(range(2**20), pa.int64())
        for number in range(3 * ROW_GROUP_BYTES // numbers.nbytes):
            held.append(pool.bytes_allocated() - before)
            yield pa.table({"n": pc.add(numbers, number)})

    schema = pa.schema([("n", pa.int64())])
    FORMATS[form].write(str(tmp_path / "x"), schema, tables(), "snappy")
    assert max(held) < 1.5 * ROW_GROUP_BYTES


def test_only_the_caller_holds_a_group() -> None:
    pool = pa.default_memory_pool()
    before, ones = pool.bytes_allocated(), pa.array([1] * 1000, pa.int64())
    size = ones.nbytes
    for group in grouped((pa.table({"n": pc.add(ones, n)}) for n in range(6)), 3 * size):
        assert group.column("n").to_pylist()[::1000] in [[1, 2, 3], [4, 5, 6]]
        del group
        assert pool.bytes_allocated() - before < 3 * size, "the last table, and the summand"


def _random_columns() -> dict[str, pa.Array]:
    values = [pa.py_buffer(random.Random(seed).randbytes(2**23)) for seed in range(6)]
    return {
        f"column_{number}": pa.Array.from_buffers(pa.int64(), 2**20, [None, buffer])
        for number, buffer in enumerate(values)
    }
