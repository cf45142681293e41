"""Rows that the footers of files tell, and runs that compare them with what they send."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mapped_bench import Bench
from pyarrow import orc

from shared.singer.run_summary import RunSummary
from tap_spark.config import tap_config
from tap_spark.send import sync
from tap_spark.sources.files import columnar_files, paths
from tap_spark.sources.lakes import delta_source
from tap_spark.sources.source import TellingSource, source_for


def source(path: Path | str, form: str = "parquet", **more: Any) -> Any:
    stream = {"name": "s", "format": form, "path": str(path), **more}
    return source_for(tap_config({"streams": [stream]}).streams[0])


def table(rows: int) -> pa.Table:
    return pa.table({"id": range(rows)})


def test_footers_of_all_files_count(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(table(number), tmp_path / f"{number}.parquet")
    (tmp_path / "_SUCCESS").touch()
    actual = source(tmp_path)
    assert isinstance(actual, TellingSource)
    assert actual.told_rows() == 3
    orc.write_table(table(7), tmp_path / "a.orc")
    assert source(tmp_path / "a.orc", "orc").told_rows() == 7


def test_what_footers_do_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(table(1), tmp_path / "a.parquet")
    options = {"pathGlobFilter": "b*"}
    assert source(tmp_path, options=options).told_rows() is None
    monkeypatch.setattr(columnar_files, "MOST_FOOTERS", 0)
    assert source(tmp_path).told_rows() is None
    assert not isinstance(source(tmp_path / "a.parquet", "csv"), TellingSource)
    monkeypatch.setattr(paths, "list_files", None)
    assert source("gs://bucket/a").told_rows() is None, "without listing the storage"


@pytest.fixture
def summaries(monkeypatch: pytest.MonkeyPatch) -> list[RunSummary]:
    """Return the summaries of the runs that follow."""
    collected: list[RunSummary] = []
    run_sync = sync.run_sync

    def summarized(*args: Any) -> None:
        collected.append(RunSummary("tap-spark"))
        run_sync(*args, summary=collected[-1])

    monkeypatch.setattr(sync, "run_sync", summarized)
    return collected


def facts(summaries: list[RunSummary]) -> dict[str, Any]:
    actual: dict[str, Any] = summaries[-1].as_dict(None)["streams"]["s"]
    return actual


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


DIFFERS = "stream 's': 5 records were sent, the source had 6 rows when the read began"


@pytest.mark.spark
def test_a_run_says_what_the_source_has(
    tmp_path: Path,
    spark: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    summaries: list[RunSummary],
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(table(5), folder / "a.parquet")
    bench = Bench(spark, tmp_path, monkeypatch)
    settings = {"streams": [{"name": "s", "format": "parquet", "path": str(folder)}]}
    bench.tap(settings)
    assert facts(summaries)["source_rows"] == 5
    monkeypatch.setattr(columnar_files, "read_footer", lambda *_: (6, {}))
    bench.tap(settings)
    assert warned(caplog) == [DIFFERS]
    maps = {"s": {"id": "id"}}
    bench.tap({**settings, "stream_maps": maps})
    assert "source_rows" not in facts(summaries)


@pytest.mark.spark
@pytest.mark.server
def test_a_run_says_what_a_table_tells(
    tmp_path: Path,
    lake_spark: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    summaries: list[RunSummary],
) -> None:
    from deltalake import write_deltalake

    path = str(tmp_path / "t")
    write_deltalake(path, table(5))
    monkeypatch.setattr(delta_source, "rows_in_log", lambda *_: 6)
    stream = {"name": "s", "format": "delta", "path": path}
    Bench(lake_spark, tmp_path, monkeypatch).tap({"streams": [stream]})
    assert facts(summaries)["source_rows"] == 6
    assert warned(caplog) == [DIFFERS]
