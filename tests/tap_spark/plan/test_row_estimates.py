"""About how many rows streams of files have."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tap_spark.config import tap_config
from tap_spark.plan.discovery import estimated_rows


def rows(folder: Path, form: str, row_count: int | None = None, **more: Any) -> str | None:
    stream = {"name": "s", "format": form, "path": f"{folder}/*", **more}
    metadata = [{"breadcrumb": [], "metadata": {"row-count": row_count}}]
    catalog = {"streams": [{"tap_stream_id": "s", "metadata": metadata}]}
    return estimated_rows(tap_config({"streams": [stream]}), catalog).get("s")


def text(count: int) -> bytes:
    return b"id,name\n" + b"".join(b"%06d,somebody\n" % number for number in range(count))


@pytest.mark.parametrize("packed", [False, True])
def test_text_files(tmp_path: Path, packed: bool) -> None:
    for count in (200_000, 100_000, 0):
        data = text(count)
        name = f"{count}.csv.gz" if packed else f"{count}.csv"
        (tmp_path / name).write_bytes(gzip.compress(data) if packed else data)
    (tmp_path / "empty.csv").write_bytes(b"")
    actual = rows(tmp_path, "csv")
    assert actual is not None
    assert actual[0] == "~"
    assert abs(int(actual[1:].replace(",", "")) - 300_000) < (60_000 if packed else 100)


def test_small_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n3")
    assert rows(tmp_path, "text") == "~3"
    assert rows(tmp_path, "csv") == "~2"
    assert rows(tmp_path, "csv", options={"header": False}) == "~3"
    assert rows(tmp_path, "json", options={"multiLine": True}) is None
    (tmp_path / "a").write_bytes(b"[\n{}\n]")
    assert rows(tmp_path, "json") is None
    (tmp_path / "a").write_bytes(b"\x1f\x8b broken")
    assert rows(tmp_path, "text") is None


def test_footers_and_statistics(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": range(1234)}), tmp_path / "a.parquet")
    assert rows(tmp_path, "parquet") == "1,234"
    assert rows(tmp_path, "parquet", row_count=5000) == "~5,000"
