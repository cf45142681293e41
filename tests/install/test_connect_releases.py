"""Both programs with a Spark Connect server of another user, of every supported release.

The server has no disk and no package of ours; files are on S3, and the client sends an environment.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
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

from shared.spark.packages import LAKES
from shared.spark.spark_release import COMPLETE, LINES, RELEASES
from shared.storage.files import StorageOptions, remote

pytestmark = [pytest.mark.once, pytest.mark.pipe, pytest.mark.slow, pytest.mark.server]
QUERY = (
    "SELECT id, CAST(id AS decimal(20,3)) / 8 AS part, array(id) AS list, "
    "timestamp'2020-02-03 04:05:06.789' AS at FROM range({})"
)
STREAM = {"name": "rows", "format": "sql", "query": QUERY.format(5), "key_properties": ["id"]}
MORE = {**STREAM, "query": QUERY.format(9)}


@pytest.fixture(scope="module")
def public(environments: WheelEnvironments) -> Iterator[WheelEnvironments]:
    with public_environments(environments.wheel) as found:
        yield found


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("versitygw", tmp_path_factory.mktemp("s3")) as server:
        yield server


@dataclass(frozen=True)
class Client:
    """An environment of a release, and a server of the same.

    Attributes:
        own: The environment.
        line: The release.
        spark: The `spark` block of both programs.
        s3: Has the files.
        folder: For settings.
        jars: What the server has loaded.
    """

    own: Environment
    line: str
    spark: dict[str, Any]
    s3: Server
    folder: Path
    jars: Path

    def command(self, program: str, settings: dict[str, Any]) -> tuple[str, ...]:
        name = f"{program}-{len(list(self.folder.iterdir()))}.json"
        (self.folder / name).write_text(json.dumps({"spark": self.spark, **settings}))
        return (program, "--config", name)

    def sent(self, stream: dict[str, Any], **settings: Any) -> bytes:
        """Return what the tap sends of a stream."""
        command = self.command("tap-spark", {"streams": [stream], **settings})
        return self.own.result(self.folder, *command)

    def into(self, root: str, **settings: Any) -> dict[str, Any]:
        """Return settings of the target."""
        return {
            "engine": "spark",
            "path": root,
            "storage_options": self.s3.options,
            "staging": {"root": f"{root}/staging"},
            "batch_config": {"storage": {"options": self.s3.options}},
            **settings,
        }

    def loaded(self, messages: bytes, settings: dict[str, Any]) -> None:
        """Load messages."""
        command = self.command("target-spark", settings)
        states = self.own.result(self.folder, *command, stdin=messages)
        assert "rows" in json.loads(states.splitlines()[-1])["bookmarks"]

    def refusal(self, messages: bytes, settings: dict[str, Any]) -> str:
        """Return the one line of a target that must fail, and must load nothing."""
        command = self.command("target-spark", settings)
        ended = self.own.run(self.folder, *command, stdin=messages)
        assert (ended.returncode > 0, ended.stdout) == (True, b""), ended.stderr.decode()
        [line] = [text for text in ended.stderr.decode().splitlines() if "| ERROR" in text]
        return line


@pytest.fixture(scope="module", params=LINES)
def client(
    request: pytest.FixtureRequest,
    public: WheelEnvironments,
    s3: Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Client]:
    line = str(request.param)
    own = public.of("connect", python=public_python(), spark=line)
    names = ["s3", *(LAKES.keys() & RELEASES[line].packages.keys())]
    jars, folder = public.folder / f"jars-{line}", tmp_path_factory.mktemp("client")
    own.result(folder, "python", "-m", "shared.spark.bake_packages", str(jars), *names)
    lakes = [LAKES[name] for name in names[1:]]
    hadoop = "spark.hadoop.fs.s3"
    conf = {
        **{name: text for lake in lakes for name, text in lake.conf.items()},
        f"{hadoop}.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        f"{hadoop}a.endpoint": s3.endpoint,
        f"{hadoop}a.path.style.access": "true",
        f"{hadoop}a.access.key": s3.options["aws_access_key_id"],
        f"{hadoop}a.secret.key": s3.options["aws_secret_access_key"],
    }
    if lakes:
        conf["spark.sql.extensions"] = ",".join(lake.extensions for lake in lakes)
    sent = {
        "spark.archives": f"{packed(public)}#environment",
        "spark.pyspark.python": "environment/bin/python",
    }
    with connect_server(spark_home(own.programs), line, [*jars.glob("*.jar")], conf) as url:
        yield Client(own, line, {"remote": url, "conf": sent}, s3, folder, jars)


def records(messages: bytes) -> list[dict[str, Any]]:
    """Return the records without their metadata, by their key."""
    lines = [json.loads(text) for text in messages.splitlines()]
    rows = [message["record"] for message in lines if message["type"] == "RECORD"]
    kept = [{name: row[name] for name in row if name[:4] != "_sdc"} for row in rows]
    return sorted(kept, key=lambda row: int(row["id"]))


def check(rows: list[dict[str, Any]], count: int) -> None:
    assert [(row["id"], float(row["part"]), row["list"]) for row in rows] == [
        (n, n / 8, [n]) for n in range(count)
    ]
    assert {row["at"] for row in rows} == {"2020-02-03T04:05:06.789000+00:00"}


def test_records_and_files(client: Client) -> None:
    root, options = client.s3.folder(), client.s3.options
    messages = client.sent(STREAM)
    check(records(messages), 5)
    storage = {"root": f"{root}/batches", "options": options}
    batch = {"encoding": {"format": "jsonl"}, "storage": storage, "batch_size": 2}
    files = client.sent(STREAM, batch_config=batch)
    for given, name in ((messages, "records"), (files, "files")):
        client.loaded(given, client.into(f"{root}/{name}"))
        filesystem, path = remote(f"{root}/{name}", StorageOptions(options))
        parts = [part for part in filesystem.find(path) if part.endswith(".parquet")]
        loaded = [row for part in parts for row in pq.read_table(filesystem.open(part))["id"]]
        assert sorted(row.as_py() for row in loaded) == list(range(5)), name


@pytest.mark.parametrize("form", LAKES)
def test_lakes(client: Client, form: str) -> None:
    root = client.s3.folder()
    settings = client.into(root, format=form, load_method="upsert")
    if form not in RELEASES[client.line].packages:
        pytest.skip("it has no package for this release")
    for stream in (STREAM, MORE):
        client.loaded(client.sent(stream), settings)
    if form == "delta":
        check(records(client.sent({"name": "rows", "format": form, "path": f"{root}/rows"})), 9)


def test_two_clients(client: Client) -> None:
    roots = [client.s3.folder(), client.s3.folder()]
    messages = client.sent(MORE)
    commands = [client.command("target-spark", client.into(root)) for root in roots]
    running = [
        subprocess.Popen(
            [client.own.programs / command[0], *command[1:]],
            cwd=client.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for command in commands
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write(messages)
        process.stdin.close()
    for process, root in zip(running, roots, strict=True):
        assert process.stdout is not None
        assert b"rows" in process.stdout.read()
        assert process.wait() == 0
        filesystem, path = remote(root, StorageOptions(client.s3.options))
        parts = [part for part in filesystem.find(path) if part.endswith(".parquet")]
        assert sum(pq.read_metadata(filesystem.open(part)).num_rows for part in parts) == 9


def test_refusals(client: Client, public: WheelEnvironments) -> None:
    messages, target = client.sent(STREAM), client.into(client.s3.folder())
    text = client.refusal(messages, {**target, "spark": {"remote": client.spark["remote"]}})
    assert "ModuleNotFoundError: No module named" in text
    assert "need this Python version and its packages" in text
    text = client.refusal(messages, {**target, "staging": {}})
    assert "setting 'staging.root': is required" in text
    if client.line != COMPLETE:
        other = public.of("connect", python=public_python(), spark=COMPLETE)
        text = Client(**{**vars(client), "own": other}).refusal(messages, target)
        assert f"has Spark {client.line}." in text
        assert f"pip install 'pyspark=={client.line}.*'" in text
