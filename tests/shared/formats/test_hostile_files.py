"""Batch files that are made to fill memory or disk: each a clear error, soon."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import fastavro
import pyarrow as pa
import pytest
from backports import zstd
from case_matrix import matrix
from pyarrow import parquet

from shared.formats.file_formats import FORMATS, Encoding
from shared.formats.line_encodings import ContentError
from shared.formats.row_groups import CheckedPages
from shared.storage import limits
from shared.storage.access import StorageOptions
from shared.storage.files import open_input
from shared.storage.limits import FREE_BYTES, MAX_LINE_BYTES, MAX_RATIO
from target_spark.convert.read_lines import blocks_of
from target_spark.convert.read_plan import Piece
from target_spark.convert.read_rows import UnreadableInputError
from target_spark.core.load_plans import InputFile
from target_spark.core.reader import Reader

pytestmark = pytest.mark.once
ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20
PACKED = {"gzip": gzip.compress, "zstd": zstd.compress, "bzip2": bz2.compress}
MOST_MIB = 600


def bomb(path: Path, piece: bytes, times: int, first: bytes = b"") -> str:
    """Return a file of gzip members, each of which is one piece."""
    path.write_bytes((gzip.compress(first) if first else b"") + gzip.compress(piece, 9) * times)
    return str(path)


def read_alone(url: str, form: str) -> tuple[str, int]:
    """Return the reader's answer to a file in a process of its own, and its peak memory in MiB."""
    code = (
        "import os\n"
        "import sys\n"
        "import pyarrow as pa\n"
        "from target_spark.core.load_plans import InputFile\n"
        "from target_spark.convert.read_plan import *\n"
        "from target_spark.convert.read_rows import *\n"
        "from target_spark.convert.task_reports import Rejects\n"
        "from shared.formats.file_formats import Encoding\n"
        "schema = {'type': 'object', 'properties': {'a': {'type': ['string', 'null']}}}\n"
        "plan = ReadPlan((), schema, pa.schema([('a', pa.string())]))\n"
        "rows = 0\n"
        "try:\n"
        "    piece = Piece(InputFile(sys.argv[1], Encoding(sys.argv[2])))\n"
        "    rows = sum(table.num_rows for table in read_task(plan, [piece], Rejects()))\n"
        "except UnreadableInputError as error:\n"
        "    print(error.args[1])\n"
        "else:\n"
        "    print(rows)\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], flush=True)\n"
        "os._exit(0)\n"  # Arrow's threads may abort while Python finalizes.
    )
    command = [sys.executable, "-c", code, url, form]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said, peak = done.stdout.splitlines()
    return said, int(peak) >> 10


def test_a_line_as_long_as_memory(tmp_path: Path) -> None:
    """One megabyte of gzip that is one line of a gigabyte."""
    url = bomb(tmp_path / "x.gz", b"x" * (16 * MIB), 64, b'{"a":"1"}\n{"a":"')
    assert Path(url).stat().st_size < 2 * MIB
    said, peak = read_alone(url, "jsonl")
    assert said == "line 2 is longer than 128 MiB"
    assert peak < MOST_MIB


def test_many_short_lines_of_a_bomb_stream(tmp_path: Path) -> None:
    """As hard as gzip packs: legal, read to the end, in bounded memory."""
    lines = b'{"a":"%s"}\n' % (b"x" * 4000) * (MIB // 4009)
    times = (FREE_BYTES // len(lines)) // 2
    said, peak = read_alone(bomb(tmp_path / "x.gz", lines, times), "jsonl")
    assert said == str(lines.count(b"\n") * times)
    assert peak < MOST_MIB


def test_the_limit_of_a_line_is_that_of_stdin() -> None:
    assert Reader().max_line_bytes == MAX_LINE_BYTES == 128 * MIB


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_long_lines_in_a_share_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """The share with the line rejects it; others skip it or do not reach it."""
    monkeypatch.setattr(limits, "MAX_LINE_BYTES", MIB)
    data = b'{"a":1}\n' * 5 + b'{"a":"' + b"x" * (24 * MIB) + b'"}\n' + b'{"a":2}\n'
    packed = data if codec == "none" else gzip.compress(data)
    path = tmp_path / "x"
    path.write_bytes(packed)
    step = -(-len(packed) // 3)
    said = []
    for start in range(0, len(packed), step):
        piece = Piece(InputFile(str(path), Encoding("jsonl")), start, step)
        try:
            assert sum(len(block) for block, _ in blocks_of(piece, None)) <= 5 * 8
        except pa.ArrowInvalid as error:
            said.append(str(error))
    assert said == ["line 6 is longer than 1 MiB"]


def test_the_line_is_told_by_its_place_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LINE_BYTES", MIB)
    path = tmp_path / "x"
    path.write_bytes(b'{"a":1}\n' * 5 + b'{"a":"' + b"x" * (24 * MIB))
    piece = Piece(InputFile(str(path), Encoding("jsonl")), 20, 25 * MIB)
    with pytest.raises(pa.ArrowInvalid, match="line 6 is longer"):
        list(blocks_of(piece, None))


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("codec", PACKED)
def test_content_that_no_data_packs_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, form: str
) -> None:
    monkeypatch.setattr(limits, "MAX_RATIO", 100)
    text = b"a\n" if form == "csv" else b""
    path = tmp_path / "x"
    path.write_bytes(PACKED[codec](text + (b"x" * 1000 + b"\n") * 20_000))
    url = str(path)
    assert path.stat().st_size * 100 < 20 * MIB
    with open_input(url) as source:
        assert len(source.read()) == len(text) + 1001 * 20_000
    monkeypatch.setattr(limits, "FREE_BYTES", MIB)
    with pytest.raises(pa.ArrowInvalid, match="more than 100 times"):
        list(FORMATS[form].read(url))


@pytest.mark.parametrize("codec", PACKED)
def test_repetitive_data_is_no_bomb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """A row that changes by a counter packs some 100 times, and may be of any size."""
    monkeypatch.setattr(limits, "FREE_BYTES", 1)
    row = '{"id":%d,"status":"ok","host":"a-machine.example.org","note":"' + "n" * 400 + '"}\n'
    data = "".join(row % number for number in range(20_000)).encode()
    path = tmp_path / "x"
    path.write_bytes(PACKED[codec](data))
    assert 40 * path.stat().st_size < len(data) < MAX_RATIO * path.stat().st_size
    assert sum(len(t.column(0)[0].as_py()) for t in FORMATS["jsonl"].read(str(path))) == len(data)


def test_a_packed_parquet_file_leaves_half_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"a": ["x" * 100] * 50_000})
    path = tmp_path / "x.parquet.gz"
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="none", use_dictionary=False)
    path.write_bytes(gzip.compress(sink.getvalue()))
    assert pa.concat_tables(FORMATS["parquet"].read(str(path))).num_rows == 50_000
    free = 9 * MIB
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(free, 0, free))  # type: ignore[attr-defined]
    with pytest.raises(pa.ArrowInvalid, match="half of the free space"):
        list(FORMATS["parquet"].read(str(path)))


def test_row_groups_that_no_data_packs_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"a": ["x" * 1000] * 20_000})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    assert pa.concat_tables(FORMATS["parquet"].read(str(path))).num_rows == 20_000
    monkeypatch.setattr(limits, "FREE_BYTES", MIB)
    monkeypatch.setattr(limits, "MAX_RATIO", 50)
    with pytest.raises(pa.ArrowInvalid, match="more than 50 times"):
        list(FORMATS["parquet"].read(str(path)))


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


AVRO: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflated,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": zstd.compress,
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)) + b"\0\0\0\0",
}


def number(value: int) -> bytes:
    """Return an Avro long."""
    value, actual = value << 1, b""
    while value > 0x7F:
        value, actual = value >> 7, actual + bytes([value & 0x7F | 0x80])
    return actual + bytes([value])


def avro(path: Path, codec: str, block: bytes, size: int | None = None) -> str:
    """Return an Avro file of one block that claims any size."""
    sink = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
    fastavro.writer(sink, schema, [], codec=codec)
    head = sink.getvalue()
    reported = number(len(block) if size is None else size)
    path.write_bytes(head + number(1) + reported + block + head[-16:])
    return str(path)


def test_avro_text_that_is_not_utf8(tmp_path: Path) -> None:
    url = avro(tmp_path / "x", "null", number(2) + b"\xffx")
    with pytest.raises(ContentError, match=r"^it has a text that is not UTF-8$"):
        list(FORMATS["avro"].read(url))


@pytest.mark.parametrize("codec", AVRO)
def test_avro_blocks(tmp_path: Path, codec: str) -> None:
    text = b"x" * (MIB // 2)
    good = AVRO[codec](number(len(text)) + text)
    (table,) = FORMATS["avro"].read(avro(tmp_path / "good", codec, good))
    assert table.column("a").to_pylist() == [text.decode()]
    bad = avro(tmp_path / "bad", codec, AVRO[codec](b"x" * (MAX_LINE_BYTES + 1)))
    said, peak = read_alone(bad, "avro")
    assert "a block is longer than 128 MiB" in said
    assert peak < MOST_MIB


@pytest.mark.parametrize("size", [1 << 40, 1 << 60])
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro_blocks_that_lie_about_their_size(tmp_path: Path, codec: str, size: int) -> None:
    url = avro(tmp_path / "x", codec, AVRO[codec](b"\x02x"), size)
    with pytest.raises(pa.ArrowInvalid, match="a block is longer than 128 MiB"):
        list(FORMATS["avro"].read(url))


def test_the_error_names_the_file(tmp_path: Path) -> None:
    from target_spark.convert.read_plan import ReadPlan
    from target_spark.convert.read_rows import read_task
    from target_spark.convert.task_reports import Rejects

    url = avro(tmp_path / "x", "null", b"", 1 << 40)
    plan = ReadPlan((), {"type": "object"}, pa.schema([]), options=StorageOptions())
    with pytest.raises(UnreadableInputError) as caught:
        list(read_task(plan, [Piece(InputFile(url, Encoding("avro")))], Rejects()))
    assert caught.value.args[0] == url


def shared_text(size: int, rows: int) -> pa.Table:
    """Return rows that all refer to one long text."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * size])
    return pa.table({"a": texts})


def nested_text(size: int, rows: int) -> pa.Table:
    lists = pa.ListArray.from_arrays(range(rows + 1), shared_text(size, rows)["a"].chunk(0))
    return pa.table({"a": lists})


def written(path: Path, table: pa.Table, form: str, codec: str = "zstd") -> str:
    if form == "parquet":
        parquet.write_table(
            table, path, compression=codec, dictionary_pagesize_limit=1 << 30,
            write_statistics=False, write_batch_size=MIB, data_page_size=1 << 30,
        )  # fmt: skip
    else:
        options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, table.schema, options=options) as writer,
        ):
            writer.write_table(table)
    return str(path)


@pytest.mark.parametrize(
    ("table", "form", "codec"),
    matrix([shared_text, nested_text], ["parquet", "arrow"], ["zstd", "none"]),
)
def test_rows_that_share_a_long_text(
    tmp_path: Path, table: Callable[[int, int], pa.Table], form: str, codec: str
) -> None:
    """A few kilobytes that are gigabytes as plain text: read in pieces."""
    url = written(tmp_path / "x", table(200_000, 4096), form, codec)
    assert Path(url).stat().st_size < MIB
    said, peak = read_alone(url, form)
    if table is shared_text:
        assert said == "4096"
    elif form == "arrow":
        assert said == "0"  # read, and rejected: no text
    else:
        assert "its rows take more than 1000 times its size in memory" in said
    assert peak < MOST_MIB


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_row_with_very_many_values(tmp_path: Path, form: str) -> None:
    count = 60 * MIB
    values = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), ["xx" * 9])
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), values)
    url = written(tmp_path / "x", pa.table({"a": lists}), form)
    said, peak = read_alone(url, form)
    assert "its rows take more than 1000 times its size in memory" in said
    assert peak < MOST_MIB


def repeated_view(text: str, rows: int) -> pa.Array:
    valid, views, data = pa.array([text], pa.string_view()).buffers()
    buffers = [valid, pa.py_buffer(bytes(views)[:16] * rows), data]
    return pa.Array.from_buffers(pa.string_view(), rows, buffers)


@pytest.mark.parametrize(
    "values",
    [
        repeated_view("x" * 200_000, 9_999),
        pa.RunEndEncodedArray.from_arrays(pa.array([16_384], pa.int32()), ["x" * 200_000]),
        pa.ListViewArray.from_arrays(
            pa.array([0] * 2_000, pa.int32()), pa.array([50_000] * 2_000, pa.int32()),
            pa.array(range(50_000)),
        ),
    ],
    ids=["views", "runs", "list views"],
)  # fmt: skip
def test_arrow_rows_that_share_values(tmp_path: Path, values: pa.Array) -> None:
    url = written(tmp_path / "x", pa.table({"a": values}), "arrow")
    sizes = [table.num_rows for table in FORMATS["arrow"].read(url)]
    assert sum(sizes) == len(values)
    longest = 400_000 if pa.types.is_list_view(values.type) else 200_000
    assert max(sizes) * longest <= limits.TABLE_BYTES


def varint(value: int, size: int) -> bytes:
    """Return an unsigned number of Thrift in exactly so many bytes."""
    data = [value >> 7 * place & 0x7F | 0x80 for place in range(size)]
    return bytes([*data[:-1], data[-1] & 0x7F])


@pytest.mark.parametrize("reported", ["plain", "values"])
def test_a_footer_that_lies(tmp_path: Path, reported: str) -> None:
    """Pages that hold more than the footer says are not read, whatever it says."""
    count = 60 * MIB
    flat = pa.table({"a": pa.array([b"x" * (200 * MIB)])})
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count, pa.int64()))
    table = flat if reported == "plain" else pa.table({"a": lists})
    path = Path(written(tmp_path / "x", table, "parquet"))
    chunk = parquet.read_metadata(path).row_group(0).column(0)
    honest = chunk.total_uncompressed_size if reported == "plain" else chunk.num_values
    width = -(-(2 * honest).bit_length() // 7)
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    body, footer = data[:start], data[start:]
    assert varint(2 * honest, width) in footer
    path.write_bytes(body + footer.replace(varint(2 * honest, width), varint(2, width)))
    said, peak = read_alone(str(path), "parquet")
    assert "a page holds more than the footer of the file says" in said
    assert peak < MOST_MIB


def test_small_reads_meet_every_page(tmp_path: Path) -> None:
    """Headers of pages may begin in one read and end in the next."""
    table = pa.table({"a": [f"text {number}" for number in range(5_000)]})
    path = tmp_path / "x.parquet"
    parquet.write_table(table, path, data_page_size=500, write_batch_size=10)
    for size in (1, 7, 100, 4096):
        with pa.OSFile(str(path), "rb") as source:
            pages = CheckedPages(source, parquet.read_metadata(path), [0])
            while pages.read(size):
                pass
        (chunk,) = pages._chunks
        column = parquet.read_metadata(path).row_group(0).column(0)
        honest = 2 * column.num_values + 16_384 - chunk._values_left
        assert honest in (column.num_values, column.num_values + len(table))


ITEMS = {
    "records": ({"type": "record", "name": "i", "fields": [{"name": "b", "type": "boolean"}]}, 1),
    "nulls": ("null", 0),
}


@pytest.mark.parametrize("items", ITEMS)
def test_avro_values_that_are_far_larger_as_objects(tmp_path: Path, items: str) -> None:
    node, size = ITEMS[items]
    count = 100 * MIB
    field = {"name": "a", "type": {"type": "array", "items": node}}
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": [field]}, [], codec="zstandard")
    head = sink.getvalue()
    block = zstd.compress(number(count) + b"\0" * count * size + b"\0")
    path = tmp_path / "x.avro"
    path.write_bytes(head + number(1) + number(len(block)) + block + head[-16:])
    said, peak = read_alone(str(path), "avro")
    assert "its rows take more than 1000 times its size in memory" in said
    assert peak < MOST_MIB


def test_avro_rows_without_bytes(tmp_path: Path) -> None:
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": []}, [])
    head = sink.getvalue()
    path = tmp_path / "x.avro"
    path.write_bytes(head + number(1 << 40) + number(0) + head[-16:])
    with pytest.raises(pa.ArrowInvalid, match="more than 1000 times"):
        list(FORMATS["avro"].read(str(path)))
