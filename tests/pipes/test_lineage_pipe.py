"""OpenLineage events of both programs, at a receiver: of a good run and of one that fails."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from http_receiver import Receiver, receiving
from pipe_programs import Programs

pytestmark = pytest.mark.pipe

KEY, PARENT = "hush-key", str(uuid4())
ROWS = 1000


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def tap_command(programs: Programs) -> list[str]:
    source = programs.folder / "orders.csv"
    source.write_text("id,name\n" + "".join(f"{n},x{n}\n" for n in range(ROWS)))
    stream = {"name": "orders", "path": str(source), "format": "csv"}
    return programs.tap_command({"streams": [stream], "openlineage": {"api_key": KEY}})


def target_command(programs: Programs, **more: Any) -> list[str]:
    out = {"path": str(programs.folder / "out"), "format": "delta"}
    return programs.target_command({**out, "openlineage": {"job_name": "load"}, **more})


def both(programs: Programs) -> tuple[subprocess.CompletedProcess[bytes], ...]:
    tap = programs.run([*tap_command(programs), "--summary", "tap.json"])
    target = programs.run([*target_command(programs), "--summary", "target.json"], tap.stdout)
    return tap, target


def test_a_run_from_file_to_table(programs: Programs, receiver: Receiver) -> None:
    programs.environ |= {
        "OPENLINEAGE_URL": receiver.url,
        "OPENLINEAGE_NAMESPACE": "prod",
        "OPENLINEAGE_PARENT_ID": f"airflow/shop.load/{PARENT}",
        "LOG_FORMAT": "json",
    }
    done = both(programs)
    assert [one.returncode for one in done] == [0, 0], done[-1].stderr
    assert {one.path for one in receiver.posted} == {"/api/v1/lineage"}
    assert receiver.posted[0].headers["authorization"] == f"Bearer {KEY}"
    assert all(KEY.encode() not in one.body for one in receiver.posted)
    events = [one.json for one in receiver.posted]
    assert [(e["job"]["name"], e["eventType"]) for e in events] == [
        *(("tap-spark", "START"), ("tap-spark", "COMPLETE")),
        *(("load", "START"), ("load", "COMPLETE")),
    ]
    assert {e["run"]["facets"]["parent"]["run"]["runId"] for e in events} == {PARENT}

    (sent, loaded), folder = (events[1], events[3]), programs.folder
    [[source], [stream]] = sent["inputs"], sent["outputs"]
    [[same], [table]] = loaded["inputs"], loaded["outputs"]
    assert (source["namespace"], source["name"]) == ("file", str(folder / "orders.csv"))
    assert (stream["namespace"], stream["name"]) == ("prod", "shop.load.orders")
    assert (same["namespace"], same["name"]) == ("prod", "shop.load.orders")
    assert (table["namespace"], table["name"]) == ("file", str(folder / "out" / "orders"))
    assert stream["outputFacets"]["outputStatistics"]["rowCount"] == ROWS
    assert same["inputFacets"]["inputStatistics"]["rowCount"] == ROWS
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == ROWS
    assert table["outputFacets"]["outputStatistics"]["size"] > 0
    columns = {"name": "id", "type": "bigint"}, {"name": "name", "type": "string"}
    assert table["facets"]["schema"]["fields"][:2] == [*columns]

    # One identity: in events, summaries, log lines and commits.
    for name, event, log in zip(("tap", "target"), (sent, loaded), done, strict=True):
        run = event["run"]["runId"]
        assert json.loads((folder / f"{name}.json").read_text())["run_id"] == run
        lines = [json.loads(line) for line in log.stderr.splitlines()]
        assert [line["extra"].get("run_id") for line in lines[-3:]] == [run] * 3
    commits = sorted((folder / "out" / "orders" / "_delta_log").glob("*.json"))
    assert loaded["run"]["runId"] in commits[-1].read_text()


def test_a_run_that_fails(programs: Programs, receiver: Receiver) -> None:
    programs.environ["TARGET_SPARK_OPENLINEAGE__URL"] = receiver.url
    schema = {"properties": {"id": {"type": "integer"}}}
    lines: list[dict[str, Any]] = [
        {"type": "SCHEMA", "stream": "orders", "schema": schema, "key_properties": []},
        {"type": "RECORD", "stream": "orders", "record": {"id": "x"}},
    ]
    command = [*target_command(programs), "--config", "ENV"]
    done = programs.run(command, "\n".join(map(json.dumps, lines)).encode())
    assert done.returncode == 5
    events = [one.json for one in receiver.posted]
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    message = events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message in done.stderr.decode()
    assert "stream 'orders'" in message
    assert events[-1]["outputs"] == []


def test_receivers_that_are_down(programs: Programs) -> None:
    nobody = "http://127.0.0.1:9"
    programs.environ |= {"OPENLINEAGE_URL": nobody, "OTEL_EXPORTER_OTLP_ENDPOINT": nobody}
    done = programs.run(tap_command(programs))
    assert done.returncode == 0
    assert done.stdout.count(b'"RECORD"') == ROWS
    warnings = [line for line in done.stderr.decode().splitlines() if "WARNING" in line]
    assert len(warnings) == 2, warnings
    text = "".join(warnings)
    assert "OpenLineage events are lost: http://127.0.0.1:9/api/v1/lineage" in text
    assert "OpenTelemetry spans or metrics are lost" in text
