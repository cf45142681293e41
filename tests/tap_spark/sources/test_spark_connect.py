"""Discovery and reading over Spark Connect, in a separate process without the JVM."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
from shared.spark.session import SessionStarter
from shared.spark.conf import SparkSettings
from shared.maps.map_settings import map_rules
from shared.maps.map_settings import TransformSettings
from tap_spark.config import TapConfig
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.sources.source import source_for
from tap_spark.send.stream_outputs import map_error, outputs_of
from tap_runs import rows, stream, types
def mapped(spark, config, rule):
    tap = TapConfig(streams=(config,))
    (plan,) = plan_streams(tap, catalog_for(spark, tap), {}, 1)
    settings = TransformSettings(map_rules({"s": rule}, []))
    outputs, _ = outputs_of(settings, [plan], lambda: spark)
    [output] = outputs.of(plan)
    [piece] = source_for(config).slices(spark, plan)
    try:
        return [row.asDict(recursive=True) for row in output.mapped_slice(piece).frame.collect()]
    except Exception as error:
        return str(map_error(error))

starter = SessionStarter(SparkSettings(remote="local[2]"))
starter.start()
try:
    spark = starter.get()
    made = stream("rows", row_count=3, column_count=9)
    lines = stream("csv", sys.argv[1], replication_method="INCREMENTAL")
    whole = stream("csv", sys.argv[1])
    keyed = stream(
        "json", sys.argv[3], replication_key="id", replication_method="INCREMENTAL",
        schema="id long, who struct<mail:string>, all array<struct<mail:string>>",
    )
    rule = {"*.mail": "mask(self, 2)", "n": {"sql": "10 div id"}}
    answer = {
        "connect": "connect" in type(spark).__module__,
        "types": types(spark, lines),
        "lines": rows(spark, lines),
        "whole": rows(spark, whole),
        "keyed": rows(spark, stream("csv", sys.argv[1], replication_key="id")),
        "made": [row["id"] for row in rows(spark, made)],
        "documents": rows(spark, stream("json", sys.argv[2])),
        "mapped": mapped(spark, keyed, {**rule, "__filter__": "id > 1"}),
        "failed": mapped(spark, keyed, {**rule, "__filter__": "id < 2"}),
    }
finally:
    starter.stop()
print("ANSWER" + json.dumps(answer, default=str))
"""


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs the extra 'connect'")
def test_sources_over_spark_connect(tmp_path):
    table, document, keyed = (tmp_path / name for name in ("a.csv", "a.json", "b.json"))
    rows = [{"id": n, "who": {"mail": "abc"}, "all": [{"mail": "abc"}, None]} for n in range(3)]
    keyed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table.write_text("id,day\n1,2024-01-01\n2,2024-01-0")
    document.write_text('[{"a": 1}]')
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(table), str(document), str(keyed)],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.rpartition("ANSWER")[2])
    expected = [{"id": 1, "day": "2024-01-01"}]
    actual = answer.pop("mapped")
    assert [(row["__replication_key"], row["__filtered"]) for row in actual] == [
        (0, True), (1, True), (2, None),
    ]  # fmt: skip
    mapped = {"id": 2, "who": {"mail": "*bc"}, "all": [{"mail": "*bc"}, None], "n": 5}
    assert {name: actual[2][name] for name in mapped} == mapped
    assert answer == {
        "connect": True,
        "types": {"id": "long", "day": "date"},
        "lines": expected,
        "whole": [expected[0], {"id": 2, "day": "2024-01-0"}],
        "keyed": expected,
        "made": [0, 1, 2],
        "documents": [{"a": 1}],
        "failed": "stream 's', setting 'stream_maps': property 'n': SqlError: Spark cannot compute "
        "it from this record: 10 div id",
    }
