"""target-spark with batch files and tables on S3: whole runs, one for each server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from engines import IdleSpark, threads
from whole_runs import run_target

from shared.formats.file_formats import FORMATS
from shared.spark.conf import NO_CODE
from shared.storage.access import StorageOptions, remote
from shared.storage.files import open_output
from shared.storage.urls import join
from target_spark.config import target_config
from target_spark.load.loader import Loader

pytestmark = [pytest.mark.pipe, pytest.mark.costly]

ROOT = Path(__file__).parents[2]
SCHEMA = {"properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}}
BEGIN = {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []}
ROWS = pa.table({"id": [1, 2], "name": ["a", None]})


def run(config: dict[str, Any], messages: list[Any], folder: Path, **env: str) -> Any:
    (folder / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "target_spark.cli", "--config", str(folder / "config.json")]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        command,
        input="".join(json.dumps(message) + "\n" for message in messages),
        cwd=ROOT,
        env={**plain, "LOGLEVEL": "debug", "AWS_EC2_METADATA_DISABLED": "true", **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


def batch(encoding: dict[str, Any], *urls: str) -> dict[str, Any]:
    return {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": list(urls)}


def files_of(url: str, options: StorageOptions) -> list[str]:
    filesystem, inside = remote(url, options)
    filesystem.invalidate_cache()
    return sorted(filesystem.find(inside)) if filesystem.exists(inside) else []


def test_files_and_table_on_s3(server: Any, tmp_path: Path) -> None:
    options = StorageOptions(server.options)
    source, table = server.folder(), server.folder()
    FORMATS["parquet"].write(join(source, "a"), ROWS.schema, [ROWS], "zstd", options)
    FORMATS["arrow"].write(join(source, "c"), ROWS.schema, [ROWS], "lz4", options)
    with open_output(join(source, "b.json.gz"), "gzip", options) as sink:
        sink.write(b'{"id":3,"name":"c"}\n')
    messages = [
        {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []},
        batch({"format": "parquet", "compression": "zstd"}, join(source, "a")),
        batch({"format": "arrow"}, join(source, "c")),
        batch({"format": "jsonl", "compression": "gzip", "odd": 1}, join(source, "b.json.gz")),
        {"type": "RECORD", "stream": "s", "record": {"id": 4, "name": "d"}},
        {"type": "STATE", "value": {"at": 4}},
    ]
    config = {
        "path": table,
        "batch_config": {"cleanup": True, "allowed_roots": [source]},
        "spark": {"master": "local[2]", "conf": {**NO_CODE}},
    }
    done = run(config, messages, tmp_path, **server.environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"at": 4}
    secret = server.environment["AWS_SECRET_ACCESS_KEY"]
    assert secret not in done.stderr + done.stdout
    filesystem, inside = remote(join(table, "s"), options)
    parts = [name for name in files_of(table, options) if name.endswith(".parquet")]
    actual = [row for part in parts for row in pq.read_table(filesystem.open(part)).to_pylist()]
    assert sorted((row["id"], row["name"]) for row in actual) == [
        (1, "a"), (1, "a"), (2, None), (2, None), (3, "c"), (4, "d"),
    ]  # fmt: skip
    assert all(part.startswith(f"{inside}/part-") for part in parts)
    assert files_of(source, options) == [], "consumed files are gone"
    hidden = [name for name in files_of(table, options) if "/.s.run-" in name]
    assert hidden == []


@pytest.mark.parametrize("size", [2, 9_000_000], ids=["one-part", "parts"])
def test_files_that_a_rerun_writes_anew_are_replays(server: Any, tmp_path: Path, size: int) -> None:
    """The same content has another name in each run; other content of the same size is loaded."""
    options, folder = StorageOptions(server.options), server.folder()
    config = {"path": str(tmp_path), "format": "delta", "storage_options": server.options}
    config["batch_config"] = {"storage": {"root": folder, "options": server.options}}
    config["add_record_metadata"] = False

    def load(run_name: str, letters: str, *end: dict[str, Any]) -> list[int]:
        messages: list[dict[str, Any]] = [{**BEGIN, "bookmark_properties": ["id"]}]
        for number, letter in enumerate(letters):
            url = join(folder, f"{run_name}-{number}")
            with open_output(url, options=options) as sink:
                sink.write(json.dumps({"id": number, "name": letter * size}).encode() + b"\n")
            messages.append(batch({"format": "jsonl"}, url))
        settings = target_config(config)
        engine = threads(IdleSpark())
        run_target(settings, Loader(settings, engine), tmp_path, [*messages, *end], engine)
        return sorted(DeltaTable(str(tmp_path / "s")).to_pyarrow_table()["id"].to_pylist())

    assert load("killed", "ab") == [0, 1]
    assert load("rerun", "ab") == [0, 1]
    assert load("other", "ac", {"type": "STATE", "value": {"at": 2}}) == [0, 1, 1]


def test_options_reach_executors_and_nothing_else(server: Any, tmp_path: Path) -> None:
    options = StorageOptions(server.options)
    url = join(server.folder(), "x.json")
    with open_output(url, options=options) as sink:
        sink.write(b'{"id":1}\n{"id":"x"}\n')
    events = tmp_path / "events"
    events.mkdir()
    config = {
        "path": str(tmp_path / "out"),
        "batch_config": {"storage": {"root": url.rpartition("/")[0], "options": server.options}},
        "engine": "spark",
        "failure": {"policy": "LogAndContinue"},
        "spark": {
            "master": "local[2]",
            "conf": {
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": f"file://{events}",
                **NO_CODE,
            },
        },
    }
    messages = [
        {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []},
        batch({"format": "jsonl"}, url),
    ]
    done = run(config, messages, tmp_path)
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "out" / "s")["id"].to_pylist() == [1]
    secret = server.options["aws_secret_access_key"]
    assert secret not in done.stderr
    logs = [path for path in events.rglob("*") if path.is_file()]
    assert logs
    assert not any(secret.encode() in path.read_bytes() for path in logs)
    missing = run(config, [messages[0], batch({"format": "jsonl"}, f"{url}.not")], tmp_path)
    assert missing.returncode != 0
    line = missing.stderr.strip().splitlines()[-1]
    assert "x.json.not" in missing.stderr
    assert secret not in missing.stderr, line
