"""Failure policies with the real loader, from lines to Parquet and back from the dead letters."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from target_fakes import config

from shared.engine.engine import Engine
from target_spark.load.loader import Loader
from target_spark.receive.run import run_with

pytestmark = pytest.mark.spark

SCHEMA = {
    "type": "SCHEMA",
    "stream": "s",
    "schema": {"properties": {"id": {"type": "integer"}, "t": {"type": ["null", "string"]}}},
    "key_properties": ["id"],
}


class Output:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


def load(spark, folder: Path, data: bytes, **settings) -> list[bytes]:
    folder.mkdir(exist_ok=True)
    supplied = config(folder, **settings)
    path = folder / "input.jsonl"
    path.write_bytes(data)
    fd, output = os.open(path, os.O_RDONLY), Output()
    try:
        engine = Engine.of(lambda: spark)
        run_with(supplied, fd, output, Loader(supplied, engine), engine)
    finally:
        os.close(fd)
    return output.written


def ids(folder: Path, stream: str = "s") -> list[int]:
    return sorted(pq.read_table(folder / "out" / stream).column("id").to_pylist())


def lines(*messages: dict | str) -> bytes:
    texts = (m if isinstance(m, str) else json.dumps(m) for m in messages)
    return "".join(f"{text}\n" for text in texts).encode()


def record(value: object) -> dict:
    return {"type": "RECORD", "stream": "s", "record": {"id": value, "t": "x"}}


def test_rejected_records_come_back_from_the_dead_letters(spark, tmp_path):
    letters = tmp_path / "letters"
    failure = {"policy": "SendToDLQ", "dead_letter_path": str(letters)}
    batch_file = tmp_path / "b.jsonl"
    batch_file.write_text('{"id": 10}\n{"id": "ten"}\n')
    batch = {
        "type": "BATCH",
        "stream": "s",
        "encoding": {"format": "jsonl", "compression": "none"},
        "manifest": [str(batch_file)],
    }
    state = {"type": "STATE", "value": {"n": 1}}
    data = lines(SCHEMA, record(1), record("two"), record(3), "garbage", batch, state)
    assert load(spark, tmp_path / "first", data, failure=failure) == [b'{"n": 1}\n']
    assert ids(tmp_path / "first") == [1, 3, 10]
    actual = [json.loads(x) for p in letters.iterdir() for x in p.read_bytes().splitlines()]
    reported = {m["_sdc_error"]["line"]: m["record"]["id"] for m in actual if "_sdc_error" in m}
    assert reported == {3: "two", 2: "ten"}
    fixed = b"".join(path.read_bytes() for path in letters.iterdir())
    fixed = fixed.replace(b'"two"', b"2").replace(b'"ten"', b"11")
    load(spark, tmp_path / "again", fixed)
    assert ids(tmp_path / "again") == [2, 11]
    (row,) = pq.read_table(tmp_path / "again" / "out" / "sdc_dead_letters").to_pylist()
    assert (row["original"], row["line"]) == ("garbage", 5)


def test_log_and_continue(spark, tmp_path, caplog):
    data = lines(SCHEMA, record(1), record("two"), record(3))
    load(spark, tmp_path, data, failure={"policy": "LogAndContinue"})
    assert ids(tmp_path) == [1, 3]
    assert "stream 's', line 3: rejected: " in caplog.text
