"""Benchmarks that still load, and their results; `make bench` runs them."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.processes import Measured

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_loads(name: str) -> None:
    import_module(f"benchmarks.{name}")


def test_ratios_are_those_of_each_round() -> None:
    runs = {
        "plain": [Measured(10.0, (100.0,)), Measured(20.0, (90.0,)), Measured(10.0, (80.0,))],
        "ours": [
            Measured(5.0, (40.0, 7.0)),
            Measured(8.0, (60.0, 5.0)),
            Measured(9.0, (50.0, 6.0)),
        ],
    }
    plain, ours = results.cases_of(runs, lambda _: "plain")
    assert (plain.ratio, ours.ratio) == (1.0, 0.5)
    assert ours.peak_mib == (60.0, 7.0)
    assert results.table([plain, ours]).splitlines() == [
        "|  | seconds, median | spread | times plain | peak memory |",
        "| :-- | --: | --: | --: | --: |",
        "| plain | 10.0 | 10.0 to 20.0 | 1.00 | 100 MiB |",
        "| ours | 8.0 | 5.0 to 9.0 | 0.50 | 60 + 7 MiB |",
    ]


def test_a_page_takes_the_tables_of_benchmarks_that_ran(tmp_path: Path) -> None:
    page = "".join(f"<!-- bench:{name} -->\nold\n<!-- /bench -->\n" for name in ("one", "two"))
    (tmp_path / "one.json").write_text(json.dumps({"table": "| new |\n"}))
    assert results.filled(page, tmp_path) == page.replace("old", "| new |", 1)


def test_every_table_of_the_page_has_a_benchmark() -> None:
    shown = set(results.blocks(results.PAGE.read_text()))
    assert shown
    assert shown <= set(NAMES)
