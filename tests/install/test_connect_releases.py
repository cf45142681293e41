"""Both programs with a Spark Connect server of another user, of every supported release.

The server has no disk, no package and no credentials of ours; files are on S3, and the client sends
an environment and drivers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connect_server import (
    connect_server,
    packed,
    public_environments,
    public_python,
    spark_home,
)
from kafka_broker import KafkaBroker
from own_environments import Environment, WheelEnvironments
from postgres_server import PASSWORD, Database
from s3_servers import Server, running

from shared.spark.packages import EXTENSIONS, LAKES
from shared.spark.s3a import CLASS, s3a_options
from shared.spark.spark_release import COMPLETE, LINES, RELEASES
from shared.storage.access import StorageOptions, remote

pytestmark = [pytest.mark.once, pytest.mark.pipe, pytest.mark.slow, pytest.mark.server]
QUERY = (
    "SELECT id, CAST(id AS decimal(20,3)) / 8 AS part, array(id) AS list, "
    "timestamp'2020-02-03 04:05:06.789' AS at FROM range({})"
)
STREAM = {"name": "rows", "format": "sql", "query": QUERY.format(5), "key_properties": ["id"]}
MORE = {**STREAM, "query": QUERY.format(9)}
EXTRAS = ("connect", "postgresql")
CATALOG = "spark.sql.catalog.lake"
S3A = {
    "spark.hadoop.fs.s3.impl": CLASS,
    # versitygw does not remove folders that have files, as earlier releases ask for.
    "spark.hadoop.fs.s3a.directory.marker.retention": "keep",
}


READ_NOTE = """
import json, sys
from pathlib import Path
from shared.spark.conf import SparkSettings
from shared.spark.session import start_session

def read(batches):
    import pyarrow as pa
    import target_spark
    from pyspark import SparkFiles
    text = Path(SparkFiles.get("note.txt")).read_text()
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"text": [f"{text} {'.zip' in target_spark.__file__}"]})

url, conf = sys.argv[1:]
session = start_session(SparkSettings(remote=url, conf=json.loads(conf)))
print(session.range(1, numPartitions=1).mapInArrow(read, "text string").collect()[0][0])
"""

COUNT_ROWS = """
import json, sys
from shared.spark.conf import SparkSettings
from shared.spark.session import start_session

url, place, *confs = sys.argv[1:]
for conf in confs:
    session = start_session(SparkSettings(remote=url, conf=json.loads(conf)))
    print(session.read.parquet(place).count())
"""


@pytest.fixture(scope="module")
def public(environments: WheelEnvironments) -> Iterator[WheelEnvironments]:
    with public_environments(environments.wheel) as actual:
        yield actual


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
    """

    own: Environment
    line: str
    spark: dict[str, Any]
    s3: Server
    folder: Path

    def command(self, program: str, settings: dict[str, Any]) -> tuple[str, ...]:
        """Write settings; return the command that takes them."""
        name = f"{program}-{len(list(self.folder.iterdir()))}.json"
        (self.folder / name).write_text(json.dumps({"spark": self.spark, **settings}))
        return (program, "--config", name)

    def with_spark(self, **changes: Any) -> Client:
        """Return a client with another `spark` block."""
        conf = {**self.spark["conf"], **changes.pop("conf", {})}
        return replace(self, spark={**self.spark, "conf": conf, **changes})

    def sent(self, stream: dict[str, Any], **settings: Any) -> bytes:
        """Return what the tap sends of a stream."""
        command = self.command("tap-spark", {"streams": [stream], **settings})
        return self.own.result(self.folder, *command)

    def into(self, root: str, **settings: Any) -> dict[str, Any]:
        """Return settings of the target."""
        return {
            "engine": "spark",
            "storage_options": self.s3.options,
            "staging": {"root": f"{root}/staging"},
            "batch_config": {"storage": {"options": self.s3.options}},
            **({"path": root} if settings.keys().isdisjoint({"catalog", "jdbc"}) else {}),
            **settings,
        }

    def loaded(self, messages: bytes, settings: dict[str, Any]) -> None:
        """Load messages."""
        command = self.command("target-spark", settings)
        states = self.own.result(self.folder, *command, stdin=messages)
        assert "rows" in json.loads(states.splitlines()[-1])["bookmarks"]

    def refusal(self, program: str, settings: dict[str, Any], messages: bytes = b"") -> str:
        """Return the one line of a program that must fail, and must neither send nor load."""
        ended = self.own.run(self.folder, *self.command(program, settings), stdin=messages)
        assert (ended.returncode > 0, ended.stdout) == (True, b""), ended.stderr.decode()
        [line] = [text for text in ended.stderr.decode().splitlines() if "| ERROR" in text]
        return line

    def ids(self, root: str) -> list[int]:
        """Return the keys of a table of Parquet files, sorted."""
        filesystem, path = remote(root, StorageOptions(self.s3.options))
        parts = [part for part in filesystem.find(path) if part.endswith(".parquet")]
        rows = [row for part in parts for row in pq.read_table(filesystem.open(part))["id"]]
        return sorted(row.as_py() for row in rows)

    def has(self, form: str) -> bool:
        """Return whether a format has a package for the release."""
        return form in RELEASES[self.line].packages


@pytest.fixture(scope="module", params=LINES)
def client(
    request: pytest.FixtureRequest,
    public: WheelEnvironments,
    s3: Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Client]:
    line = str(request.param)
    own = public.of(*EXTRAS, python=public_python(), spark=line)
    names = [name for name in ("s3", "kafka", *LAKES) if name in RELEASES[line].packages]
    jars, folder = public.folder / f"jars-{line}", tmp_path_factory.mktemp("client")
    for place, packages in ((jars, names), (folder / "driver", ["postgresql"])):
        own.result(folder, "python", "-m", "shared.spark.bake_packages", str(place), *packages)
    lakes = [LAKES[name] for name in names if name in LAKES]
    conf = {
        **{name: text for lake in lakes for name, text in lake.conf.items()},
        **({EXTENSIONS: ",".join(lake.extensions for lake in lakes)} if lakes else {}),
        **S3A,
    }
    sent = {
        "spark.archives": f"{packed(public)}#environment",
        "spark.pyspark.python": "environment/bin/python",
        **{f"spark.hadoop.{name}": text for name, text in s3a_options(s3.options).items()},
    }
    with connect_server(spark_home(own.programs), line, [*jars.glob("*.jar")], conf) as url:
        yield Client(own, line, {"remote": url, "conf": sent}, s3, folder)


def records(messages: bytes) -> list[dict[str, Any]]:
    """Return the records of the stream without their metadata, by their key."""
    lines = map(json.loads, messages.splitlines())
    own = (line for line in lines if line["type"] == "RECORD" and line["stream"] == "rows")
    rows = [line["record"] for line in own]
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
    for supplied, name in ((messages, "records"), (files, "files")):
        client.loaded(supplied, client.into(f"{root}/{name}"))
        assert client.ids(f"{root}/{name}") == list(range(5)), name


def test_modules_and_other_files(client: Client, public: WheelEnvironments) -> None:
    """The environment has all but this package, which comes as a zip file, beside a text."""
    names = ("shared", "tap_spark", "target_spark")
    package, note = client.folder / "package.zip", client.folder / "note.txt"
    shutil.copy(public.wheel, package)
    note.write_text("sent")
    archive = f"{packed(public, *names)}#environment"
    modules = {"spark.submit.pyFiles": str(package), "spark.files": str(note)}
    own = client.with_spark(conf={"spark.archives": archive, **modules})
    root = client.s3.folder()
    own.loaded(client.sent(STREAM), client.into(root))
    assert client.ids(root) == list(range(5))
    script = client.folder / "read_note.py"
    script.write_text(READ_NOTE)
    settings = (own.spark["remote"], json.dumps(own.spark["conf"]))
    assert own.own.result(client.folder, "python", str(script), *settings) == b"sent True\n"


@pytest.mark.parametrize("form", LAKES)
def test_lakes(client: Client, form: str) -> None:
    root = client.s3.folder()
    settings = client.into(root, format=form, load_method="upsert")
    table = {"name": "rows", "format": form, "path": f"{root}/rows"}
    if not client.has(form):
        for program, supplied in (("target-spark", settings), ("tap-spark", {"streams": [table]})):
            text = client.refusal(program, supplied, client.sent(STREAM))
            assert f"'{form}' has no package for Spark {client.line}" in text
        return
    for stream in (STREAM, MORE):
        client.loaded(client.sent(stream), settings)
    check(records(client.sent(table)), 9)
    if form == "iceberg":
        _load_and_read_in_a_catalog(client)


def _load_and_read_in_a_catalog(client: Client) -> None:
    """Name a catalog that the settings of the client have, and the server does not."""
    catalog = {
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "hadoop",
        f"{CATALOG}.warehouse": client.s3.folder(),
    }
    own = client.with_spark(conf=catalog)
    root = client.s3.folder()
    settings = client.into(root, format="iceberg", load_method="upsert", catalog="lake")
    for stream in (STREAM, MORE):
        own.loaded(client.sent(stream), settings)
    table = {"name": "rows", "format": "iceberg", "table": "lake.default.rows"}
    check(records(own.sent(table)), 9)


def test_databases(client: Client, postgres: Database) -> None:
    place = {"url": postgres.url, "user": "postgres", "password": PASSWORD}
    client.loaded(client.sent(MORE), client.into(client.s3.folder(), format="jdbc", jdbc=place))
    table = {"name": "rows", "format": "jdbc", "connection": "db", "table": "public.rows"}
    tap = {"streams": [table], "connections": [{"name": "db", **place}]}
    text = client.refusal("tap-spark", tap)
    assert "driver org.postgresql.Driver is not installed" in text
    assert "'spark.jars', the only one that Spark Connect sends" in text
    own = client.with_spark(jars=[*map(str, (client.folder / "driver").glob("*.jar"))])
    for _ in range(2):  # each run sends it, and takes it away with its session
        rows = records(own.sent(table, connections=tap["connections"]))
        assert [(row["id"], float(row["part"])) for row in rows] == [(n, n / 8) for n in range(9)]
    postgres.run("drop table rows")


def test_topics(client: Client, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, [({"id": n}, {"id": n, "name": f"n{n}"}) for n in range(3)])
    stream = {"name": "rows", "format": "kafka", "connection": "k", "topic": topic}
    connections = [kafka.connection(name="k")]
    if client.has("kafka"):
        rows = records(client.sent(stream, connections=connections))
        assert [row["name"] for row in rows] == ["n0", "n1", "n2"]
        return
    text = client.refusal("tap-spark", {"streams": [stream], "connections": connections})
    assert f"'kafka' has no package for Spark {client.line}" in text


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
        assert client.ids(root) == list(range(9))


def test_refusals(client: Client, public: WheelEnvironments) -> None:
    messages, target = client.sent(STREAM), client.into(client.s3.folder())
    bare = {**target, "spark": {"remote": client.spark["remote"]}}
    text = client.refusal("target-spark", bare, messages)
    assert "ModuleNotFoundError: No module named" in text
    assert "need this Python version and its packages" in text
    text = client.refusal("target-spark", {**target, "staging": {}}, messages)
    assert "setting 'staging.root': is required" in text
    if client.line != COMPLETE:
        other = public.of(*EXTRAS, python=public_python(), spark=COMPLETE)
        text = replace(client, own=other).refusal("target-spark", target, messages)
        assert f"has Spark {client.line}." in text
        assert f"pip install 'pyspark=={client.line}.*'" in text


def test_s3a_serves_a_session_by_the_credentials_of_another(client: Client) -> None:
    """What docs/clusters.md warns of: Hadoop keeps its clients by bucket alone."""
    place = f"{client.s3.folder()}/rows.parquet"
    filesystem, path = remote(place, StorageOptions(client.s3.options))
    with filesystem.open(path, "wb") as file:
        pq.write_table(pa.table({"id": [1, 2, 3]}), file)
    right = client.spark["conf"]
    wrong = {**right, "spark.hadoop.fs.s3a.secret.key": "wrong"}
    confs = [json.dumps(conf) for conf in (right, wrong)]
    command = ("python", "-c", COUNT_ROWS, client.spark["remote"], place, *confs)
    assert client.own.result(client.folder, *command).split() == [b"3", b"3"]
