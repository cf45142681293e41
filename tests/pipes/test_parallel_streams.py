"""Several streams at once, by the real program: whole lines, right STATEs, one end for all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pipe_programs import Programs

STREAMS = [
    {
        "name": f"rows{number}",
        "format": "rows",
        "row_count": 6_000 + number,
        "column_count": 4,
        "replication_key": "id",
    }
    for number in range(5)
]


def messages(output: bytes) -> list[dict[str, Any]]:
    assert output.endswith(b"\n")
    return [json.loads(line) for line in output.splitlines()]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    programs = Programs(tmp_path_factory.mktemp("parallel"))
    config = {"streams": STREAMS, "parallel_streams": 3, "state_interval_seconds": 0.001}
    ran = programs.run(programs.tap_command(config))
    assert ran.returncode == 0, ran.stderr.decode()
    return messages(ran.stdout)


@pytest.mark.pipe
@pytest.mark.costly
def test_streams_really_run_together(sent: list[dict[str, Any]]) -> None:
    schemas = [at for at, message in enumerate(sent) if message["type"] == "SCHEMA"]
    first = sent[schemas[0]]["stream"]
    last_of_first = max(at for at, message in enumerate(sent) if message.get("stream") == first)
    assert len(schemas) == len(STREAMS)
    assert schemas[1] < last_of_first


@pytest.mark.pipe
@pytest.mark.costly
def test_every_record_is_there_behind_its_schema(sent: list[dict[str, Any]]) -> None:
    for stream in STREAMS:
        own = [message for message in sent if message.get("stream") == stream["name"]]
        assert [message["type"] for message in own].index("SCHEMA") == 0
        ids = [message["record"]["id"] for message in own if message["type"] == "RECORD"]
        assert sorted(ids) == list(range(int(str(stream["row_count"]))))


@pytest.mark.pipe
@pytest.mark.costly
def test_no_state_runs_ahead_and_the_last_is_whole(sent: list[dict[str, Any]]) -> None:
    seen: dict[str, int] = {}
    states = 0
    for message in sent:
        if message["type"] == "RECORD":
            seen[message["stream"]] = max(seen.get(message["stream"], 0), message["record"]["id"])
        if message["type"] == "STATE":
            states += 1
            for name, bookmark in message["value"]["bookmarks"].items():
                if "replication_key_value" in bookmark:
                    assert bookmark["replication_key_value"] <= seen[name]
    assert states >= len(STREAMS)
    assert sent[-1]["value"]["bookmarks"] == {
        stream["name"]: {
            "replication_key": "id",
            "replication_key_value": int(str(stream["row_count"])) - 1,
        }
        for stream in STREAMS
    }


@pytest.mark.pipe
@pytest.mark.costly
def test_one_failure_ends_all_and_what_went_out_keeps_its_state(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"id": 1}\n{"id": "x"\n')
    programs = Programs(tmp_path)
    slow = {**STREAMS[0], "name": "slow", "row_count": 4_000_000, "column_count": 2}
    bad = {"name": "bad", "format": "json", "path": str(broken), "schema": "id BIGINT"}
    config = {"streams": [slow, bad], "parallel_streams": 2, "state_interval_seconds": 3600}
    ran = programs.run(programs.tap_command(config))
    text = ran.stderr.decode()
    assert ran.returncode == 3, text
    assert "stream 'bad'" in text
    assert "broken.json" in text
    assert "Traceback" not in text
    assert ran.stdout.endswith(b"\n")
    # Not every line is parsed: there may be millions.
    ids = [int(actual) for actual in re.findall(rb'"record":\{"id":(\d+)', ran.stdout)]
    assert len(ids) < 4_000_000
    states = [json.loads(line) for line in ran.stdout.splitlines() if b'"STATE"' in line[:20]]
    if ids:
        assert states[-1]["value"]["bookmarks"]["slow"]["replication_key_value"] <= max(ids)
