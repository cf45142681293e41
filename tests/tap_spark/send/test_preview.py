"""`tap-spark preview`: the first rows as tables, without Java if a run needs none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SettingsError
from tap_spark.config import TapConfig, tap_config
from tap_spark.plan.run_options import CatalogRules
from tap_spark.send.trials import preview


def config_of(folder: Path, **more: Any) -> TapConfig:
    """Return settings that never start Java, and would write BATCH."""
    (folder / "orders.csv").write_text("id,name,ssn\n1,Ada,4\n2,Bob,\n3,a\tb,5\n")
    (folder / "log.csv").write_text("x\n")
    wide = {f"c{number}": f"value {number}" for number in range(30)}
    (folder / "wide.jsonl").write_text(f"{json.dumps(wide)}\n" * 7)
    places = {"orders": "orders.csv", "log": "log.csv", "wide": "wide.jsonl"}
    streams = [
        {"name": name, "format": "json" if name == "wide" else "csv", "path": str(folder / place)}
        for name, place in places.items()
    ]
    batch = {"encoding": {"format": "jsonl"}, "storage": {"root": str(folder / "batches")}}
    return tap_config({"streams": streams, "engine": "threads", "batch_config": batch, **more})


def lines(config: TapConfig, *select: str, rows: int = 5, width: int | None = 80) -> list[str]:
    return list(preview(config, CatalogRules(select), rows, width=width))


def test_rows_and_columns_that_rules_select(tmp_path: Path) -> None:
    assert lines(config_of(tmp_path), "orders", "!*.ssn", "log", rows=2) == [
        "orders: first 2 row(s)",
        "id  name",
        "1   Ada",
        "2   Bob",
        "",
        "log: no rows",
        "x",
        "",
    ]
    assert not (tmp_path / "batches").exists()


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    assert lines(config_of(tmp_path), "orders")[2:5] == [
        "1   Ada   4",
        "2   Bob   null",
        "3   a?b   5",
    ]


def test_many_columns_stand_below_each_other(tmp_path: Path) -> None:
    actual = lines(config_of(tmp_path), "wide", rows=7)
    assert max(map(len, actual)) <= 80
    assert actual[1].split() == ["1", "2", "3", "4", "5"]
    assert actual[2].split() == ["c0", *["value", "0"] * 5]
    assert actual[32].split() == ["6", "7"]
    assert len(lines(config_of(tmp_path), "wide", width=None)) == 8


def test_a_name_that_matches_nothing(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'order' matches nothing \(near: orders"):
        lines(config_of(tmp_path), "order")
