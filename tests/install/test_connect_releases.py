"""Both programs with a Spark Connect server of another user, of every supported release.

The server has no disk and no package of ours; files are on S3, and the client sends an environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from connect_server import (
    connect_server,
    packed,
    public_environments,
    public_python,
    spark_home,
)
from own_environments import Environment, WheelEnvironments
from s3_servers import Server, running

from shared.spark.spark_release import COMPLETE, LINES
from shared.storage.files import StorageOptions, remote

pytestmark = [pytest.mark.once, pytest.mark.pipe, pytest.mark.slow, pytest.mark.server]
QUERY = (
    "SELECT id, CAST(id AS decimal(20,3)) / 8 AS part, array(id) AS list, "
    "timestamp'2020-02-03 04:05:06.789' AS at FROM range(5)"
)
STREAM = {"name": "rows", "format": "sql", "query": QUERY, "key_properties": ["id"]}


@pytest.fixture(scope="module")
def public(environments: WheelEnvironments) -> Iterator[WheelEnvironments]:
    with public_environments(environments.wheel) as found:
        yield found


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("versitygw", tmp_path_factory.mktemp("s3")) as server:
        yield server


def command(folder: Path, program: str, settings: dict[str, Any]) -> tuple[str, ...]:
    (folder / f"{program}.json").write_text(json.dumps(settings))
    return (program, "--config", f"{program}.json")


def refusal(own: Environment, folder: Path, messages: bytes, settings: dict[str, Any]) -> str:
    """Return the one line of a target that must fail, and must load nothing."""
    ended = own.run(folder, *command(folder, "target-spark", settings), stdin=messages)
    assert (ended.returncode > 0, ended.stdout) == (True, b""), ended.stderr.decode()
    [line] = [text for text in ended.stderr.decode().splitlines() if "| ERROR" in text]
    return line


@pytest.mark.parametrize("line", LINES)
def test_connect(public: WheelEnvironments, s3: Server, line: str, tmp_path: Path) -> None:
    own = public.of("connect", python=public_python(), spark=line)
    root = s3.folder()
    with connect_server(spark_home(own.programs), line) as url:
        conf = {
            "spark.archives": f"{packed(public)}#environment",
            "spark.pyspark.python": "environment/bin/python",
        }
        spark = {"remote": url, "conf": conf}
        tap: dict[str, Any] = {"streams": [STREAM], "spark": spark}
        messages = own.result(tmp_path, *command(tmp_path, "tap-spark", tap))
        lines = [json.loads(text) for text in messages.splitlines()]
        rows = sorted((m["record"] for m in lines if m["type"] == "RECORD"), key=lambda r: r["id"])
        assert [(r["id"], float(r["part"]), r["list"]) for r in rows] == [
            (n, n / 8, [n]) for n in range(5)
        ]
        assert {row["at"] for row in rows} == {"2020-02-03T04:05:06.789000+00:00"}

        storage = {"root": f"{root}/batches", "options": s3.options}
        batch = {"encoding": {"format": "jsonl"}, "storage": storage, "batch_size": 2}
        files = own.result(
            tmp_path, *command(tmp_path, "tap-spark", {**tap, "batch_config": batch})
        )
        target: dict[str, Any] = {
            "engine": "spark",
            "spark": spark,
            "path": f"{root}/records",
            "storage_options": s3.options,
            "staging": {"root": f"{root}/staging"},
            "batch_config": {"storage": {"options": s3.options}},
        }
        for given, name in ((messages, "records"), (files, "files")):
            settings = {**target, "path": f"{root}/{name}"}
            states = own.result(tmp_path, *command(tmp_path, "target-spark", settings), stdin=given)
            assert "rows" in json.loads(states.splitlines()[-1])["bookmarks"]
            filesystem, path = remote(settings["path"], StorageOptions(s3.options))
            parts = [part for part in filesystem.find(path) if part.endswith(".parquet")]
            loaded = [row for part in parts for row in pq.read_table(filesystem.open(part))["id"]]
            assert sorted(row.as_py() for row in loaded) == list(range(5)), name

        text = refusal(own, tmp_path, messages, {**target, "spark": {"remote": url}})
        assert "ModuleNotFoundError: No module named" in text
        assert "need this Python version and its packages" in text
        text = refusal(own, tmp_path, messages, {**target, "staging": {}})
        assert "setting 'staging.root': is required" in text
        if line != COMPLETE:
            other = public.of("connect", python=public_python(), spark=COMPLETE)
            text = refusal(other, tmp_path, messages, target)
            assert f"has Spark {line}." in text
            assert f"pip install 'pyspark=={line}.*'" in text
