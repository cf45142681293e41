"""Sources on S3 through Spark's own S3A, from the real package, beside the same files on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shared.errors import SourceError, SparkStartError
from shared.formats.file_formats import FORMATS
from shared.spark import s3a
from shared.spark.conf import NO_CODE, SparkSettings
from shared.storage.access import StorageOptions, remote
from shared.storage.urls import join
from target_spark.destinations.lakes.lake_table import storage_conf
from target_spark.run_settings import TargetConfig

pytestmark = [pytest.mark.pipe, pytest.mark.costly]

ROOT = Path(__file__).parents[2]
NUMBERS = range(500)
TABLE = pa.table(
    {
        "id": list(NUMBERS),
        "text": [None if n % 5 == 0 else f'é{n},"x"\n' for n in NUMBERS],
        "real": [n / 7 for n in NUMBERS],
    }
)
CASES = [
    ("jsonl", "none"), ("jsonl", "gzip"), ("jsonl", "bzip2"), ("csv", "none"), ("csv", "gzip"),
    ("parquet", "snappy"), ("parquet", "zstd"), ("orc", "zstd"),
]  # fmt: skip


def run(
    program: str,
    folder: Path,
    config: dict[str, Any],
    *command: str,
    messages: Sequence[dict[str, Any]] = (),
    **env: str,
) -> Any:
    (folder / "config.json").write_text(json.dumps(config))
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-m", f"{program}.cli", *command, "--config", str(folder / "config.json")],
        cwd=ROOT,
        input="".join(f"{json.dumps(message)}\n" for message in messages),
        env={**plain, "AWS_EC2_METADATA_DISABLED": "true", **env},
        capture_output=True,
        text=True,
        timeout=500,
    )


def put(url: str, name: str, codec: str, options: StorageOptions) -> None:
    table = TABLE
    if name == "jsonl":
        table = pa.table({"value": [json.dumps(row) + "\n" for row in TABLE.to_pylist()]})
    FORMATS[name].write(url, table.schema, [table], codec, options)


def stream(label: str, name: str, codec: str, folder: str) -> dict[str, Any]:
    ending = FORMATS[name].extension(codec)
    form = {"jsonl": "json"}.get(name, name)
    options = {"multiLine": "true", "escape": '"', "header": "true"} if form == "csv" else {}
    path = join(folder, f"{name} {codec}{ending}")
    return {"name": f"{label}-{name}-{codec}", "format": form, "path": path, "options": options}


def test_same_rows_by_s3a_and_from_disk(server: Any, tmp_path: Path) -> None:
    if server.name == "moto":
        return  # one such session is enough, and the other server checks credentials
    remote, local = server.folder(), str(tmp_path / "local")
    streams = []
    for name, codec in CASES:
        for label, folder in (("s3", remote), ("disk", local)):
            streams.append(stream(label, name, codec, folder))
            put(streams[-1]["path"], name, codec, StorageOptions(server.options))
    events = tmp_path / "events"
    events.mkdir()
    config = {
        "streams": streams,
        "spark": {
            "master": "local[2]",
            "packages": [s3a.PACKAGE],
            "conf": {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}"},
        },
    }
    key, secret = (server.options[f"aws_{name}"] for name in ("access_key_id", "secret_access_key"))
    profile = tmp_path / "credentials"
    profile.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key={secret}\n")
    env = {name: server.environment[name] for name in ("AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")}
    done = run("tap_spark", tmp_path, config, AWS_SHARED_CREDENTIALS_FILE=str(profile), **env)
    if done.returncode == SparkStartError.exit_code and "dependency" in done.stderr:
        pytest.skip(f"{s3a.PACKAGE} cannot be had: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    rows: dict[str, list[Any]] = defaultdict(list)
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["type"] == "RECORD":
            rows[message["stream"]].append(message["record"])
    for name, codec in CASES:
        actual = sorted(rows[f"s3-{name}-{codec}"], key=lambda row: int(row["id"]))
        expected = sorted(rows[f"disk-{name}-{codec}"], key=lambda row: int(row["id"]))
        assert [int(row["id"]) for row in actual] == list(NUMBERS), (name, codec)
        assert actual == expected
    assert secret not in done.stderr
    logs = [path for path in events.rglob("*") if path.is_file()]
    assert logs
    assert not any(secret.encode() in path.read_bytes() for path in logs)


@pytest.mark.parametrize("scheme", ("s3", "s3a"))
def test_without_the_package(scheme: str, tmp_path: Path) -> None:
    config = {
        "streams": [{"name": "s", "format": "parquet", "path": f"{scheme}://b/x"}],
        "spark": {"master": "local[1]"},
    }
    done = run("tap_spark", tmp_path, config)
    assert done.returncode == SourceError.exit_code, done.stderr
    assert "stream 's'" in done.stderr
    assert s3a.PACKAGE in done.stderr


@pytest.mark.parametrize(
    ("method", "path"), (("FULL_TABLE", "a/**/*.csv"), ("INCREMENTAL", "*.csv"))
)
def test_a_bucket_that_does_not_exist_is_named(
    method: str, path: str, server: Any, tmp_path: Path
) -> None:
    place = {"format": "csv", "path": f"s3://no-such-bucket/{path}"}
    config = {"streams": [{"name": "s", **place, "replication_method": method}]}
    done = run("tap_spark", tmp_path, config, **server.environment)
    assert (done.returncode, done.stdout) == (SourceError.exit_code, "")
    line = done.stderr.splitlines()[-1]
    assert "stream 's'" in line
    assert "s3://no-such-bucket/" in line
    assert "bucket" in line
    assert "does not exist" in line


def test_what_sdks_find() -> None:
    plain = s3a.s3a_conf({})
    assert plain["fs.s3.impl"] == s3a.CLASS
    assert "fs.s3a.endpoint" not in plain
    environ = {
        "AWS_ENDPOINT_URL": "http://a",
        "AWS_DEFAULT_REGION": "r",
        "AWS_SECRET_ACCESS_KEY": "hidden",
    }
    conf = s3a.s3a_conf(environ)
    assert conf["fs.s3a.endpoint"] == "http://a"
    assert conf["fs.s3a.path.style.access"] == "true"
    assert conf["fs.s3a.endpoint.region"] == "r"
    assert "hidden" not in str(conf), "Java finds it by itself"
    assert s3a.s3a_conf({**environ, "AWS_ENDPOINT_URL_S3": "b"})["fs.s3a.endpoint"] == "b"


def test_options_of_a_table_as_s3a_has_them() -> None:
    values = {
        "aws_access_key_id": "k",
        "secret": "s",
        "region_name": "r",
        "endpoint_url": "http://e",
    }
    config = TargetConfig(path="s3://b/t", storage_options=values)
    wanted = {
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        "fs.s3a.endpoint.region": "r",
        "fs.s3a.endpoint": "http://e",
        "fs.s3a.path.style.access": "true",
    }
    assert storage_conf(config) == wanted
    own = SparkSettings(conf={"spark.hadoop.fs.s3a.endpoint": "other"})
    del wanted["fs.s3a.endpoint"]
    assert storage_conf(replace(config, spark=own)) == wanted
    assert storage_conf(replace(config, path="/lake")) == {}
    assert storage_conf(replace(config, catalog="lake")) == {}


def test_tables_of_files_are_compared_on_s3(server: Any, tmp_path: Path) -> None:
    settings = {
        "path": server.folder(),
        "storage_options": server.options,
        "streams": {"s": {"load_method": "overwrite"}},
        "spark": {"master": "local[2]", "packages": [s3a.PACKAGE], "conf": {**NO_CODE}},
    }

    def messages(names: str) -> list[dict[str, Any]]:
        columns = {"id": {"type": "integer"}, "name": {"type": "string"}}
        head = {"type": "SCHEMA", "stream": "s", "schema": {"properties": columns}}
        rows = ({"id": number, "name": name} for number, name in enumerate(names))
        records = [{"type": "RECORD", "stream": "s", "record": row} for row in rows]
        return [{**head, "key_properties": ["id"]}, *records]

    loaded = run("target_spark", tmp_path, settings, messages=messages("abcd"))
    assert loaded.returncode == 0, loaded.stderr
    filesystem, inside = remote(settings["path"], StorageOptions(server.options))
    files = filesystem.find(inside)
    compared = run("target_spark", tmp_path, settings, "verify", messages=messages("abX"))
    assert compared.returncode == 14, compared.stderr
    report = json.loads(compared.stdout)
    assert (report["source_rows"], report["table_rows"]) == (3, 4)
    assert "1 changed, 1 vanished" in compared.stderr
    filesystem.invalidate_cache()
    assert filesystem.find(inside) == files, "the table is as it was"
    assert server.options["aws_secret_access_key"] not in compared.stderr
