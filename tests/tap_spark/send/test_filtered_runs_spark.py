"""A run all of whose rows a filter leaves out, with Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shared.engine.engine import Engine
from shared.singer.run_summary import RunSummary
from shared.singer.stdout import MessageOutput
from tap_spark.config import tap_config
from tap_spark.send import sync

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("least", "has_work"), [(100, False), (2, True)])
def test_filtered_rows_are_nothing_to_do_and_move_the_bookmark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, has_work: bool
) -> None:
    monkeypatch.setattr(sync, "engine_of", lambda *_, **__: Engine.of(lambda: spark))
    (tmp_path / "data.csv").write_text("id\n1\n2\n")
    stream = {"name": "s", "format": "csv", "path": str(tmp_path / "data.csv")}
    stream["replication_method"] = "INCREMENTAL"
    maps = {"s": {"__filter__": f"id >= {least}"}}
    summary, out = RunSummary("tap-spark"), tmp_path / "out.jsonl"
    with out.open("wb") as file:
        output = MessageOutput(os.dup(file.fileno()))
        config = tap_config({"streams": [stream], "stream_maps": maps})
        sync.run_sync(config, None, None, output, summary=summary)
        output.close()
    last = json.loads(out.read_text().splitlines()[-1])
    assert last["value"]["bookmarks"]["s"]["files"]
    assert summary.has_work is has_work
