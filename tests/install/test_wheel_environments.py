"""The wheel in environments that hold nothing else: what each extra promises works."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from http_receiver import receiving
from mysql_servers import PASSWORD as MYSQL_PASSWORD
from own_environments import EXTRAS, Environment, WheelEnvironments, python_of_version
from pipe_programs import SPARK
from postgres_server import PASSWORD, Database
from pyarrow import dataset, parquet
from tutorial_pages import run_script

if TYPE_CHECKING:
    from kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.once, pytest.mark.pipe, pytest.mark.costly]
NUMBERS = {"name": "numbers", "format": "sql", "query": "SELECT id, id / 2 AS half FROM range(3)"}
"""A stream that only Spark reads."""
SMALL = {"name": "numbers", "format": "csv", "path": "numbers.csv"}
"""A stream of a file, which needs no Spark."""
SMALL_EXTRAS = ("avro", "faker", "mysql", "opentelemetry", "postgresql", "testing")
"""Extras of one environment: none of them brings what another one promises."""
TURN = os.environ.get("SINGER_SPARK_OTHER_PYTHON", "3.13")
"""Of the oldest and the newest Python, the one that `.ci/run` has the turn of today."""
HALVES = [(0, 0.0), (1, 0.5), (2, 1.0)]
SCHEMA = {"properties": {"id": {"type": "integer"}, "half": {"type": "number"}}}
MESSAGES = b"".join(
    json.dumps(message).encode() + b"\n"
    for message in (
        {"type": "SCHEMA", "stream": "numbers", "schema": SCHEMA, "key_properties": []},
        *(
            {"type": "RECORD", "stream": "numbers", "record": {"id": number, "half": half}}
            for number, half in HALVES
        ),
        {"type": "STATE", "value": {"bookmarks": {"numbers": {}}}},
    )
)
PYTHON_SOURCE = """
from pyspark.sql.datasource import DataSource, DataSourceReader

class Halves(DataSource):
    @classmethod
    def name(cls):
        return "halves"
    def schema(self):
        return "id int, half double"
    def reader(self, schema):
        return Rows()

class Rows(DataSourceReader):
    def read(self, partition):
        yield from [(0, 0.0), (1, 0.5), (2, 1.0)]
"""
SUITE = """
from shared.formats.file_formats import FORMATS
from shared.testing import EncodingSuite

class TestParquet(EncodingSuite):
    form = FORMATS["parquet"]
"""


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    """Write the file of `SMALL`."""
    (tmp_path / "numbers.csv").write_text("id,half\n0,0.0\n1,0.5\n2,1.0\n")
    return SMALL


def settings(folder: Path, name: str, **values: Any) -> str:
    """Write settings of a program, with a small Spark; return the name of their file."""
    (folder / name).write_text(json.dumps({"spark": SPARK, **values}))
    return name


def read(environment: Environment, folder: Path, *streams: dict[str, Any], **values: Any) -> bytes:
    """Return what the tap sends."""
    config = settings(folder, "tap.json", streams=streams, **values)
    return environment.result(folder, "tap-spark", "--config", config)


def load(
    environment: Environment,
    folder: Path,
    messages: bytes,
    *,
    engine: str = "spark",
    **values: Any,
) -> None:
    """Load messages."""
    config = settings(folder, "target.json", engine=engine, **values)
    states = environment.result(folder, "target-spark", "--config", config, stdin=messages)
    assert json.loads(states.splitlines()[-1])["bookmarks"].keys() == {"numbers"}


def halves(messages: bytes, stream: str = "numbers") -> list[tuple[int, float]]:
    """Return the rows of a stream."""
    sent = map(json.loads, messages.splitlines())
    records = [one["record"] for one in sent if one["type"] == "RECORD" and one["stream"] == stream]
    return sorted((int(row["id"]), float(row["half"])) for row in records)


def pythons(*values: tuple[str, ...]) -> list[Any]:
    """Return parameters that begin with a version of Python; those without a turn are slow."""
    return [pytest.param(*v, marks=[] if v[0] == TURN else [pytest.mark.slow]) for v in values]


@pytest.mark.parametrize(
    ("version", "form"),
    # All other tests run on the Python between them.
    pythons(("3.10", "json"), ("3.11", "orc"), ("3.13", "csv")),
)
def test_bare_install_reads_and_loads_by_spark(
    environments: WheelEnvironments, tmp_path: Path, version: str, form: str
) -> None:
    bare = environments.of(python=python_of_version(version))
    messages = read(bare, tmp_path, NUMBERS)
    assert halves(messages) == HALVES
    load(bare, tmp_path, messages, format=form, path="loaded")
    folder = str(tmp_path / "loaded" / "numbers")
    table = dataset.dataset(folder, format=form).to_table().sort_by("id")
    assert [(row["id"], row["half"]) for row in table.to_pylist()] == HALVES


@pytest.mark.server
@pytest.mark.parametrize("version", pythons(("3.10",), ("3.13",)))
def test_every_extra_on_the_oldest_and_the_newest_python(
    environments: WheelEnvironments,
    tmp_path: Path,
    postgres: Database,
    mariadb_server: Any,
    small: dict[str, Any],
    version: str,
) -> None:
    """What an extra brings differs by Python; how Spark uses it does not."""
    every = environments.of(*EXTRAS, python=python_of_version(version))
    jdbc = {"url": postgres.url, "user": "postgres", "password": PASSWORD}
    maria = {"url": mariadb_server.url(), "user": "tester", "password": MYSQL_PASSWORD}
    # The databases are those of all tests.
    own = f"of_{version.replace('.', '_')}"
    place = {"streams": {"numbers": {"table": own}}}
    for values in (
        {"format": "delta", "path": "delta"},
        {"format": "jdbc", "jdbc": jdbc, **place},
        {"format": "jdbc", "jdbc": maria, **place},
    ):
        load(every, tmp_path, MESSAGES, engine="threads", **values)
    rows = DeltaTable(tmp_path / "delta" / "numbers").to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["half"]) for row in rows] == HALVES
    assert postgres.value(f"select sum(id + half) from {own}") == "4.5"
    assert mariadb_server.run(f"select sum(id + half) from {own}").strip() == "4.5"
    encoding = {"format": "avro", "compression": "zstd"}
    batch = {"encoding": encoding, "storage": {"root": str(tmp_path / "batches")}}
    read(every, tmp_path, small, batch_config=batch, engine="threads")
    assert list((tmp_path / "batches").iterdir())
    names = "deltalake faker fastavro grpc opentelemetry.sdk pandas pyiceberg pymysql psycopg"
    assert every.result(tmp_path, "python", "-c", f"import {', '.join(names.split())}") == b""


LOADS = [
    # The recipes of README.md load Delta by Spark.
    pytest.param((), {"format": "iceberg", "path": "loaded"}, marks=pytest.mark.slow),
    pytest.param(("delta",), {"format": "delta", "path": "loaded"}, marks=pytest.mark.slow),
    (("iceberg",), {"format": "iceberg", "path": "loaded"}),
]


@pytest.mark.parametrize(("extras", "values"), LOADS)
def test_lakes_by_spark(
    environments: WheelEnvironments, tmp_path: Path, extras: Sequence[str], values: dict[str, Any]
) -> None:
    environment = environments.of(*extras)
    load(environment, tmp_path, MESSAGES, **values)
    stream = {"name": "numbers", "format": values["format"], "path": "loaded/numbers"}
    assert halves(read(environment, tmp_path, stream)) == HALVES


@pytest.mark.server
def test_servers_and_python_sources(
    environments: WheelEnvironments,
    tmp_path: Path,
    postgres: Database,
    mariadb_server: Any,
    kafka: KafkaBroker,
) -> None:
    """Loads need the extra of their database; Spark reads all of them without it."""
    logins = {
        "postgresql": {"url": postgres.url, "user": "postgres", "password": PASSWORD},
        "mysql": {"url": mariadb_server.url(), "user": "tester", "password": MYSQL_PASSWORD},
    }
    for login in logins.values():
        own = environments.of(*SMALL_EXTRAS)
        load(own, tmp_path, MESSAGES, engine="threads", format="jdbc", jdbc=login)
    topic = kafka.topic()
    kafka.send(topic, [(None, json.dumps({"id": n, "half": half})) for n, half in HALVES])
    streams = [
        {"name": "postgresql", "format": "jdbc", "table": "public.numbers"},
        {"name": "mysql", "format": "jdbc", "table": "numbers"},
        {"name": "kafka", "format": "kafka", "value_format": "json", "topic": topic},
    ]
    streams[-1]["schema"] = "id INT, half DOUBLE"
    places = [{"name": name, "exclude": ["*"], **login} for name, login in logins.items()]
    places.append({"name": "kafka", "brokers": kafka.servers, "include": []})
    named = [{**stream, "connection": stream["name"]} for stream in streams]
    (tmp_path / "halves.py").write_text(PYTHON_SOURCE)
    named.append({"name": "python", "format": "halves.Halves"})
    own = environments.of("python-sources")
    sent = read(own, tmp_path, *named, connections=places, engine="spark")
    names = (*logins, "kafka", "python")
    assert {name: halves(sent, name) for name in names} == dict.fromkeys(names, HALVES)


def test_avro_batches(
    environments: WheelEnvironments, tmp_path: Path, small: dict[str, Any]
) -> None:
    avro = environments.of(*SMALL_EXTRAS)
    encoding = {"format": "avro", "compression": "zstd"}
    batch = {"encoding": encoding, "storage": {"root": str(tmp_path / "batches")}}
    messages = read(avro, tmp_path, small, batch_config=batch)
    load(avro, tmp_path, messages, engine="threads", path="loaded")
    assert parquet.read_table(tmp_path / "loaded" / "numbers").num_rows == len(HALVES)


def test_connect(environments: WheelEnvironments, tmp_path: Path) -> None:
    remote = {"spark": {"remote": "local[2]", "conf": SPARK["conf"]}}
    assert halves(read(environments.of("connect"), tmp_path, NUMBERS, **remote)) == HALVES


# pyspark asks for all that the extra brings in either program; other tests load by Connect.
@pytest.mark.slow
def test_loads_by_connect(environments: WheelEnvironments, tmp_path: Path) -> None:
    remote = {"spark": {"remote": "local[2]", "conf": SPARK["conf"]}}
    load(environments.of("connect"), tmp_path, MESSAGES, path="loaded", **remote)
    assert parquet.read_table(tmp_path / "loaded" / "numbers").num_rows == len(HALVES)


def test_faker(environments: WheelEnvironments, tmp_path: Path, small: dict[str, Any]) -> None:
    maps = {"numbers": {"id": "int(id)", "half": "half", "name": "fake.name()"}}
    assert halves(read(environments.of(*SMALL_EXTRAS), tmp_path, small, stream_maps=maps)) == HALVES


def test_opentelemetry(environments: WheelEnvironments, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n")
    with receiving() as receiver:
        receiver.status = 200
        command = ["tap-spark", "orders.csv"]
        environment = environments.of(*SMALL_EXTRAS)
        environment.result(tmp_path, *command, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert {one.path for one in receiver.posted} >= {"/v1/traces"}


def test_suites_for_authors(environments: WheelEnvironments, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["shared.testing"]\n')
    (tmp_path / "test_parquet.py").write_text(SUITE)
    own = environments.of(*SMALL_EXTRAS)
    ended = own.run(tmp_path, "python", "-m", "pytest", "-q", "-x")
    assert ended.returncode == 0, ended.stdout.decode()[-3000:]


def test_programs_in_bare_install(environments: WheelEnvironments, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders.csv").write_text("id,name\n1,Ada\n")
    bare = environments.of()
    for program, place in (("tap-spark", "data"), ("target-spark", "loaded")):
        assert json.loads(bare.result(tmp_path, program, "--about", "--format", "json"))
        assert bare.result(tmp_path, program, "--about", "--format", "markdown")
        bare.result(tmp_path, program, "init", place, "-o", f"{program}.yaml")
        bare.result(tmp_path, program, "--config", f"{program}.yaml", "--validate-config")
    catalog = json.loads(
        bare.result(tmp_path, "tap-spark", "--config", "tap-spark.yaml", "--discover")
    )
    assert [stream["stream"] for stream in catalog["streams"]] == ["orders"]


# `.ci/run` runs it by `make demo`, from an installed wheel, too.
@pytest.mark.slow
def test_demo(environments: WheelEnvironments, tmp_path: Path) -> None:
    copytree(ROOT / "sample_configs" / "demo", tmp_path / "sample_configs" / "demo")
    command = "sample_configs/demo/run.sh"
    printed = run_script(command, tmp_path, programs=environments.of().programs)
    assert "done: the rows are in" in printed


CSV = {"name": "orders", "format": "csv", "path": "orders.csv"}
MISSING = [
    ("tap", {"batch_config": {"encoding": {"format": "avro"}, "storage": {"root": "b"}}}, "avro"),
    ("tap", {"stream_maps": {"orders": {"x": "fake.name()"}}}, "faker"),
    ("tap", {"streams": [NUMBERS], "spark": {"remote": "sc://localhost:1"}}, "connect"),
    pytest.param(
        "tap",
        {"streams": [NUMBERS], "spark": {"remote": "local"}},
        "connect",
        marks=pytest.mark.slow,
    ),
    ("tap", {"streams": [{"name": "s", "format": "halves.Halves"}]}, "python-sources"),
    ("target", {"stream_maps": {"numbers": {"x": "fake.name()"}}}, "faker"),
    (
        "target",
        {"format": "jdbc", "jdbc": {"url": "jdbc:postgresql://127.0.0.1:1/x"}},
        "postgresql",
    ),
    pytest.param(
        "target",
        {"format": "jdbc", "jdbc": {"url": "jdbc:mysql://127.0.0.1:1/x"}},
        "mysql",
        marks=pytest.mark.slow,
    ),
    ("target", {"format": "jdbc", "jdbc": {"url": "jdbc:mariadb://127.0.0.1:1/x"}}, "mysql"),
    ("target", {"engine": "spark", "spark": {"remote": "local"}}, "connect"),
]


class TestMissingExtras:
    """What a bare install lacks ends in one line that names the extra."""

    @pytest.mark.parametrize(("side", "values", "extra"), MISSING)
    def test_settings(
        self,
        environments: WheelEnvironments,
        tmp_path: Path,
        side: str,
        values: dict[str, Any],
        extra: str,
    ) -> None:
        (tmp_path / "orders.csv").write_text("id\n1\n")
        (tmp_path / "halves.py").write_text(PYTHON_SOURCE)
        bare = environments.of()
        messages = MESSAGES if side == "target" else b""
        base = {"streams": [CSV]} if side == "tap" else {"path": "loaded"}
        if values.get("format") == "jdbc":
            base = {}
        config = settings(tmp_path, "config.json", **{**base, **values})
        ended = bare.run(tmp_path, f"{side}-spark", "--config", config, stdin=messages)
        errors = [line for line in ended.stderr.decode().splitlines() if "ERROR" in line]
        assert ended.returncode in (2, 3, 7), errors
        [line] = errors
        assert f"pip install 'singer-spark[{extra}]'" in line
        assert "Traceback" not in ended.stderr.decode()

    def test_a_batch_file_of_avro(self, environments: WheelEnvironments, tmp_path: Path) -> None:
        file = tmp_path / "one.avro"
        file.write_bytes(b"Obj\x01")
        schema = {"properties": {"id": {"type": "integer"}}}
        encoding = {"format": "avro", "compression": "none"}
        messages = [
            {"type": "SCHEMA", "stream": "s", "schema": schema, "key_properties": []},
            {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": [file.as_uri()]},
        ]
        (tmp_path / "messages.jsonl").write_text("\n".join(map(json.dumps, messages)) + "\n")
        command = ["target-spark", "loaded", "--input", "messages.jsonl"]
        ended = environments.of().run(tmp_path, *command)
        assert ended.returncode == 2
        [line] = [line for line in ended.stderr.decode().splitlines() if "ERROR" in line]
        assert "stream 's', file" in line
        assert "pip install 'singer-spark[avro]'" in line

    def test_telemetry(self, environments: WheelEnvironments, tmp_path: Path) -> None:
        (tmp_path / "orders.csv").write_text("id\n1\n")
        place = "http://127.0.0.1:1"
        command = ["tap-spark", "orders.csv"]
        ended = environments.of().run(tmp_path, *command, OTEL_EXPORTER_OTLP_ENDPOINT=place)
        assert ended.returncode == 0
        assert "pip install 'singer-spark[opentelemetry]'" in ended.stderr.decode()

    @pytest.mark.parametrize("module", ["shared", "tap_spark", "target_spark"])
    def test_suites_for_authors(
        self, environments: WheelEnvironments, tmp_path: Path, module: str
    ) -> None:
        ended = environments.of().run(tmp_path, "python", "-c", f"import {module}.testing")
        last = ended.stderr.decode().splitlines()[-1]
        assert f"{module}.testing needs pytest: pip install 'singer-spark[testing]'" in last
