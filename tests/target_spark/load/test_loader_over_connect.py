"""The loader over Spark Connect, in a process of its own: a session is one kind or the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("grpc")
pytestmark = [pytest.mark.pipe, pytest.mark.costly]

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys, time
from dataclasses import replace
from shared.settings.batch_settings import FailurePolicy
from shared.formats.file_formats import Encoding
from shared.errors import RecordError
from shared.engine.engine import Engine
from shared.spark.session import SessionStarter
from shared.spark.conf import NO_CODE, SparkSettings
from shared.maps.map_settings import map_rules
from shared.maps.map_settings import TransformSettings
from target_spark.config import TargetConfig
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader
from target_spark.core.load_plans import Batch, InputFile, StreamSchema

folder = sys.argv[1]
starter = SessionStarter(SparkSettings(remote="local[2]", app_name="connect-test", conf=NO_CODE))
engine = Engine.of(starter.get)
starter.start()
schema = {"properties": {"id": {"type": "integer"}, "tags": {"items": {"type": "string"}}}}
for form in ("parquet", "json"):
    loader = Loader(TargetConfig(path=f"{folder}/{form}", format=form), engine)
    def batch(name, token, version):
        file = InputFile(f"{folder}/{name}", Encoding("singer"), line_map=((1, 5),))
        return Batch(StreamSchema("s", schema), (file,), token, version, time.time())
    for token, version in (("a", 1), ("b", 2)):
        one = batch(f"good{version}", token, version)
        loader.commit(one, [loader.convert(one)])
    try:
        loader.convert(batch("bad", "c", 2))
    except RecordError as error:
        print(error)
    loader.activate(StreamSchema("s", schema), 2)
    loader.finish("s")
rule = {"n": {"sql": "10 div (id - 1)"}, "first": "tags[0]", "__filter__": "id < 3"}
tag = {"__source__": "s", "__explode__": "tags", "of": "__parent__['id']"}
maps = TransformSettings(map_rules({"s": rule, "tag": tag}, []))
config = TargetConfig(path=f"{folder}/mapped", failure=FailurePolicy(policy="LogAndContinue"))
config = replace(config, transforms=maps)
loader = MappedLoader(config, engine)
names = [InputFile(f"{folder}/good{n}", Encoding("singer"), line_map=((1, n),)) for n in (1, 2)]
one = Batch(StreamSchema("s", schema, (), 1), tuple(names), "m", None, time.time())
result = loader.convert(one)
loader.commit(one, [result])
print([(reject.line, reject.reason) for reject in result.rejects])
starter.stop()
"""


def test_loads_and_activates(tmp_path: Path) -> None:
    for name, identity, version in (("good1", 1, 1), ("good2", 2, 2), ("bad", "x", 2)):
        record = {"id": identity, "tags": ["a"]}
        message = {"type": "RECORD", "stream": "s", "record": record, "version": version}
        (tmp_path / name).write_text(json.dumps(message) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stream 's', line 5") == 2
    rows = pq.read_table(tmp_path / "parquet" / "s").to_pylist()
    assert sorted(row["_sdc_deleted_at"] is None for row in rows) == [False, True]
    text = "".join(path.read_text() for path in (tmp_path / "json" / "s").glob("part-*"))
    lines = [json.loads(line) for line in text.splitlines()]
    assert sorted(line["_sdc_deleted_at"] is None for line in lines) == [False, True]
    assert [line["tags"] for line in lines] == [["a"], ["a"]]
    assert "[(1, \"output 's': property 'n': SqlError: Spark cannot compute it from" in done.stdout
    [row] = pq.read_table(tmp_path / "mapped" / "s").to_pylist()
    assert (row["id"], row["n"], row["first"]) == (2, 10, "a")
    tags = pq.read_table(tmp_path / "mapped" / "tag").to_pylist()
    assert sorted((row["tags"], row["of"]) for row in tags) == [("a", 1), ("a", 2)]
