"""`process_batch_files` and `read_batch_tables`, as other programs call them."""

from __future__ import annotations

import gzip
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import target_spark
from shared.errors import MessageError, RecordError
from shared.formats.file_formats import FORMATS
from target_spark import process_batch_files, read_batch_tables

SCHEMA = {
    "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}
}
JSONL = {"format": "jsonl", "compression": "gzip", "odd": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(gzip.compress(b'{"id":1,"n":1.10}\n\n{"id":2}'))
    (tmp_path / "b").write_bytes(b'{"id":123456789012345678901234567890}\n')
    (tmp_path / "bad").write_bytes(b'{"id":1}\nnot JSON\n')
    (tmp_path / "ragged").write_bytes(b"id,m\n1,2,3\n")
    texts = pa.array([b"x", b"\xff"]).view(pa.string())
    pa.parquet.write_table(pa.table({"m": texts}), tmp_path / "latin")
    rows = pa.table({"id": ["4"], "at": ["2026-01-01 00:00:00Z"], "m": [""]})
    for form in ("csv", "parquet", "avro", "arrow"):
        FORMATS[form].write(str(tmp_path / form), rows.schema, [rows], "none")
    return tmp_path


def test_records(folder: Path) -> None:
    actual = process_batch_files(JSONL, {"root": str(folder)}, ["a", f"file://{folder}/b"])
    assert list(actual) == [
        {"id": 1, "n": Decimal("1.10")}, {"id": 2}, {"id": 123456789012345678901234567890},
    ]  # fmt: skip
    for form in ("csv", "parquet", "avro", "arrow"):
        actual = process_batch_files({"format": form}, None, [str(folder / form)])
        assert list(actual) == [{"id": "4", "at": "2026-01-01 00:00:00Z", "m": ""}]


def test_tables(folder: Path) -> None:
    encoding = {"format": "csv", "compression": None}
    [table] = read_batch_tables(encoding, None, [str(folder / "csv")], SCHEMA)
    assert [str(field.type) for field in table.schema] == ["int64", "timestamp[us, tz=UTC]"]
    assert table.column("id").to_pylist() == [4]


@pytest.mark.parametrize(
    ("form", "name", "error", "match"),
    [
        ("jsonl", "gone", MessageError, "gone"),
        ("parquet", "csv", MessageError, "csv'.*labelled parquet"),
        ("jsonl", "parquet", MessageError, "looks like a Parquet"),
        ("jsonl", "csv", MessageError, "labelled jsonl, but it looks like text"),
        ("jsonl", "bad", RecordError, r"bad', line 2: not JSON"),
        ("csv", "ragged", MessageError, "ragged'.* row 1: 3 fields where the header has 2"),
        ("parquet", "latin", MessageError, "latin'.* row 2: .*not UTF-8"),
        ("xml", "a", MessageError, "unknown batch file format 'xml'"),
    ],
)
def test_errors(folder: Path, form: str, name: str, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        list(process_batch_files({"format": form}, {"root": str(folder)}, [name]))


def test_errors_of_tables(folder: Path) -> None:
    with pytest.raises(RecordError, match=r"parquet', line 1: .*id"):
        list(read_batch_tables({"format": "parquet"}, None, [str(folder / "parquet")], SCHEMA))
    with pytest.raises(MessageError, match="gone"):
        list(read_batch_tables({"format": "parquet"}, None, [str(folder / "gone")], SCHEMA))
    closed = {"root": "s3://bucket", "options": {"endpoint_url": "http://127.0.0.1:9"}}
    with pytest.raises(MessageError, match=r"s3://bucket/a"):
        list(read_batch_tables({"format": "parquet"}, closed, ["s3://bucket/a"], SCHEMA))
    with pytest.raises(MessageError, match=r"s3://bucket/a::b.*key with '::'"):
        list(read_batch_tables({"format": "parquet"}, closed, ["s3://bucket/a::b"], SCHEMA))
    with pytest.raises(MessageError, match="listed twice"):
        list(process_batch_files(JSONL, {"root": str(folder)}, ["a", "a"]))


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, target_spark; print('pyarrow' in sys.modules, 'pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
    with pytest.raises(AttributeError, match="nothing"):
        _ = target_spark.nothing
