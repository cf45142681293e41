"""A slice of both programs with every release of Spark that is supported, forced to Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import KafkaBroker
from own_environments import Environment, WheelEnvironments
from pipe_programs import SPARK
from postgres_server import PASSWORD, Database

from shared.spark.spark_release import LINES, RELEASES

pytestmark = [pytest.mark.once, pytest.mark.pipe, pytest.mark.slow, pytest.mark.costly]
QUERY = "SELECT id, CAST(id AS decimal(20,3)) / 8 AS part, array(id) AS list, "
ROWS = {
    "name": "rows",
    "format": "sql",
    "query": QUERY + "timestamp'2020-02-03 04:05:06.789' AS at FROM range(3)",
    "key_properties": ["id"],
}
LIST = {"type": "array", "items": {"type": "integer"}}


def settings(folder: Path, name: str, **values: Any) -> str:
    """Write settings of a program, with a small Spark; return the name of their file."""
    spark = {**SPARK, **values.pop("spark", {})}
    (folder / name).write_text(json.dumps({**values, "spark": spark}))
    return name


@pytest.fixture(params=LINES)
def line(request: pytest.FixtureRequest) -> str:
    """A release, without its last number."""
    return str(request.param)


@pytest.fixture
def own(environments: WheelEnvironments, line: str) -> Environment:
    """The environment with the release."""
    return environments.of("delta", "iceberg", "postgresql", spark=line)


def sent(own: Environment, folder: Path, stream: dict[str, Any], **values: Any) -> bytes:
    """Return what the tap sends of a stream."""
    config = settings(folder, "tap.json", streams=[stream], **values)
    return own.result(folder, "tap-spark", "--config", config)


def loaded(own: Environment, folder: Path, messages: bytes, **values: Any) -> None:
    """Load messages by Spark."""
    config = settings(folder, "target.json", engine="spark", **values)
    states = own.result(folder, "target-spark", "--config", config, stdin=messages)
    assert "rows" in json.loads(states.splitlines()[-1])["bookmarks"]


def records(messages: bytes) -> list[dict[str, Any]]:
    """Return the records, by their key; metadata columns left out."""
    lines = map(json.loads, messages.splitlines())
    own = (one for one in lines if one["type"] == "RECORD" and one["stream"] == "rows")
    rows = [one["record"] for one in own]
    kept = [{name: row[name] for name in row if not name.startswith("_sdc")} for row in rows]
    return sorted(kept, key=lambda row: int(row["id"]))


def expected(rows: int = 3) -> list[dict[str, Any]]:
    """Return what the query gives."""
    return [
        {"id": n, "part": n / 8, "list": [n], "at": "2020-02-03T04:05:06.789000+00:00"}
        for n in range(rows)
    ]


def numbers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with decimals as numbers."""
    return [{**row, "part": float(row["part"])} for row in rows]


def test_records_and_batches(own: Environment, tmp_path: Path) -> None:
    messages = sent(own, tmp_path, ROWS)
    assert numbers(records(messages)) == expected()
    for form in ("parquet", "jsonl"):
        batch = {"encoding": {"format": form}, "storage": {"root": str(tmp_path / "batches")}}
        files = sent(own, tmp_path, ROWS, batch_config=batch)
        loaded(own, tmp_path, files, path=f"from-{form}", add_record_metadata=False)
        stream = {"name": "rows", "format": "parquet", "path": f"from-{form}/rows"}
        assert numbers(records(sent(own, tmp_path, stream))) == expected()


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_upserts(own: Environment, line: str, tmp_path: Path, form: str) -> None:
    messages = sent(own, tmp_path, ROWS)
    values = {"format": form, "path": "lake", "load_method": "upsert"}
    if form not in RELEASES[line].packages:
        config = settings(tmp_path, "target.json", engine="spark", **values)
        ended = own.run(tmp_path, "target-spark", "--config", config, stdin=messages)
        assert ended.returncode == 2
        assert f"'{form}' has no package for Spark {line}".encode() in ended.stderr
        return
    more = {**ROWS, "query": str(ROWS["query"]).replace("range(3)", "range(5)")}
    for part in (messages, sent(own, tmp_path, more)):
        loaded(own, tmp_path, part, **values)
    stream = {"name": "rows", "format": form, "path": "lake/rows"}
    assert numbers(records(sent(own, tmp_path, stream))) == expected(5)


@pytest.mark.server
def test_databases(own: Environment, tmp_path: Path, postgres: Database) -> None:
    place = {"url": postgres.url, "user": "postgres", "password": PASSWORD}
    loaded(own, tmp_path, sent(own, tmp_path, ROWS), format="jdbc", jdbc=place)
    connections = [{"name": "db", **place}]
    stream = {"name": "rows", "format": "jdbc", "connection": "db", "table": "public.rows"}
    actual = records(sent(own, tmp_path, stream, connections=connections))
    assert [row["id"] for row in actual] == [0, 1, 2]
    assert [float(row["part"]) for row in actual] == [0, 0.125, 0.25]
    postgres.run("drop table rows")


@pytest.mark.server
def test_kafka(own: Environment, line: str, tmp_path: Path, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, [({"id": n}, {"id": n, "name": f"n{n}"}) for n in range(3)])
    stream = {"name": "rows", "format": "kafka", "connection": "k", "topic": topic}
    connections = [kafka.connection(name="k")]
    if "kafka" not in RELEASES[line].packages:
        config = settings(tmp_path, "tap.json", streams=[stream], connections=connections)
        ended = own.run(tmp_path, "tap-spark", "--config", config)
        assert ended.returncode == 2
        assert f"'kafka' has no package for Spark {line}".encode() in ended.stderr
        return
    actual = records(sent(own, tmp_path, stream, connections=connections))
    assert [(row["id"], row["name"]) for row in actual] == [(0, "n0"), (1, "n1"), (2, "n2")]
