"""Records that do not fit their schema, through the loader: lines, reasons, policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_loader import Bench

from shared.errors import RecordError
from shared.formats.file_formats import Encoding
from shared.settings.batch_settings import FailurePolicy
from target_spark.convert.task_reports import read_rejects
from target_spark.core.load_plans import InputFile

pytestmark = pytest.mark.spark

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "code": {"type": ["string", "null"], "pattern": "^[a-z]+$", "not": {"const": "bad"}},
    },
    "required": ["id"],
    "additionalProperties": False,
}
RECORDS: list[dict[str, Any]] = [
    {"id": 1, "code": "a"}, {"id": 0}, {"id": 2, "code": "bad"}, {"id": 3, "code": None},
    {"id": 4, "more": 1}, {"code": "x"}, {"id": 5, "code": "X"},
]  # fmt: skip
REASONS = {
    1: "property 'id': 0 is less than the minimum of 1",
    2: "property 'code': 'bad' should not be valid under {'const': 'bad'}",
    4: "Additional properties are not allowed ('more' was unexpected)",
    5: "property 'id': null or missing where a value is required",
    6: "property 'code': 'X' does not match '^[a-z]+$'",
}


def test_lines_and_batch_files_alike(spark: Any, tmp_path: Path) -> None:
    b = Bench(spark, tmp_path, add_record_metadata=False, failure=FailurePolicy("SendToDLQ", "x"))
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    pq.write_table(pa.Table.from_pylist(RECORDS, schema=pa.schema(
        [("id", pa.int64()), ("code", pa.string()), ("more", pa.int64())]
    )), tmp_path / "rows")  # fmt: skip
    files = [
        b.staged(RECORDS, first_line=100),
        InputFile(str(lines), Encoding("jsonl")),
        InputFile(str(tmp_path / "rows"), Encoding("parquet")),
    ]
    batch = b.batch(*files, schema=SCHEMA)
    result = b.loader.convert(batch)
    assert (result.rows, result.rejected) == (6, 15)
    actual: dict[str, dict[int, str]] = {}
    for url in result.reject_files:
        for reject, original in read_rejects(url):
            actual.setdefault(reject.file, {})[reject.line] = reject.reason
            assert b'"' in original
    assert list(actual.values()) == [
        {100 + row: reason for row, reason in REASONS.items()},
        *[{1 + row: reason for row, reason in REASONS.items()}] * 2,
    ]
    b.loader.commit(batch, [result])
    assert sorted(row.id for row in spark.read.parquet(b.table).collect()) == [1, 1, 1, 3, 3, 3]


def test_the_run_ends_at_the_first_one(spark: Any, tmp_path: Path) -> None:
    b = Bench(spark, tmp_path)
    with pytest.raises(RecordError, match=r"line 11.*0 is less than the minimum of 1"):
        b.loader.convert(b.batch(b.staged(RECORDS), schema=SCHEMA))
    lenient = Bench(spark, tmp_path / "out", validate_records=False)
    (tmp_path / "out").mkdir(exist_ok=True)
    lenient.load(lenient.staged(RECORDS), schema=SCHEMA)
    assert spark.read.parquet(lenient.table).count() == len(RECORDS)


def test_a_pattern_that_takes_ages_refuses_the_record(spark: Any, tmp_path: Path) -> None:
    b = Bench(spark, tmp_path)
    schema = {"properties": {"code": {"type": "string", "pattern": "^(a+)+$"}}}
    records = [{"code": "aaa"}, {"code": "a" * 60 + "!"}]
    with pytest.raises(RecordError, match=r"line 11.*'code'.*takes more than 5 s"):
        b.loader.convert(b.batch(b.staged(records), schema=schema))
