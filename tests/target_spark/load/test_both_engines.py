"""Batches that threads and Spark convert: rows and rejects are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_matrix import matrix
from engines import threads

from shared.engine.engine import Engine
from shared.formats.file_formats import Encoding
from shared.settings.batch_settings import FailurePolicy
from target_spark.core.load_plans import Batch, InputFile, LoadResult, StreamSchema
from target_spark.load.loader import Loader
from target_spark.run_settings import TargetConfig

SCHEMA = StreamSchema(
    "s",
    {
        "properties": {
            "id": {"type": "integer"},
            "text": {"type": ["string", "null"]},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "tags": {"type": ["array", "null"], "items": {"type": "string"}},
        }
    },
)


def staged(folder: Path) -> InputFile:
    rows: list[Any] = [
        {"id": 1, "text": "a\n", "at": "2026-07-01T12:00:00Z", "tags": ["x"]},
        {"id": "no number"},
        {"id": 2},
        {"id": 3, "text": "ü", "tags": []},
    ]
    lines = [json.dumps({"type": "RECORD", "stream": "s", "record": row}) for row in rows]
    path = folder / "in.singer"
    path.write_text("\n".join(lines) + "\n")
    size = path.stat().st_size
    return InputFile(str(path), Encoding("singer"), None, size, ((1, 10),))


def columnar(folder: Path) -> InputFile:
    table = pa.table({"id": range(5000), "text": [None, "b"] * 2500})
    pq.write_table(table, folder / "in.parquet", row_group_size=100)
    return InputFile(str(folder / "in.parquet"), Encoding("parquet", "snappy"))


def ragged(folder: Path) -> InputFile:
    (folder / "in.csv").write_text('id,text\n1,a\n2\n"3","b\nc"\n')
    return InputFile(str(folder / "in.csv"), Encoding("csv", "none"))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("supplied", "form"), matrix([staged, columnar, ragged], ["parquet", "orc"])
)
def test_rows_and_rejects_are_those_of_spark(
    supplied: Callable[[Path], InputFile], form: str, tmp_path: Path, spark: Any
) -> None:
    file = supplied(tmp_path)
    failure = FailurePolicy("SendToDLQ", dead_letter_path="x")

    def loaded(name: str, loader: Callable[[TargetConfig], Loader]) -> tuple[LoadResult, Any]:
        path = tmp_path / name
        own = TargetConfig(path=str(path), format=form, failure=failure, add_record_metadata=False)
        using = loader(own)
        batch = Batch(SCHEMA, (file,), "t-1", 7, 0.0)
        result = using.convert(batch)
        using.commit(batch, [result])
        using.finish("s")
        using.close()
        rows = spark.read.format(form).load(str(path / "s")).orderBy("id").collect()
        return result, rows

    ours, rows = loaded("threads", lambda own: Loader(own, threads()))
    theirs, expected = loaded("spark", lambda own: Loader(own, Engine.of(lambda: spark)))
    assert rows == expected
    assert rows
    placeless = {"parts": (), "reject_files": ()}
    assert replace(ours, **placeless) == replace(theirs, **placeless)
    assert len(ours.reject_files) == len(theirs.reject_files)
