"""Batch files of the Meltano SDK's own batchers load here, and an SDK target reads ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.formats.file_formats import FORMATS
from target_spark import process_batch_files, read_batch_tables

pytestmark = [pytest.mark.pipe, pytest.mark.costly]

ROOT = Path(__file__).parents[2]
SDK = "singer-sdk[parquet]==0.54.9"
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "name": {"type": ["string", "null"]},
        "tags": {"type": ["array", "null"], "items": {"type": "string"}},
    },
}
RECORDS = [
    {"id": n, "price": n / 4, "name": ["ü\n", "", None][n % 3], "tags": ["a"] * (n % 2)}
    for n in range(25)
]
WRITE = """
import json, sys
from singer_sdk.batch import Batcher
from singer_sdk.helpers._batch import BatchConfig

root, form, compression, records = sys.argv[1], sys.argv[2], sys.argv[3], json.load(sys.stdin)
config = BatchConfig.from_dict({
    "encoding": {"format": form, "compression": compression},
    "storage": {"root": root, "prefix": "p-"},
    "batch_size": 10,
})
batcher = Batcher("tap-x", "s", config)
print(json.dumps([list(manifest) for manifest in batcher.get_batches(iter(records))]))
"""
READ = """
import json, sys
from singer_sdk import Target, typing as th
from singer_sdk.sinks import BatchSink

def plain(value):
    return value.isoformat() if hasattr(value, "isoformat") else float(value)

class Sink(BatchSink):
    def process_batch(self, context):
        with open(sys.argv[3], "a") as file:
            for record in context["records"]:
                file.write(json.dumps(record, default=plain) + "\\n")

class Read(Target):
    name = "target-read"
    config_jsonschema = th.PropertiesList().to_dict()
    default_sink_class = Sink

Read.cli(["--config", sys.argv[1], "--input", sys.argv[2]])
"""


@pytest.fixture(scope="session")
def sdk() -> str:
    """A Python with singer-sdk, kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / "singer-spark-tests" / f"singer-sdk-0.54.9-py{version}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(folder / "bin" / "pip"), "install", "-q", SDK]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            if os.environ.get("SINGER_SPARK_REQUIRE_SERVERS"):
                pytest.fail(f"{SDK} could not be installed: {done.stderr[-500:]}")
            pytest.skip(f"{SDK} could not be installed from PyPI")
        (folder / "complete").touch()
    return str(python)


def run(python: str, script: str, *args: str, text: str = "") -> str:
    done = subprocess.run(
        [python, "-c", script, *args], input=text, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("form", "compression"), [("jsonl", "gzip"), ("parquet", "gzip")])
def test_files_of_the_sdk_load_here(sdk: str, tmp_path: Path, form: str, compression: str) -> None:
    batches = tmp_path / "sdk files"
    batches.mkdir()
    root = f"file://{batches}"
    encoding = {"format": form, "compression": compression}
    manifests = json.loads(run(sdk, WRITE, root, form, compression, text=json.dumps(RECORDS)))
    assert len(manifests) == 3
    urls = [url for manifest in manifests for url in manifest]
    tables = list(read_batch_tables(encoding, None, urls, SCHEMA))
    assert pa.concat_tables(tables).to_pylist() == RECORDS
    assert [float(r["price"]) for r in process_batch_files(encoding, None, urls)] == [
        n / 4 for n in range(25)
    ]
    messages: list[dict[str, Any]] = [
        {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []}
    ]
    for manifest in manifests:
        message = {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": manifest}
        messages.append(message)
    messages.append({"type": "STATE", "value": {"done": True}})
    config = {"path": str(tmp_path / "out"), "spark": {"master": "local[2]"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "target_spark.cli", "--config", str(tmp_path / "config.json")],
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"done": True}
    rows = pq.read_table(tmp_path / "out" / "s").select(list(SCHEMA["properties"])).to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == RECORDS


@pytest.mark.parametrize(
    ("form", "compression"), [("jsonl", "gzip"), ("jsonl", "none"), ("parquet", "gzip")]
)
def test_an_sdk_target_reads_ours(sdk: str, tmp_path: Path, form: str, compression: str) -> None:
    lines = pa.table({"value": [json.dumps(record) + "\n" for record in RECORDS]})
    table = lines if form == "jsonl" else pa.Table.from_pylist(RECORDS)
    ending = FORMATS[form].extension(compression)
    path = tmp_path / f"p-tap-spark--s-0-1{ending}"
    FORMATS[form].write(str(path), table.schema, [table], compression)
    encoding = {"format": form, "compression": compression}
    messages = [
        {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []},
        {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": [f"file://{path}"]},
    ]
    (tmp_path / "in").write_text("".join(json.dumps(message) + "\n" for message in messages))
    (tmp_path / "config.json").write_text("{}")
    run(sdk, READ, str(tmp_path / "config.json"), str(tmp_path / "in"), str(tmp_path / "found"))
    actual = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    assert [{name: row[name] for name in RECORDS[0]} for row in actual] == RECORDS


SOURCE = """id bigint, price double, exact decimal(12,2), name string, at timestamp, flag boolean,
tags array<string>, place struct<x: int, y: string>"""


def sources(count: int) -> list[dict[str, Any]]:
    """Rows as Spark reads them from JSON lines."""
    rows = []
    for n in range(count):
        row = {
            "id": n,
            "price": n / 8,
            "exact": float(f"{n}.25"),
            "name": ['ü\n"', "", None][n % 3],
            "at": f"2026-11-21T10:00:{n % 60:02d}.000001Z",
            "flag": [True, False, None][n % 3],
            "tags": ["a"] * (n % 2),
            "place": {"x": n, "y": "here"} if n % 5 else None,
        }
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("form", "compression"),
    [("jsonl", "gzip"), pytest.param("jsonl", "none", marks=pytest.mark.slow), ("parquet", "gzip")],
)
def test_tap_spark_into_an_sdk_target(
    sdk: str, programs: Any, tmp_path: Path, form: str, compression: str
) -> None:
    """`tap-spark | target of the SDK`: what our program prints is all that the target gets."""
    wanted = sources(250)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in wanted))
    stream = {"name": "s", "format": "json", "path": "rows.jsonl", "schema": SOURCE}
    config = {
        "streams": [{**stream, "key_properties": ["id"]}],
        "batch_config": {
            "encoding": {"format": form, "compression": compression},
            "storage": {"root": f"file://{tmp_path}/batches", "prefix": "p-"},
            "batch_size": 100,
        },
    }
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "in").symlink_to("/dev/stdin")
    with (tmp_path / "tap.log").open("wb") as log:
        tap = subprocess.Popen(
            programs.tap_command(config), stdout=subprocess.PIPE, stderr=log, cwd=tmp_path
        )
        target = subprocess.run(
            [sdk, "-c", READ, *(str(tmp_path / name) for name in ("config.json", "in", "found"))],
            stdin=tap.stdout,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert tap.stdout is not None
        tap.stdout.close()
        assert tap.wait(timeout=300) == 0, (tmp_path / "tap.log").read_text()
    assert target.returncode == 0, target.stderr
    files = sorted((tmp_path / "batches").iterdir())
    assert len(files) == 3
    actual = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    assert [_plain(row) for row in sorted(actual, key=lambda row: row["id"])] == wanted
    [state] = {line for line in target.stdout.splitlines() if line}
    assert json.loads(state)["bookmarks"]["s"] is not None


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of the source, instants in its spelling."""
    at = datetime.fromisoformat(row["at"].replace("Z", "+00:00"))
    return {name: row[name] for name in sources(1)[0]} | {"at": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"}
