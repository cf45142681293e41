"""Whole runs of both programs on S3: tap | target, dead letters, and errors a user can act on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pipe_programs import SPARK

from shared.errors import DestinationError, SettingsError
from shared.spark.conf import NO_CODE
from shared.storage.access import StorageOptions, remote
from shared.storage.files import open_input, open_output
from shared.storage.urls import join

pytestmark = [pytest.mark.pipe, pytest.mark.costly]

ROOT = Path(__file__).parents[2]
SCHEMA = {"properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}}
BEGIN = {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []}
ROWS = 300
WRONG = "very-wrong-secret-77"


def environment(**extra: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**plain, "LOGLEVEL": "debug", "AWS_EC2_METADATA_DISABLED": "true", **extra}


def command(program: str, folder: Path, config: dict[str, Any]) -> list[str]:
    path = folder / f"{program}.json"
    path.write_text(json.dumps({"spark": SPARK, **config}))
    return [sys.executable, "-m", f"{program}_spark.cli", "--config", str(path)]


def load(
    folder: Path, config: dict[str, Any], messages: list[Any], *args: str, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command("target", folder, config), *args],
        input="".join(json.dumps(message) + "\n" for message in messages),
        cwd=ROOT,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=300,
    )


def actual(url: str, options: StorageOptions) -> list[str]:
    filesystem, inside = remote(url, options)
    filesystem.invalidate_cache()
    return sorted(filesystem.find(inside)) if filesystem.exists(inside) else []


def rows(url: str, options: StorageOptions) -> list[tuple[int, Any]]:
    filesystem, _ = remote(url, options)
    parts = [name for name in actual(url, options) if name.endswith(".parquet")]
    tables = [pq.read_table(filesystem.open(part)).to_pylist() for part in parts]
    return sorted((row["id"], row["name"]) for table in tables for row in table)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return next(line for line in reversed(done.stderr.splitlines()) if " ERROR " in f" {line} ")


def test_tap_to_target(server: Any, tmp_path: Path) -> None:
    """Rows go from a file through batch files on S3 into a table on S3, files are cleaned up.

    Both programs map them on their way.
    """
    options = StorageOptions(server.options)
    source, table, root = tmp_path / "in.jsonl", server.folder(), server.folder()
    expected = [(n, None if n % 7 == 0 else f'né {n}\n"x"') for n in range(ROWS)]
    lines = [json.dumps({"id": n, "name": name}) + "\n" for n, name in expected]
    source.write_text("".join(lines), encoding="utf-8")
    tap = {
        "streams": [{"name": "s", "format": "json", "path": str(source)}],
        "batch_config": {
            "encoding": {"format": "jsonl", "compression": "zstd"},
            "storage": {"root": root},
            "batch_size": 100,
        },
        "stream_maps": {"s": {"name": "name and name.upper()", "__filter__": "id % 10"}},
    }
    kept = [(n, name and name.upper()) for n, name in expected if n % 10 and n != 5]
    target = {
        "path": table,
        "stream_maps": {"s": {"__filter__": {"sql": "id <> 5"}}},
        "storage_options": server.options,
        "batch_config": {"cleanup": True, "storage": {"root": root, "options": server.options}},
    }
    with (tmp_path / "tap.err").open("w+b") as tap_log:
        first = subprocess.Popen(
            command("tap", tmp_path, tap),
            cwd=ROOT,
            env=environment(**server.environment),
            stdout=subprocess.PIPE,
            stderr=tap_log,
        )
        second = subprocess.run(
            command("target", tmp_path, target),
            stdin=first.stdout,
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert first.stdout is not None
        first.stdout.close()
        assert first.wait(60) == 0, (tmp_path / "tap.err").read_text()
    assert second.returncode == 0, second.stderr
    assert second.stdout.strip(), "STATE comes out"
    json.loads(second.stdout.splitlines()[-1])
    assert rows(join(table, "s"), options) == kept
    assert actual(root, options) == [], "batch files are gone"
    said = second.stderr + second.stdout + (tmp_path / "tap.err").read_text()
    assert server.options["aws_secret_access_key"] not in said
    assert [name for name in actual(table, options) if "/.s.run-" in name] == []


def test_dead_letters_load_again(server: Any, tmp_path: Path) -> None:
    """Dead letters are on S3 and load once the cause is corrected; secrets never appear."""
    options = StorageOptions(server.options)
    table, letters, url = server.folder(), server.folder(), join(server.folder(), "b.jsonl")
    with open_output(url, options=options) as sink:
        sink.write(b'{"id":1,"name":"a"}\n{"id":"two","name":"b"}\n')
    events = tmp_path / "events"
    events.mkdir()
    config = {
        "path": table,
        "storage_options": server.options,
        "batch_config": {"storage": {"root": url, "options": server.options}},
        "engine": "spark",
        "failure": {"policy": "SendToDLQ", "dead_letter_path": letters},
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
        BEGIN,
        {"type": "BATCH", "stream": "s", "encoding": {"format": "jsonl"}, "manifest": [url]},
        {"type": "RECORD", "stream": "s", "record": {"id": "three"}},
        {"type": "RECORD", "stream": "s"},
        {"type": "RECORD", "stream": "s", "record": {"id": 4, "name": "d"}},
        {"type": "STATE", "value": 1},
    ]
    done = load(tmp_path, config, messages)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
    assert rows(join(table, "s"), options) == [(1, "a"), (4, "d")]
    secret = server.options["aws_secret_access_key"]
    assert secret not in done.stderr
    logs = [path for path in events.rglob("*") if path.is_file()]
    assert logs
    assert not any(secret.encode() in path.read_bytes() for path in logs)

    files = actual(letters, options)
    assert len(files) == 2
    texts = []
    for name in files:
        with open_input(f"s3://{name}", options) as source:
            texts.append(bytes(source.read()).decode())
    text = "".join(texts)
    assert text.count('"_sdc_error"') == 2
    mended = tmp_path / "mended.jsonl"
    mended.write_text(text.replace('"two"', "2").replace('"three"', "3"))
    again = load(tmp_path, {**config, "engine": "threads"}, [], "--input", str(mended))
    assert again.returncode == 0, again.stderr
    assert rows(join(table, "s"), options) == [(1, "a"), (2, "b"), (3, None), (4, "d")]
    assert actual(join(table, "sdc_dead_letters"), options)
    assert actual(letters, options) == files, "nothing was left out again"


@pytest.mark.parametrize("where", ("table", "new table", "batch file", "dead letters"))
def test_wrong_secret(where: str, server: Any, tmp_path: Path) -> None:
    """A wrong secret, for any operation, is one line with exit code 2, without a retry."""
    if server.name == "moto":
        return  # it checks no credentials
    options = StorageOptions(server.options)
    url = join(server.folder(), "b.jsonl")
    with open_output(url, options=options) as sink:
        sink.write(b'{"id":1}\n')
    wrong = {**server.options, "aws_secret_access_key": WRONG}
    batch = where == "batch file"
    config: dict[str, Any] = {
        "path": str(tmp_path / "out")
        if where in {"batch file", "dead letters"}
        else server.folder(),
        "storage_options": server.options if batch else wrong,
        "batch_config": {"storage": {"root": url, "options": wrong if batch else server.options}},
        "failure": {"policy": "RetryWithBackoff", "max_retries": 3, "retry_backoff": "30s"},
    }
    if where == "dead letters":
        config["failure"] = {"policy": "SendToDLQ", "dead_letter_path": server.folder()}
    if where == "new table":
        config["load_method"] = "overwrite"
    messages = [
        BEGIN,
        {"type": "RECORD", "stream": "s", "record": {"id": "no" if where == "dead letters" else 1}},
        {"type": "STATE", "value": 1},
    ]
    if batch:
        encoding = {"format": "jsonl"}
        messages[1] = {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": [url]}
    done = load(tmp_path, config, messages)
    line = last_line(done)
    assert done.returncode == SettingsError.exit_code, done.stderr
    assert done.stdout == ""
    assert "s3://" in line
    assert "credentials" in line
    assert WRONG not in done.stderr
    assert "retrying in" not in done.stderr


def test_no_bucket_and_nobody_listens(server: Any, tmp_path: Path, free_port: int) -> None:
    messages = [BEGIN, {"type": "RECORD", "stream": "s", "record": {"id": 1}}]
    config = {"path": "s3://no-such-bucket/t", "storage_options": server.options}
    done = load(tmp_path, config, messages)
    assert done.returncode == SettingsError.exit_code, done.stderr
    assert "s3://no-such-bucket/t" in last_line(done)
    assert "bucket" in last_line(done)
    quick = {"config_kwargs": {"retries": {"max_attempts": 0}}}
    endpoint = f"http://127.0.0.1:{free_port}"
    config = {
        "path": server.folder(),
        "storage_options": {**server.options, "endpoint_url": endpoint, **quick},
        "failure": {"policy": "RetryWithBackoff", "max_retries": 1, "retry_backoff": "100ms"},
    }
    done = load(tmp_path, config, messages)
    assert done.returncode == DestinationError.exit_code, done.stderr
    assert endpoint in last_line(done)
    assert done.stderr.count("retrying in") == 1
