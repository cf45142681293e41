"""The wheel in environments that hold nothing else: what each extra promises works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from own_environments import Environment, WheelEnvironments, python_of_version
from pipe_programs import SPARK
from pyarrow import parquet

pytestmark = [pytest.mark.once, pytest.mark.pipe]
NUMBERS = {"name": "numbers", "format": "sql", "query": "SELECT id, id / 2 AS half FROM range(3)"}
"""A stream that only Spark reads."""
HALVES = [(0, 0.0), (1, 0.5), (2, 1.0)]


def settings(folder: Path, name: str, **values: Any) -> str:
    """Write settings of a program, with a small Spark; return the name of their file."""
    (folder / name).write_text(json.dumps({"spark": SPARK, **values}))
    return name


def read(bare: Environment, folder: Path, *streams: dict[str, Any], **values: Any) -> bytes:
    """Return what the tap sends."""
    config = settings(folder, "tap.json", streams=streams, **values)
    return bare.result(folder, "tap-spark", "--config", config)


def load(environment: Environment, folder: Path, messages: bytes, **values: Any) -> None:
    """Load messages by Spark."""
    config = settings(folder, "target.json", load_without_spark=False, **values)
    states = environment.result(folder, "target-spark", "--config", config, stdin=messages)
    assert json.loads(states.splitlines()[-1])["bookmarks"].keys() == {"numbers"}


def halves(messages: bytes, stream: str = "numbers") -> list[tuple[int, float]]:
    """Return the rows of a stream."""
    sent = map(json.loads, messages.splitlines())
    records = [one["record"] for one in sent if one["type"] == "RECORD" and one["stream"] == stream]
    return sorted((int(row["id"]), float(row["half"])) for row in records)


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.13"])
def test_bare_install_reads_and_loads_by_spark(
    environments: WheelEnvironments, tmp_path: Path, version: str
) -> None:
    bare = environments.of(python=python_of_version(version))
    messages = read(bare, tmp_path, NUMBERS)
    assert halves(messages) == HALVES
    load(bare, tmp_path, messages, path="loaded")
    rows = parquet.read_table(tmp_path / "loaded" / "numbers").sort_by("id").to_pylist()
    assert [(row["id"], row["half"]) for row in rows] == HALVES
