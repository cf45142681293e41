"""Growing files read by Spark across runs: only what is new, and warnings where it is not."""

from __future__ import annotations

import logging

import pytest
from tap_runs import read_all, stream

from shared.errors import SourceError
from tap_spark.config import TapConfig
from tap_spark.discovery import catalog_for
from tap_spark.sources import resume

pytestmark = pytest.mark.spark


class Runs:
    """Runs of one stream, each with the state of the one before."""

    def __init__(self, spark, config):
        self.spark, self.config, self.state = spark, config, {}
        self.catalog = catalog_for(spark, TapConfig(streams=(config,)))

    def __call__(self):
        found, slices = read_all(
            self.spark, self.config, catalog=self.catalog, state={"bookmarks": {"s": self.state}}
        )
        self.slices = slices
        if slices:
            self.state = dict(slices[-1].bookmark)
        return found


def test_csv_lines_are_read_once(spark, tmp_path, caplog):
    path = tmp_path / "d" / "a.csv"
    path.parent.mkdir()
    path.write_text("id,name\n1,one\n2,two\n")
    run = Runs(spark, stream("csv", str(path.parent), replication_method="INCREMENTAL"))
    assert [row["id"] for row in run()] == [1, 2]
    assert run.state["files"][str(path)]["lines"] == 3
    assert run() == []
    assert run.slices == []
    with path.open("a") as file:
        file.write("3,three\n")
    (path.parent / "b.csv").write_text("id,name\n10,ten")
    assert run() == [{"id": 3, "name": "three"}, {"id": 10, "name": "ten"}]
    assert run.state["files"][str(path)]["lines"] == 4
    assert run() == []
    with caplog.at_level(logging.WARNING), (path.parent / "b.csv").open("a") as file:
        file.write("th\n11,eleven\n")
    assert [row["name"] for row in run()] == ["tenth", "eleven"]
    path.write_text("id,name\n7,seven\n")
    with caplog.at_level(logging.WARNING):
        assert run() == [{"id": 7, "name": "seven"}]
    assert "truncated" in caplog.text
    path.unlink()
    assert run() == []
    path.write_text("")
    assert run() == []
    path.write_text("id,name\n7,seven\n")
    assert run() == [{"id": 7, "name": "seven"}]


def test_half_a_json_line_waits(spark, tmp_path, caplog):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}\n{"a": 2}')
    run = Runs(spark, stream("json", str(path), replication_method="INCREMENTAL"))
    assert run() == [{"a": 1}, {"a": 2}]
    with path.open("a") as file:
        file.write('\n{"a": 3')
    with caplog.at_level(logging.WARNING):
        assert run() == []
    assert "left for the next run" in caplog.text
    with path.open("a") as file:
        file.write("4}\n")
    assert run() == [{"a": 34}]


def test_waves_end_in_bookmarks_a_cut_run_goes_on_from(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "WAVE_BYTES", 40)
    monkeypatch.setattr(resume, "PIECE_BYTES", 10)
    path = tmp_path / "a.csv"
    path.write_text("id\n" + "".join(f"{n}\n" for n in range(100)))
    run = Runs(spark, stream("csv", str(path), replication_method="INCREMENTAL"))
    assert [row["id"] for row in run()] == list(range(100))
    assert len(run.slices) > 5
    read = [row["id"] for piece in run.slices[:3] for row in piece.frame.collect()]
    run.state = dict(run.slices[2].bookmark)
    assert [*read, *(row["id"] for row in run())] == list(range(100))


def test_a_damaged_position_is_an_error(spark, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x\n")
    run = Runs(spark, stream("text", str(path), replication_method="INCREMENTAL"))
    run.state = {"files": {str(path): {"offset": "far"}}}
    with pytest.raises(SourceError, match="file positions are damaged"):
        run()


def test_unknown_keys_of_the_bookmark_stay(spark, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x\n")
    run = Runs(spark, stream("text", str(path), replication_method="INCREMENTAL"))
    run.state = {"mine": [1]}
    assert run() == [{"value": "x"}]
    assert run.state["mine"] == [1]
