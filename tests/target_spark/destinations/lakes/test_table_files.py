"""The checks of tables' files that tests of crashes make find what they look for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake_loads import Load
from table_files import check_data_files

Make = Callable[..., Load]
ADD = {"size": 1, "dataChange": True}


def delta(folder: Path, *commits: list[dict[str, Any]]) -> Path:
    """Write a log of such commits."""
    log = folder / "t" / "_delta_log"
    log.mkdir(parents=True)
    for number, actions in enumerate(commits):
        text = "".join(f"{json.dumps(action)}\n" for action in actions)
        (log / f"{number:020d}.json").write_text(text)
    for name in "abc":
        (folder / "t" / name).write_text(name)
    return folder


def add(path: str) -> dict[str, Any]:
    return {"add": {**ADD, "path": path}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path}}


def test_files_of_delta_tables_are_counted(tmp_path: Path) -> None:
    actual = delta(tmp_path, [{"metaData": {}}], [add("a"), add("b")], [remove("a"), add("c")])
    assert check_data_files(actual) == 2


@pytest.mark.parametrize(
    "commits",
    [
        [[add("a")], [add("a")]],
        [[add("a"), add("a")]],
        [[add("a")], [remove("a")], [add("a")]],
        [[add("missing")]],
        [[add("a"), add("link")]],
    ],
)
def test_a_file_that_is_there_twice_or_not_at_all(tmp_path: Path, commits: Any) -> None:
    actual = delta(tmp_path, *commits)
    os.link(tmp_path / "t" / "a", tmp_path / "t" / "link")
    with pytest.raises(AssertionError):
        check_data_files(actual)


@pytest.mark.spark
@pytest.mark.server
def test_real_tables_pass_and_a_file_added_again_does_not(lake_load: Make, tmp_path: Path) -> None:
    load = lake_load("id long, name string", keys=("id",), method="upsert")
    load.load([{"id": n, "name": "a"} for n in range(9)])
    load.load([{"id": 1, "name": "b"}])
    load.method = "append-only"
    load.load([{"id": 10, "name": "c"}])
    load.method = "overwrite"
    load.load([{"id": 1, "name": "d"}])
    load.end()
    load.begin()
    load.method = "append-only"
    load.load([{"id": 2, "name": "e"}])
    assert check_data_files(tmp_path) == 2
    if "Iceberg" in type(load).__name__:
        pytest.importorskip("pyiceberg")
        [file] = [row[0] for row in load.sql("SELECT file_path FROM {t}.files LIMIT 1")]
        table = load.name.partition(".")[2].replace("`", "")
        load.sql(
            f"CALL singer_iceberg.system.add_files(table => '{table}', "
            f"source_table => '`parquet`.`{file}`', check_duplicate_files => false)"
        )
    else:
        log = tmp_path / "lake" / "orders" / "_delta_log"
        last = max(path for path in log.glob("*.json"))
        (log / f"{int(last.stem) + 1:020d}.json").write_bytes(last.read_bytes())
    with pytest.raises(AssertionError):
        check_data_files(tmp_path)
