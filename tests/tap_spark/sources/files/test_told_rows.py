"""Rows that the footers of files tell, and runs that compare them with what they send."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from shared.run_summary import RunSummary
from tap_spark.config import tap_config
from tap_spark.sources.files import columnar_files
from tap_spark.sources.source import TellingSource, source_for


def source(path: Path, form: str = "parquet", **more: Any) -> Any:
    stream = {"name": "s", "format": form, "path": str(path), **more}
    return source_for(tap_config({"streams": [stream]}).streams[0])


def table(rows: int) -> pa.Table:
    return pa.table({"id": range(rows)})


def test_footers_of_all_files_count(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(table(number), tmp_path / f"{number}.parquet")
    (tmp_path / "_SUCCESS").touch()
    found = source(tmp_path)
    assert isinstance(found, TellingSource)
    assert found.told_rows() == 3
    orc.write_table(table(7), tmp_path / "a.orc")
    assert source(tmp_path / "a.orc", "orc").told_rows() == 7


def test_what_footers_do_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(table(1), tmp_path / "a.parquet")
    options = {"pathGlobFilter": "b*"}
    assert source(tmp_path, options=options).told_rows() is None
    monkeypatch.setattr(columnar_files, "MOST_FOOTERS", 0)
    assert source(tmp_path).told_rows() is None
    assert not isinstance(source(tmp_path / "a.parquet", "csv"), TellingSource)


@pytest.mark.spark
def test_a_run_says_what_the_source_has(
    tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapped_bench import Bench

    from tap_spark.sync import sync

    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(table(5), folder / "a.parquet")
    collected: list[RunSummary] = []
    run_sync = sync.run_sync

    def summarized(*args: Any) -> None:
        collected.append(RunSummary("tap-spark"))
        run_sync(*args, summary=collected[-1])

    monkeypatch.setattr(sync, "run_sync", summarized)
    bench = Bench(spark, tmp_path, monkeypatch)
    settings = {"streams": [{"name": "s", "format": "parquet", "path": str(folder)}]}
    bench.tap(settings)
    assert collected[0].as_dict(None)["streams"]["s"]["source_rows"] == 5
    monkeypatch.setattr(columnar_files, "told_by_footer", lambda *_: (6, {}))
    bench.tap(settings)
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == [
        "stream 's': 5 records were sent, the source had 6 rows when the read began"
    ]
    maps = {"s": {"id": "id"}}
    bench.tap({**settings, "stream_maps": maps})
    assert "source_rows" not in collected[-1].as_dict(None)["streams"]["s"]
