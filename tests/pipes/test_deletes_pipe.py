"""Rows that a source has deleted, with `deletes: keys` of an INCREMENTAL stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipe_programs import Programs
from postgres_server import PASSWORD, Database

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]
STREAM = {
    "name": "orders",
    "format": "csv",
    "path": "orders.csv",
    "schema": "id INT, at INT",
    "key_properties": ["id"],
    "replication_key": "at",
    "deletes": "keys",
}
STATE = {"bookmarks": {"orders": {"replication_key": "at", "replication_key_value": 20}}}


def test_rows_that_are_gone_in_the_source_are_marked(
    programs: Programs, postgres: Database, tmp_path: Path
) -> None:
    """They are if the tap has told all keys, not if it died on the way."""
    (tmp_path / "orders.csv").write_text("id,at\n" + "".join(f"{n},{n}\n" for n in range(2, 22)))
    files = tmp_path / "files"
    files.mkdir()
    batch = {"encoding": {"format": "parquet"}, "storage": {"root": str(files)}}
    target = {
        "format": "jdbc",
        "load_method": "upsert",
        "batch_config": {**batch, "cleanup": True},
        "jdbc": {"url": postgres.url, "user": "postgres", "password": PASSWORD},
    }
    tap = programs.tap_command({"streams": [STREAM], "batch_config": batch}, STATE)
    sent = programs.run(tap)
    assert sent.returncode == 0, sent.stderr.decode()
    schema, announcement, *rows, keys, last = sent.stdout.splitlines(keepends=True)
    assert [json.loads(line)["type"] for line in (rows[-1], keys, last)] == [
        "STATE",
        "KEYS",
        "STATE",
    ]

    def load(*lines: bytes) -> tuple[int, list[Any]]:
        done = programs.run(programs.target_command(target), b"".join(lines))
        return done.returncode, [json.loads(line)["bookmarks"] for line in done.stdout.splitlines()]

    def record(number: int) -> bytes:
        row = {"id": number, "at": number}
        return json.dumps({"type": "RECORD", "stream": "orders", "record": row}).encode() + b"\n"

    assert load(schema, *map(record, range(1, 21))) == (0, [])
    gone = "select id from orders where _sdc_deleted_at is not null"
    code, states = load(schema, announcement, *rows, keys[:-9])
    assert code != 0, "the tap died within the message"
    assert states[-1]["orders"]["replication_key_value"] == 21
    assert "runs_since_keys" not in states[-1]["orders"]
    assert postgres.run(gone).split() == []
    # Its rows are loaded and their files deleted: only the keys are left.
    code, states = load(schema, announcement, keys, last)
    assert (code, [state["orders"]["runs_since_keys"] for state in states]) == (0, [0])
    assert postgres.run(gone).split() == ["1"]
    assert postgres.value("select count(*) from orders") == "21"
    assert list(files.iterdir()) == []
