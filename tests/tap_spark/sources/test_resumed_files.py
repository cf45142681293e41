"""Growing files read by Spark across runs: only new lines, and warnings for files read again."""

from __future__ import annotations

import gzip
import logging
import os
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal

import pytest
from tap_runs import read_all, stream

from shared.errors import SourceError
from tap_spark.config import TapConfig
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.sources.files import resumable_files
from tap_spark.sources.formats import FixedColumn
from tap_spark.sources.source_failures import source_error
from tap_spark.state.bookmarks import advance, advance_positions, finish_stream

pytestmark = pytest.mark.spark


UNTERMINATED = {"replication_method": "INCREMENTAL", "read_unterminated_line": True}


class Runs:
    """Runs of one stream, each with the state of the one before."""

    def __init__(self, spark, config):
        self.spark, self.config, self.state = spark, config, {}
        self.catalog = catalog_for(spark, TapConfig(streams=(config,)))

    def __call__(self):
        actual, slices = read_all(
            self.spark, self.config, catalog=self.catalog, state={"bookmarks": {"s": self.state}}
        )
        self.slices = slices
        if slices:
            self.state = dict(slices[-1].bookmark)
        return actual


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
    (path.parent / "b.csv").write_text("id,name\n10,ten\n")
    assert run() == [{"id": 3, "name": "three"}, {"id": 10, "name": "ten"}]
    assert run.state["files"][str(path)]["lines"] == 4
    assert run() == []
    with (path.parent / "b.csv").open("a") as file:
        file.write("11,eleven\n")
    assert [row["name"] for row in run()] == ["eleven"]
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
    with caplog.at_level(logging.INFO, "tap-spark"):
        assert run() == []
    assert "has no line end yet and is read once it has" in caplog.text
    with path.open("a") as file:
        file.write("4}\n")
    assert run() == [{"a": 34}]


COLUMNS = (FixedColumn("id", 1, 2), FixedColumn("n", 4, 5))
LATIN = {"options": {"encoding": "ISO-8859-1"}}
LINES = [
    ("csv", "id,n\n", "1,10\n", "2,19", "99\n3,30\n", ["2", "1999", "3", "30"], {}),
    ("csv", "id,n\n", "1,é\n", "2", ",àü\r\n3,é\r", ["2", "àü", "3", "é"], LATIN),
    ("text", "", "1 10\n", "2 19", "99\n3 30\n", ["2 1999", "3 30"], {}),
    (
        *("fixed_width", "", " 1    10\n", " 2", "  1999\n 3    30\n"),
        *(["2", "1999", "3", "30"], {"columns": COLUMNS}),
    ),
    (
        *("json", "", '{"id":1,"n":10}\n', '{"id":2,"n":19', '99}\n{"id":3,"n":30}\n'),
        *(["2", "1999", "3", "30"], {}),
    ),
]


@pytest.mark.parametrize(("kind", "head", "first", "cut", "rest", "after", "more"), LINES)
def test_a_line_without_end_waits(
    spark, tmp_path, caplog, kind, head, first, cut, rest, after, more
):
    """Resumed or by replication key; types are inferred from the lines that are read."""

    def texts(config):
        return sorted(" ".join(map(str, row.values())) for row in read_all(spark, config)[0])

    coding = more.get("options", {}).get("encoding", "utf-8")
    path = tmp_path / "d ata" / f"a.{kind}"
    path.parent.mkdir()
    (path.parent / f"b.{kind}").write_bytes((head + first).encode(coding))
    path.write_bytes((head + first + cut).encode(coding))
    key = "value" if kind == "text" else "id"
    resumed = stream(kind, str(path.parent), replication_method="INCREMENTAL", **more)
    keyed = replace(resumed, replication_key=key)
    with caplog.at_level(logging.INFO, "tap-spark"):
        run = Runs(spark, resumed)
        begun = run()
        assert len(begun) == 2
        assert caplog.text.count("has no line end yet and is read once it has") == 1
        whole = texts(keyed)
        assert whole == sorted(" ".join(map(str, row.values())) for row in begun)
        assert caplog.text.count("has no line end yet and is read once it has") == 2
        assert run() == []
        assert "they have not changed since the last run" in caplog.text
    with path.open("ab") as file:
        file.write(rest.encode(coding))
    actual = run()
    assert sorted(line for row in actual for line in map(str, row.values())) == sorted(after)
    assert run() == []


@pytest.mark.parametrize(
    "kind", [case[0] for case in LINES if "options" not in case[-1] and case[0] != "text"]
)
def test_a_line_that_waits_is_read_though_its_key_is_below_the_bookmark(
    spark, tmp_path, caplog, kind
):
    def lines(*numbers):
        form = {"csv": "{},{}", "json": '{{"id":{},"n":{}}}', "fixed_width": "{:2} {:2}"}[kind]
        return "\n".join(form.format(n, n) for n in numbers)

    head, end = "id,n\n" if kind == "csv" else "", "\n"
    path, other = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    path.write_text(head + lines(10) + end)
    more = {"columns": COLUMNS} if kind == "fixed_width" else {}
    config = stream(kind, str(tmp_path), replication_key="n", key_properties=("id",), **more)
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    (plan,) = plan_streams(TapConfig(streams=(config,)), catalog, None, 1)
    state = {}

    def ids(text=None, file=path):
        nonlocal state
        if text is not None:
            with file.open("a") as stream:
                stream.write(text)
        actual, slices = read_all(spark, config, catalog=catalog, state=state)
        for piece in slices:
            state = advance_positions(plan, piece.bookmark or {}, state)
        newest = max((row["n"] for row in actual), default=None)
        state = finish_stream(advance(state, plan, newest, ordered=False), plan)
        return sorted(row["id"] for row in actual)

    assert ids(lines(2)[:-1]) == [10]
    assert ids() == [10]
    assert ids(head + lines(12, 11)[:-1], other) == [10, 12]
    # Bounds are those of the run that a line waited in first.
    assert ids(lines(2)[-1:] + end + lines(8) + end + lines(3)[:-1]) == [2, 8, 12]
    assert ids(lines(11)[-1:] + end + lines(1) + end, other) == [11, 12]
    assert ids(lines(3)[-1:] + end + lines(13, 9)[:-1]) == [12, 13]
    assert "has grown" not in caplog.text
    path.write_text(head + lines(4, 12, 9) + end)
    with caplog.at_level(logging.WARNING):
        assert ids() == [12]
    assert "was truncated since the last run: reading it again" in caplog.text
    assert state["bookmarks"]["s"]["waiting_lines"] == {}


def test_lines_that_never_end_are_read_at_once_on_demand(spark, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,n\n1,10\n2,19")
    for settings in ({"replication_method": "FULL_TABLE"}, {"replication_key": "id"}, UNTERMINATED):
        actual, _ = read_all(spark, stream("csv", str(path), **settings))
        assert [row["n"] for row in actual] == ([10] if "replication_key" in settings else [10, 19])
    run = Runs(spark, stream("csv", str(path), **UNTERMINATED))
    assert len(run()) == 2
    assert run() == []
    path.write_text("id,n\n1,10\n2,1999\n3,30\n")
    assert [row["n"] for row in run()] == [1999, 30]


def test_a_header_without_end_waits(spark, tmp_path):
    (tmp_path / "b.csv").write_text("id,name\n1,one\n")
    run = Runs(spark, stream("csv", str(tmp_path), replication_method="INCREMENTAL"))
    assert run() == [{"id": 1, "name": "one"}]
    path = tmp_path / "a.csv"
    for text in ("", "\n", "\nid,na"):
        path.write_text(text)
        assert catalog_for(spark, TapConfig(streams=(run.config,))) == run.catalog
        assert run() == []
        assert str(path) not in run.state["files"]
    path.write_text("\nid,name\n2,two\n")
    assert run() == [{"id": 2, "name": "two"}]
    alone = tmp_path / "alone" / "c.csv"
    alone.parent.mkdir()
    alone.write_text("id,na")
    with pytest.raises(SourceError, match="the files have no lines"):
        read_all(spark, stream("csv", str(alone), replication_method="INCREMENTAL"))


def test_files_that_are_read_whole_leave_out_the_line_too(spark, tmp_path, caplog):
    """A compressed file beside makes the stream resume by file."""
    (tmp_path / "a.csv.gz").write_bytes(gz("id,n\n1,10"))
    path = tmp_path / "b.csv"
    path.write_text("id,n\n2,19\n3,2")
    run = Runs(spark, stream("csv", str(tmp_path), replication_method="INCREMENTAL"))
    with caplog.at_level(logging.INFO, "tap-spark"):
        assert run() == [{"id": 1, "n": 10}, {"id": 2, "n": 19}]
        assert caplog.text.count("has no line end yet and is read once it has") == 1
        assert run() == []
    assert "they have not changed since the last run" in caplog.text
    assert "reading it again" not in caplog.text
    at_once = Runs(spark, stream("csv", str(tmp_path), **UNTERMINATED))
    at_once.state = run.state
    path.write_text("id,n\n2,19\n3,2999\n")
    assert run() == [{"id": 2, "n": 19}, {"id": 3, "n": 2999}]
    path.write_text("id,n\n2,19\n3,2")
    assert at_once() == [{"id": 2, "n": 19}, {"id": 3, "n": 2}]
    assert at_once() == []


def test_bad_lines_before_a_waiting_one_are_reported(spark, tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}\n{"a" 2}\n{"a": 3')
    config = stream("json", str(path), replication_method="INCREMENTAL")
    with pytest.raises(SourceError, match="a row cannot be read"):
        read_all(spark, config)


@pytest.mark.costly
def test_a_killed_run_resumes_after_a_wave(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(resumable_files, "WAVE_BYTES", 24)
    monkeypatch.setattr(resumable_files, "RANGE_BYTES", 12)
    path = tmp_path / "a.csv"
    path.write_text("id\n" + "".join(f"{n}\n" for n in range(50)))
    run = Runs(spark, stream("csv", str(path), replication_method="INCREMENTAL"))
    assert [row["id"] for row in run()] == list(range(50))
    assert len(run.slices) > 5
    read = [row["id"] for piece in run.slices[:3] for row in piece.frame.collect()]
    run.state = dict(run.slices[2].bookmark)
    assert [*read, *(row["id"] for row in run())] == list(range(50))


def test_files_that_come_back_are_not_read_again_but_positions_expire(spark, tmp_path, caplog):
    folder, away = tmp_path / "in", tmp_path / "away"
    folder.mkdir()
    (folder / "a.csv").write_text("id\n1\n")
    run = Runs(spark, stream("csv", str(folder), replication_method="INCREMENTAL"))
    assert run() == [{"id": 1}]
    first = str(folder / "a.csv")
    folder.rename(away)
    folder.mkdir()
    with caplog.at_level(logging.WARNING):
        assert run() == []
    assert "keeping all" in caplog.text
    assert "gone" not in run.state["files"][first]
    (folder / "b.csv").write_text("id\n2\n")
    assert run() == [{"id": 2}]
    assert run.state["files"][first]["gone"] <= datetime.now(timezone.utc).date().isoformat()
    (away / "a.csv").rename(first)
    assert run() == []
    assert "gone" not in run.state["files"][first]
    (folder / "a.csv").unlink()
    run.state["files"][first]["gone"] = "2020-01-01"
    assert run() == []
    assert set(run.state["files"]) == {str(folder / "b.csv")}


def test_a_damaged_position_is_an_error(spark, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x\n")
    run = Runs(spark, stream("text", str(path), replication_method="INCREMENTAL"))
    run.state = {"files": {str(path): {"offset": "far"}}}
    with pytest.raises(SourceError, match="file positions are invalid"):
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
def test_truncation_is_detected_and_positions_follow(spark, tmp_path, caplog, name, packed):
    path = tmp_path / name
    path.write_bytes(packed("id\n" + "".join(f"{n}\n" for n in range(100, 200))))
    run = Runs(spark, stream("csv", str(tmp_path), replication_method="INCREMENTAL"))
    assert len(run()) == 100
    for text in ("id\n7\n", "id\n", ""):
        content = packed(text) if text else b""
        path.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            actual = run()
        assert actual == ([{"id": 7}] if "7" in text else [])
        assert "truncated" in caplog.text or "rewritten" in caplog.text
        assert (str(path) in run.state["files"]) == bool(content)
        caplog.clear()
        assert (run(), run.slices, caplog.text) == ([], [], "")
    path.write_bytes(packed("id\n8\n"))
    assert run() == [{"id": 8}]


@pytest.mark.parametrize(("name", "packed"), [("a.csv", plain), ("a.csv.gz", gz)])
def test_a_touched_file_is_inspected_once(spark, tmp_path, name, packed):
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
    actual = run()
    with path.open("a") as file:
        file.write(more)
    actual += run()
    whole = stream("json", str(path), schema="a DECIMAL(38,20), b STRING")
    assert actual == read_all(spark, whole)[0]
    assert actual[0]["a"] == Decimal("0.12345678901234567891")
    assert [row["b"] for row in actual] == ["x", "é\n", "[1]", None]
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


@pytest.mark.costly
def test_a_real_file_in_many_waves_and_ranges(spark, data_dir, monkeypatch):
    path = data_dir / "zipcodes.csv"
    monkeypatch.setattr(resumable_files, "WAVE_BYTES", path.stat().st_size // 3)
    monkeypatch.setattr(resumable_files, "RANGE_BYTES", 100_003)
    config = stream("csv", str(path), replication_method="INCREMENTAL")
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    actual, slices = read_all(spark, config, catalog=catalog)
    assert len(slices) > 2
    whole = stream("csv", str(path))
    assert actual == read_all(spark, whole)[0]
