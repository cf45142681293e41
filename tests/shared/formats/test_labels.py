"""Files that are not what their label says: named as what they are, by their first bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from shared.formats.file_formats import FORMATS, ContentError, Encoding
from shared.formats.line_encodings import content_of
from shared.settings.batch_settings import COMPRESSIONS
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import UnreadableInputError, read_task
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import InputFile

TABLE = pa.table({"id": [1, 2, 3], "name": ["a", "", None]})
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
SCHEMA = {"properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}}
LINES = b'{"id":1,"name":"a"}\n{"id":2,"name":""}\n'


def created(form: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        FORMATS[form].write(str(folder / "made"), TABLE.schema, [TABLE], "none")
        return (folder / "made").read_bytes()

    return make


def stream(_: Path) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return sink.getvalue()


def archive(kind: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        sink = io.BytesIO()
        if kind == "zip":
            with zipfile.ZipFile(sink, "w") as file:
                file.writestr("a.jsonl", LINES)
        else:
            (folder / "a.jsonl").write_bytes(LINES)
            with tarfile.open(fileobj=sink, mode="w") as file:
                file.add(folder / "a.jsonl", "a.jsonl")
        return sink.getvalue()

    return make


def sqlite(folder: Path) -> bytes:
    with sqlite3.connect(folder / "db") as base:
        base.execute("create table t (id integer)")
    base.close()
    return (folder / "db").read_bytes()


def packed(codec: str) -> Callable[[Path], bytes]:
    return lambda _: bytes(pa.compress(LINES, codec, asbytes=True))


BINARY: dict[str, Callable[[Path], bytes]] = {
    "a Parquet file": created("parquet"),
    "an ORC file": created("orc"),
    "an Avro file": created("avro"),
    "an Arrow file": created("arrow"),
    "an Arrow stream": stream,
    "an SQLite file": sqlite,
    "a zip file": archive("zip"),
    "a tar file": archive("tar"),
    "an LZ4 file": packed("lz4"),
    "gzip data": lambda _: gzip.compress(gzip.compress(LINES)),
    "zstd data": lambda _: gzip.compress(pa.compress(LINES, "zstd", asbytes=True)),
    "UTF-16 text": lambda _: '{"id":1}\n'.encode("utf-16"),
}
TEXT: dict[str, tuple[bytes, str]] = {
    "csv": (b"id,name\n1,a\n", "text"),
    "quoted csv": (b'"id","name"\n"1","a"\n', "text"),
    "tabs": (b"\n\nid\tname\n1\ta\n", "text"),
    "array": (b'[{"id":1},{"id":2}]\n', "a JSON array"),
    "array of lines": (b'[\n{"id":1},\n{"id":2}\n]\n', "a JSON array"),
    "array of many lines": (b'[\n  {\n    "id": 1\n  }\n]\n', "a JSON array"),
    "document": (b'{\n  "id": 1\n}\n', "a JSON document of several lines"),
    "xml": (b"\xef\xbb\xbf<rows/>", "XML or HTML"),
}
READABLE = {
    "jsonl": {},
    "csv": {},
    "parquet": {"a Parquet file"},
    "avro": {"an Avro file"},
    "orc": {"an ORC file"},
    "arrow": {"an Arrow file", "an Arrow stream"},
}  # fmt: skip


def read(path: Path, data: bytes, form: str, **piece: int) -> tuple[int, int]:
    """Return rows that were read, and rejected ones."""
    path.write_bytes(data)
    rejects = Rejects()
    plan = ReadPlan((), SCHEMA, COLUMNS)
    tables = list(read_task(plan, [Piece(InputFile(str(path), Encoding(form)), **piece)], rejects))
    return sum(table.num_rows for table in tables), rejects.count


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "avro", "orc", "arrow"])
def test_binary_files_are_named(tmp_path: Path, form: str, name: str) -> None:
    data = BINARY[name](tmp_path)
    if name in READABLE[form]:
        assert read(tmp_path / "x", data, form) == (3, 0)
        return
    with pytest.raises(UnreadableInputError, match=f"labelled {form}, but it looks like {name}"):
        read(tmp_path / "x", data, form)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_compressed_as_a_whole(
    tmp_path: Path, form: str, compress: Callable[[bytes], bytes]
) -> None:
    data = compress(created("parquet")(tmp_path))
    with pytest.raises(UnreadableInputError, match=f"labelled {form}, but .* a Parquet file"):
        read(tmp_path / "x", data, form)


def test_a_share_of_a_compressed_file(tmp_path: Path) -> None:
    data = gzip.compress(created("parquet")(tmp_path))
    with pytest.raises(UnreadableInputError, match=r"labelled jsonl, but .* a Parquet file"):
        read(tmp_path / "x", data, "jsonl", start=0, length=len(data))


@pytest.mark.parametrize("name", TEXT)
def test_other_text_labelled_jsonl(tmp_path: Path, name: str) -> None:
    data, looks = TEXT[name]
    with pytest.raises(UnreadableInputError, match=f"labelled jsonl, but it looks like {looks}"):
        read(tmp_path / "x", data, "jsonl")


@pytest.mark.parametrize("data", [LINES, b"\n " + LINES, b'{"id":1}'])
def test_json_lines_labelled_csv(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnreadableInputError, match="labelled csv, but it looks like JSON lines"):
        read(tmp_path / "x", data, "csv")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"not json\n" + LINES, (2, 1)),
        (b"[1,2]\n" + LINES, (2, 1)),
        (b"\n\n<a>\n[\n" + LINES, (2, 2)),
        (LINES + b"PAR1\nid,name\n", (2, 2)),
        (b"not json", (0, 1)),
        (b"\n\n", (0, 0)),
        (b'{"id":1', (0, 1)),
    ],
)
def test_bad_lines_are_no_wrong_label(
    tmp_path: Path, data: bytes, expected: tuple[int, int]
) -> None:
    assert read(tmp_path / "x", data, "jsonl") == expected


@pytest.mark.parametrize("head", ["PARENT", "PAR1", "ORCHARD", "ARROW1", "SQLite format 3", "BZh9"])
def test_words_that_begin_as_a_mark_does(tmp_path: Path, head: str) -> None:
    assert read(tmp_path / "x", f"{head},id\nx,1\n".encode(), "csv") == (1, 0)
    assert content_of(f"{head},id\n".encode()) == "text"


def test_formats_of_batch_messages_are_covered() -> None:
    assert set(COMPRESSIONS) <= set(READABLE)
    with pytest.raises(ContentError):
        raise ContentError
