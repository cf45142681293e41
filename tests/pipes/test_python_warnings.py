"""With Python's warnings on, as Meltano switches them on, standard error holds log lines alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pipe_programs import Programs

pytestmark = pytest.mark.pipe

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \| [A-Z]+ +\| [\w.-]+ \| .*")
ALL_WARNINGS = {"PYTHONWARNINGS": "default", "PYTHONDEVMODE": "1"}
# Stream maps that need Python in Spark's workers.
CSV = "id,name\n" + "".join(f"{number},name {number}\n" for number in range(500))
TAP: dict[str, Any] = {
    "streams": [
        {"name": "files", "format": "csv", "path": "data/*.csv", "key_properties": ["id"],
         "replication_method": "INCREMENTAL"},
        {"name": "rows", "format": "rows", "row_count": 2000, "column_count": 10},
    ],
    "stream_maps": {"files": {"longer": "name + '!'", "hashed": "md5(name)"}},
    "batch_config": {"encoding": {"format": "jsonl", "compression": "gzip"},
                     "storage": {"root": "batches"}, "include_streams": ["rows"]},
}  # fmt: skip


def test_record_and_batch(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "some.csv").write_text(CSV)
    result = Programs(tmp_path, environ=ALL_WARNINGS).pipe(TAP, {"path": "out"}).check()
    assert pq.read_table(tmp_path / "out" / "files").num_rows == 500
    assert pq.read_table(tmp_path / "out" / "rows").num_rows == 2000
    for log in (result.tap_log, result.target_log):
        assert log
        assert not [line for line in log.splitlines() if not LINE.fullmatch(line)]
        assert "Warning" not in log
