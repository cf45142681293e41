"""Discovery and reading over Spark Connect, in a process of its own: nothing needs the JVM."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from shared.spark_session import SessionStarter
from shared.spark_settings import SparkSettings
from tap_runs import rows, stream, types
starter = SessionStarter(SparkSettings(remote="local[2]"))
starter.start()
try:
    spark = starter.get()
    made = stream("rows", row_count=3, column_count=9)
    lines = stream("csv", sys.argv[1], replication_method="INCREMENTAL")
    whole = stream("csv", sys.argv[1])
    answer = {
        "connect": "connect" in type(spark).__module__,
        "types": types(spark, lines),
        "lines": rows(spark, lines),
        "whole": rows(spark, whole),
        "made": [row["id"] for row in rows(spark, made)],
        "documents": rows(spark, stream("json", sys.argv[2])),
    }
finally:
    starter.stop()
print("ANSWER" + json.dumps(answer, default=str))
"""


@pytest.mark.spark
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs the extra 'connect'")
def test_sources_over_spark_connect(tmp_path):
    table, document = tmp_path / "a.csv", tmp_path / "a.json"
    table.write_text("id,day\n1,2024-01-01\n")
    document.write_text('[{"a": 1}]')
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(table), str(document)],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.rpartition("ANSWER")[2])
    expected = [{"id": 1, "day": "2024-01-01"}]
    assert answer == {
        "connect": True,
        "types": {"id": "long", "day": "date"},
        "lines": expected,
        "whole": expected,
        "made": [0, 1, 2],
        "documents": [{"a": 1}],
    }
