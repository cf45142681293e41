"""Growing files read by Spark across runs: only what is new, and warnings where it is not."""

from __future__ import annotations

import gzip
import logging
import os
from decimal import Decimal

import pytest
from tap_runs import read_all, stream

from shared.errors import SourceError
from tap_spark.config import TapConfig
from tap_spark.discovery import catalog_for
from tap_spark.sources import resume
from tap_spark.sources.failures import source_error

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


def gz(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def plain(text: str) -> bytes:
    return text.encode()


@pytest.mark.parametrize(("name", "packed"), [("a.csv", plain), ("a.csv.gz", gz)])
def test_truncation_is_noticed_and_marks_follow(spark, tmp_path, caplog, name, packed):
    path = tmp_path / name
    path.write_bytes(packed("id\n" + "".join(f"{n}\n" for n in range(100, 200))))
    run = Runs(spark, stream("csv", str(tmp_path), replication_method="INCREMENTAL"))
    assert len(run()) == 100
    for text in ("id\n7\n", "id\n", ""):
        content = packed(text) if text else b""
        path.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = run()
        assert found == ([{"id": 7}] if "7" in text else [])
        assert "truncated" in caplog.text or "rewritten" in caplog.text
        assert (str(path) in run.state["files"]) == bool(content)
        caplog.clear()
        assert (run(), run.slices, caplog.text) == ([], [], "")
    path.write_bytes(packed("id\n8\n"))
    assert run() == [{"id": 8}]


@pytest.mark.parametrize(("name", "packed"), [("a.csv", plain), ("a.csv.gz", gz)])
def test_a_touched_file_is_looked_into_once(spark, tmp_path, name, packed):
    path = tmp_path / name
    path.write_bytes(packed("id\n1\n"))
    run = Runs(spark, stream("csv", str(path), replication_method="INCREMENTAL"))
    run()
    os.utime(path, ns=(5, 5))
    assert run() == []
    assert run.state["files"][str(path)]["mtime"] == "5"
    assert run() == []
    assert run.slices == []


def test_a_header_that_changed_is_noticed_while_resuming(spark, tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("id,name\n1,one\n")
    run = Runs(spark, stream("csv", str(tmp_path), replication_method="INCREMENTAL"))
    run()
    (tmp_path / "a.csv").write_text("name,id\ntwo,2\n")
    with path.open("a") as file:
        file.write("3,three\n")
    with pytest.raises(SourceError, match="differs from that of the other files"):
        run()
    (tmp_path / "a.csv").unlink()
    path.write_text("id,title\n1,one\n")
    with pytest.raises(SourceError, match="no longer in the source: name"):
        run()


def test_arrays_in_lines_are_as_many_records(spark, tmp_path):
    path = tmp_path / "a.json"
    first = '{"a": 0.12345678901234567891, "b": "x"}\n'
    more = ' [{"a": 2.12345678901234567891, "b": "é\\n"}, {"a": 3, "b": "[1]"}]\n[]\n{"a": 4}\n'
    path.write_text(first)
    config = stream(
        "json", str(path), replication_method="INCREMENTAL", schema="a DECIMAL(38,20), b STRING"
    )
    run = Runs(spark, config)
    found = run()
    with path.open("a") as file:
        file.write(more)
    found += run()
    whole = stream("json", str(path), schema="a DECIMAL(38,20), b STRING")
    assert found == read_all(spark, whole)[0]
    assert found[0]["a"] == Decimal("0.12345678901234567891")
    assert [row["b"] for row in found] == ["x", "é\n", "[1]", None]
    with path.open("a") as file:
        file.write('[{"a": 5}, {"a"\n')
    with pytest.raises(Exception) as caught:
        run()
    text = str(source_error("s", caught.value))
    assert '{"a": 5}, {"a"' in text
    assert str(path) in text


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
def test_documents_of_several_values_are_refused(spark, tmp_path, method):
    path = tmp_path / "a.json"
    path.write_text('{\n  "a": "} {"\n}\n')
    config = stream("json", str(path), replication_method=method)
    assert read_all(spark, config)[0] == [{"a": "} {"}]
    path.write_text('{\n  "a": 1\n}\n{\n  "a": 2\n}\n')
    with pytest.raises(Exception) as caught:
        read_all(spark, config)
    text = str(source_error("s", caught.value))
    assert "several JSON values" in text
    assert f"file '{path}'" in text


def test_a_real_file_in_many_waves_and_ranges(spark, data_dir, monkeypatch):
    path = data_dir / "zipcodes.csv"
    monkeypatch.setattr(resume, "WAVE_BYTES", path.stat().st_size // 3)
    monkeypatch.setattr(resume, "PIECE_BYTES", 100_003)
    config = stream("csv", str(path), replication_method="INCREMENTAL")
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    found, slices = read_all(spark, config, catalog=catalog)
    assert len(slices) > 2
    whole = stream("csv", str(path))
    assert found == read_all(spark, whole)[0]
