"""Small runs do without pandas, and Arrow knows it once something imports it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from python_code import run_code

pytestmark = pytest.mark.pipe
START = """
import sys
from shared.singer.platform import arrow_without_pandas
arrow_without_pandas()
import pyarrow as pa
pa.table({"n": [1]})
assert "pandas" not in sys.modules
"""
USE = """
import pandas as pd
values = pd.Series([1.5, float("nan")])
assert pa.array(values).null_count == 1
assert pa.array(pd.Series(["a", None, pd.NA], dtype="string")).null_count == 2
frame = pa.Table.from_pandas(pd.DataFrame({"v": values}))
assert frame.column("v").null_count == 1
assert frame.to_pandas().equals(pd.DataFrame({"v": values}))
"""
BEFORE = """
import pandas as pd
from shared.singer.platform import arrow_without_pandas
arrow_without_pandas()
import pyarrow as pa
"""
MISSING = """
import sys
class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing)
"""
NANOS = """
from shared.formats.typed_rows import RowReader
values = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))
second = "2023-11-14 22:13:20"
for form, text in {"date-time": f"{second}.123456Z", "": f"{second}.123456789"}.items():
    reader = RowReader({"properties": {"c": {"type": "string", "format": form}}}, strict=True)
    [actual] = reader.read(pa.table({"c": values})).table.column("c").cast("string").to_pylist()
    assert actual.replace("T", " ") == text, actual
assert "pandas" not in sys.modules
"""
TASKS = """
import sys
import pyarrow as pa
from tap_spark.send.spool_files import ChunkRows
from tap_spark.send.spool_files import SpoolWriter, TaskSpool

offsets = pa.py_buffer(bytes([0, 0, 0, 0, 2, 0, 0, 0]))
line = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(b"{}")])
lines = pa.RecordBatch.from_arrays([line], ["line"])
for task in (ChunkRows(None, 9), SpoolWriter(TaskSpool(sys.argv[1], "", 9), None, 9)):
    found = [row for rows in task([lines]) for row in rows.to_pylist()]
    assert [row["rows"] for row in found] == [1]
assert pa.cpu_count() == 1
assert "pandas" not in sys.modules
assert [type(finder).__name__ for finder in sys.meta_path].count("_PandasFinder") == 1
"""
RUN = """
import sys
from {}.cli import main
code = main(sys.argv[1:])
sys.stderr.write("PANDAS" if "pandas" in sys.modules else "NONE")
sys.exit(code)
"""


@pytest.mark.parametrize("code", [START + USE, BEFORE + USE], ids=["later", "before"])
def test_arrow_knows_pandas_that_something_imports(code: str) -> None:
    run_code(code)


def test_pandas_need_not_be_installed() -> None:
    run_code(MISSING + START)


def test_nanoseconds_do_not_need_pandas() -> None:
    run_code(MISSING + START + NANOS)


def test_tasks_of_spark_do_not_import_pandas(tmp_path: Path) -> None:
    run_code(TASKS, str(tmp_path))


def test_small_runs_do_not_import_pandas(tmp_path: Path) -> None:
    source, loaded = tmp_path / "orders.csv", tmp_path / "loaded"
    source.write_text("id,day,name\n1,2026-01-02,a\n2,2026-01-03,\n")
    tap = run_code(RUN.format("tap_spark"), str(source))
    assert [json.loads(line)["type"] for line in tap.stdout.splitlines()].count("RECORD") == 2
    target = run_code(RUN.format("target_spark"), str(loaded), supplied=tap.stdout)
    assert list(loaded.glob("orders/*.parquet"))
    assert [tap.stderr[-4:], target.stderr[-4:]] == ["NONE", "NONE"]
