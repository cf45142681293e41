"""Tables of lakes after maintenance: what is read, restored, replayed and gone."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import pytest
from lake_loads import DeltaLoad, IcebergLoad, Load

from shared.errors import AlreadyRunningError, DestinationError, SettingsError
from shared.spark.conf import SparkSettings
from target_spark.core.load_plans import Layout
from target_spark.destinations.lakes.delta.delta_format import DeltaFormat
from target_spark.operate.lake_histories import DeltaHistory
from target_spark.operate.rewind import maintain, rewind
from target_spark.operate.table_history import KeepPlan
from target_spark.operate.table_maintenance import LakeTables
from target_spark.run_settings import MaintenanceSettings, TargetConfig

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]
SHORT = Layout(properties={"delta.deletedFileRetentionDuration": "interval 0 hours"})
AT_ONCE: dict[str, Any] = {"keep_days": 1e-6}


def rows(*numbers: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "v": v} for number in numbers]


def state(bookmark: int) -> str:
    return json.dumps({"bookmarks": {"orders": bookmark}})


def tables(load: Load, **settings: Any) -> LakeTables:
    config = replace(load.config, maintenance=MaintenanceSettings(**{**AT_ONCE, **settings}))
    return LakeTables(config, load.spark)


def maintained(load: Load, *, dry_run: bool = False, **settings: Any) -> dict[str, Any]:
    [line] = maintain(tables(load, **settings), ["orders"], dry_run=dry_run)
    actual: dict[str, Any] = json.loads(line)
    return actual


def data_files(load: Load) -> set[Path]:
    folder = Path(load.config.path) / "orders"
    return {path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}


def bookmark_of(load: Load, version: str) -> dict[str, Any]:
    """Return the bookmark of a tap that has read up to a version, as docs/lakes.md shows it."""
    if isinstance(load, IcebergLoad):
        return {"snapshot_id": version}
    return {"table_id": load.sql("DESCRIBE DETAIL {t}")[0]["id"], "version": int(version)}


def test_what_nothing_needs_goes_and_the_rest_can_be_restored(
    lake_load: Make, tmp_path: Path
) -> None:
    load = lake_load("id long, v string", keys=("id",), method="upsert", layout=SHORT)
    runs = []
    for number in (1, 2, 3):
        load.begin()
        load.load(rows(1, 2, v=f"v{number}"), state=state(number))
        runs.append(load.run)
    orphan = min(data_files(load)).parent / "orphan.parquet"
    orphan.write_bytes(b"x")
    os.utime(orphan, (0, 0))
    before = data_files(load)
    report = maintained(load, dry_run=True)
    assert (report["lost_runs"], report["lost_commits"], report["dry_run"]) == (runs[:2], 2, True)
    assert data_files(load) == before
    lease = load.destination.lease(load.request)
    lease.take()
    with pytest.raises(AlreadyRunningError):
        maintained(load)
    lease.release()

    at = tables(load).histories()[0].created[-2].version
    path = tmp_path / "reader.json"
    path.write_text(json.dumps({"bookmarks": {"lake-orders": bookmark_of(load, at)}}))
    report = maintained(load, keep_for_readers=(str(path),), remove_orphans=True)
    assert report["restorable_version"] == at
    assert report["kept_for"] == f"reader '{path}', stream 'lake-orders'"
    assert report["lost_runs"] == runs[:1]
    assert rewind(tables(load), runs[1], (), force=True, dry_run=True) is None
    if isinstance(load, DeltaLoad):
        assert report["expired"]["left"].endswith("older than delta.deletedFileRetentionDuration")
        assert data_files(load) == before, "VACUUM would remove what the reader needs"
    else:
        assert orphan not in data_files(load)
        with pytest.raises(SettingsError, match="neither a run"):
            rewind(tables(load), runs[0], (), force=True, dry_run=False)

    report = maintained(load)
    assert (report["lost_runs"][-1], report["kept_for"]) == (runs[1], "rewind")
    assert report["expired"]["files"] >= 1
    with pytest.raises((DestinationError, SettingsError), match=r"are gone|neither a run"):
        rewind(tables(load), runs[1], (), force=True, dry_run=False)
    assert orphan not in data_files(load)
    assert load.other_reader().rows == rows(1, 2, v="v3")


def test_replays_are_detected_after_maintenance(
    lake_load: Make, caplog: pytest.LogCaptureFixture
) -> None:
    settings = MaintenanceSettings(after_run=True, **AT_ONCE)
    load = lake_load("id long, v string", layout=SHORT, maintenance=settings)
    for number in range(6):
        load.load(rows(number), noted=True)
    noted = frozenset(load.noted)
    load.begin()
    assert maintained(load)["compacted"] == {"removed": 6, "added": 1}
    assert load.recall() == noted
    caplog.set_level(logging.INFO)
    load.load(rows(6), state=state(6))
    load.end()
    assert "a rewind can return to version" in caplog.text
    assert "was not maintained" not in caplog.text
    assert sorted(row["id"] for row in load.other_reader().rows) == list(range(7))


def test_vacuum_has_as_many_tasks_as_a_table_needs() -> None:
    """With Spark's default of 10,000, that of an empty table takes a minute."""
    name, conf, seen = "spark.sql.sources.parallelPartitionDiscovery.parallelism", MagicMock(), []
    table = MagicMock(**{"place.folder": None, "properties.return_value": {}, "spark.conf": conf})
    table.sql.side_effect = lambda _: seen.extend(conf.set.call_args_list) or MagicMock()
    for own in ({}, {name: "3"}):
        config = TargetConfig(format="delta", spark=SparkSettings(conf=own))
        DeltaHistory(DeltaFormat(config), config).expire(table, KeepPlan(()))
        assert seen[0] == call(name, own.get(name, "200"))
        conf.reset_mock()
        seen.clear()
