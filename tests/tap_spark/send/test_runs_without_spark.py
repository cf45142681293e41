"""Runs that end without Spark: nothing asks for a session."""

from __future__ import annotations

import itertools
import json
import os
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from engines import engine_without_spark, threads
from full_disks import largest_file
from pyspark.sql.types import LongType, StringType, StructField, StructType

from shared.errors import DestinationError, PartialRunError, SettingsError, SourceError
from shared.formats import columnar_encoding
from shared.singer.run_summary import RunSummary
from shared.singer.stdout import MessageOutput
from shared.storage.access import remote
from tap_spark.config import tap_config
from tap_spark.plan.catalog import build_entry
from tap_spark.plan.discovery import discovered_catalog
from tap_spark.plan.run_options import CatalogRules, RunOptions
from tap_spark.send import batch_plan, batch_tasks, batch_writer, slices, sync, trials
from tap_spark.send.trials import dry_run, run_test
from tap_spark.sources.files import csv_blocks, driver_files
from tap_spark.sources.files.file_positions import fingerprint

STRUCT = StructType([StructField("id", LongType()), StructField("name", StringType())])
FILES = {"csv": b"id,name\n1,a\n", "json": b'{"id": 1, "name": "a"}\n', "parquet": b"PAR1"}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sync, trials):
        monkeypatch.setattr(module, "engine_of", engine_without_spark)


def run(
    folder: Path,
    settings: dict[str, Any],
    catalog: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
    summary: RunSummary | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return the messages of a run."""
    out = folder / "out.jsonl"
    config = tap_config(settings)
    with out.open("wb") as file:
        output = MessageOutput(os.dup(file.fileno()))
        try:
            sync.run_sync(config, catalog, state, output, RunOptions(**options), summary)
        finally:
            output.close()
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize(
    ("header", "options", "warned"),
    [
        ("id;name", {}, "';'"),
        ("id\tname", {}, "'\\t'"),
        ("id|name", {"Header": "true"}, "'|'"),
        ("id;name", {"Sep": ";"}, None),
        ("id;x,name", {}, None),
        ("id", {}, None),
    ],
)
def test_another_separator_is_suspected(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    header: str,
    options: dict[str, str],
    warned: str | None,
) -> None:
    lines = [header, header.replace("id", "1").replace("name", "a")]
    (tmp_path / "a.csv").write_text("\n".join([*lines, ""]))
    path = str(tmp_path / "a.csv")
    stream = {"name": "s", "format": "csv", "path": path, "options": options}
    run(tmp_path, {"streams": [stream]})
    shown = [text for text in caplog.messages if "set the option 'sep'" in text]
    assert len(shown) == (warned is not None)
    assert warned is None or f"to {warned} if" in shown[0]


def position(path: Path) -> dict[str, Any]:
    """Return the position of a file that was read to its end."""
    stat = path.stat()
    digest = fingerprint(str(path), stat.st_size)
    mtime = str(stat.st_mtime_ns)
    size = stat.st_size
    return {"offset": size, "size": size, "mtime": mtime, "fingerprint": digest}


def of_type(kind: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] == kind]


@pytest.mark.parametrize("more", [{}, {"stream_maps": {"*": {"new": "'x'"}}}, {"batch_config": {}}])
@pytest.mark.parametrize("kind", FILES)
def test_files_without_anything_new(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    file = tmp_path / f"data.{kind}"
    file.write_bytes(FILES[kind])
    stream = {"name": "s", "format": kind, "path": str(file), "replication_method": "INCREMENTAL"}
    catalog = {"streams": [build_entry("s", STRUCT, replication_method="INCREMENTAL")]}
    state = {"bookmarks": {"s": {"files": {str(file): position(file)}}}}
    messages = run(tmp_path, {"streams": [stream], **more}, catalog, state)
    assert [message["type"] for message in messages] == ["SCHEMA", "STATE"]
    assert messages[-1]["value"] == state


@pytest.mark.parametrize("has_catalog", [False, True])
def test_positions_stay_if_nothing_is_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_catalog: bool
) -> None:
    folder = f"memory://{tmp_path.name}-none"
    remote(folder)[0].makedirs(folder)
    catalog = {"streams": [build_entry("s", STRUCT, replication_method="INCREMENTAL")]}
    state = {"bookmarks": {"s": {"files": {"gone.csv": {}}}}}
    stream = {"name": "s", "format": "csv", "replication_method": "INCREMENTAL"}

    def run_on(path: str, **more: Any) -> list[dict[str, Any]]:
        settings = {"streams": [{**stream, "path": path, **more}], "stream_maps": {"s": {}}}
        return run(tmp_path, settings, catalog if has_catalog else None, state)

    (tmp_path / "empty").mkdir()
    for path in (str(tmp_path / "empty"), str(tmp_path / "*.csv"), folder, f"{folder}/*.csv"):
        assert run_on(path) == [{"type": "STATE", "value": state}]
        (warning,) = (r.message for r in caplog.records if r.levelname == "WARNING")
        assert warning == "stream 's': found no files; keeping all 1 file positions"
        caplog.clear()
    with pytest.raises(SourceError, match="does not exist"):
        run_on(str(tmp_path / "missing.csv"))
    with pytest.raises(SourceError, match="no file matches"):
        run_on(str(tmp_path / "mistyped" / "*.csv"))
    if not has_catalog:
        with pytest.raises(SourceError, match="no file matches"):
            run_on(str(tmp_path / "*.csv"), replication_method="FULL_TABLE")


@pytest.mark.parametrize(
    ("text", "more", "has_work"),
    [
        ("id,name\n", {"replication_method": "INCREMENTAL"}, False),
        ("id,name\n1,a\n", {"replication_method": "INCREMENTAL"}, True),
        ("id,name\n", {}, True),
    ],
)
def test_what_is_something_to_do(
    tmp_path: Path, text: str, more: dict[str, Any], has_work: bool
) -> None:
    """The table of a FULL_TABLE stream whose source is empty becomes empty, too."""
    (tmp_path / "data.csv").write_text(text)
    stream = {"name": "s", "format": "csv", "path": str(tmp_path / "data.csv"), **more}
    summary = RunSummary("tap-spark")
    messages = run(tmp_path, {"streams": [stream]}, summary=summary)
    kinds = {message["type"] for message in messages}
    assert summary.has_work is has_work is bool(kinds & {"RECORD", "ACTIVATE_VERSION"})
    assert messages[-1]["type"] == "STATE"


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_small_files_of_a_remote_storage(tmp_path: Path, kind: str, method: str) -> None:
    path = f"memory://{tmp_path.name}/data.{kind}"
    remote(path)[0].pipe_file(path, FILES[kind])
    stream = {"name": "s", "format": kind, "path": path, "replication_method": method}
    [record] = of_type("RECORD", run(tmp_path, {"streams": [stream]}))
    assert record["record"] == {"id": 1, "name": "a"}


@pytest.mark.parametrize("missing", ["gone.csv", "gone/", "gone*.csv", "http://127.0.0.1:9/a.csv"])
def test_each_of_several_remote_paths_has_files(tmp_path: Path, missing: str) -> None:
    """The rows of the others would replace the whole table; later files of a path are new rows."""
    folder = f"memory://{tmp_path.name}"
    filesystem, _ = remote(folder)
    filesystem.pipe_file(f"{folder}/data.csv", FILES["csv"])
    filesystem.makedirs(f"{folder}/empty")
    wrong = missing if "://" in missing else f"{folder}/{missing}"
    paths = [f"{folder}/data.csv", f"{folder}/d*.csv", f"{folder}/empty"]
    stream = {"name": "s", "format": "csv", "path": [*paths, wrong]}
    with pytest.raises(SourceError, match=r"'s', file .*/(gone|a).*: no file matches the path"):
        run(tmp_path, {"streams": [stream]})
    for accepted in ({"replication_method": "INCREMENTAL"}, {"path": paths}):
        messages = run(tmp_path, {"streams": [{**stream, **accepted}]})
        assert len(of_type("RECORD", messages)) == 1


def test_spark_reads_what_this_program_cannot_reach_or_what_is_many(tmp_path: Path) -> None:
    folder = f"memory://{tmp_path.name}"
    for number in range(driver_files.MOST_REMOTE_FILES + 1):
        remote(folder)[0].pipe_file(f"{folder}/{number}.csv", FILES["csv"])
    for path in ("abc://bucket/data.csv", folder):
        stream = {"name": "s", "format": "csv", "path": path}
        with pytest.raises(pytest.fail.Exception, match="Spark was started"):
            run(tmp_path, {"streams": [stream]})


def test_a_file_that_was_touched_gets_a_new_bookmark(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_bytes(FILES["csv"])
    stream = {"name": "s", "format": "csv", "path": str(file), "replication_method": "INCREMENTAL"}
    catalog = {"streams": [build_entry("s", STRUCT, replication_method="INCREMENTAL")]}
    before = position(file)
    os.utime(file, ns=(1, 1))
    messages = run(
        tmp_path,
        {"streams": [stream]},
        catalog,
        {"bookmarks": {"s": {"files": {str(file): before}}}},
    )
    after = of_type("STATE", messages)[-1]["value"]["bookmarks"]["s"]["files"][str(file)]
    assert after == {**before, "mtime": "1"}


@pytest.fixture
def orders(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "a.csv").write_text('id,name,at\n1,"a ""b""",2024-01-01T00:00:00Z\n')
    (folder / "b.csv").write_text("id,name,at\n2,,2024-01-02T00:00:00+01:00\n3,")
    return {"name": "s", "format": "csv", "path": str(folder), "replication_method": "INCREMENTAL"}


@pytest.mark.parametrize("schema", [None, "id BIGINT, name STRING, at TIMESTAMP"])
def test_small_csv_files_are_discovered_and_read(
    tmp_path: Path, orders: dict[str, Any], schema: str | None
) -> None:
    settings = {"streams": [{**orders, **({"schema": schema} if schema else {})}]}
    first = run(tmp_path, settings)
    assert [message["type"] for message in first] == ["SCHEMA", "RECORD", "RECORD", "STATE"]
    assert [message["record"] for message in of_type("RECORD", first)] == [
        {"id": 1, "name": 'a "b"', "at": "2024-01-01T00:00:00.000000+00:00"},
        {"id": 2, "name": None, "at": "2024-01-01T23:00:00.000000+00:00"},
    ]
    with Path(orders["path"], "b.csv").open("a") as file:
        file.write("c,2024-01-03T00:00:00Z\n")
    second = run(tmp_path, settings, state=first[-1]["value"])
    (record,) = of_type("RECORD", second)
    assert record["record"] == {"id": 3, "name": "c", "at": "2024-01-03T00:00:00.000000+00:00"}
    assert "RECORD" not in {m["type"] for m in run(tmp_path, settings, state=second[-1]["value"])}


def test_with_continue_streams_that_cannot_be_planned_are_left_out(
    tmp_path: Path, orders: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    gone = {"name": "gone", "format": "csv", "path": str(tmp_path / "gone.csv")}
    settings = {"streams": [gone, orders], "on_stream_failure": "continue"}
    supplied = {"bookmarks": {"gone": {"files": {}}}}
    with pytest.raises(PartialRunError, match=r"1 of 2 streams failed: stream 'gone', file .*"):
        run(tmp_path, settings, state=supplied)
    messages = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {message["stream"] for message in messages if "stream" in message} == {"s"}
    assert len(of_type("RECORD", messages)) == 2
    assert set(messages[-1]["value"]["bookmarks"]) == {"gone", "s"}
    assert messages[-1]["value"]["bookmarks"]["gone"] == {"files": {}}
    errors = [item.getMessage() for item in caplog.records if item.levelname == "ERROR"]
    assert len(errors) == 1
    assert errors[0].endswith("going on with the other streams")


def test_with_stop_a_stream_that_cannot_be_planned_ends_the_run(
    tmp_path: Path, orders: dict[str, Any]
) -> None:
    gone = {"name": "gone", "format": "csv", "path": str(tmp_path / "gone.csv")}
    with pytest.raises(SourceError, match="stream 'gone'"):
        run(tmp_path, {"streams": [orders, gone]})
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_only_chosen_streams_are_looked_for_and_read(
    tmp_path: Path, orders: dict[str, Any]
) -> None:
    gone = {"name": "gone", "format": "csv", "path": str(tmp_path / "gone.csv")}
    state = {"bookmarks": {"gone": {"files": {"x": {"offset": 5}}}}}
    messages = run(tmp_path, {"streams": [gone, orders]}, state=state, streams=("s",))
    assert len(of_type("RECORD", messages)) == 2
    last = messages[-1]["value"]["bookmarks"]
    assert last["gone"] == state["bookmarks"]["gone"]
    assert set(last) == {"gone", "s"}


def test_a_full_refresh_reads_a_stream_again(tmp_path: Path, orders: dict[str, Any]) -> None:
    other = {**orders, "name": "other"}
    settings = {"streams": [orders, other]}
    state = run(tmp_path, settings)[-1]["value"]
    assert of_type("RECORD", run(tmp_path, settings, state=state)) == []
    again = run(tmp_path, settings, state=state, full_refresh=("oth*",))
    assert [message["stream"] for message in of_type("RECORD", again)] == ["other", "other"]
    assert again[-1]["value"] == state
    kept = {"bookmarks": {**state["bookmarks"], "of another": {"x": 1}}}
    again = run(
        tmp_path, settings, state=kept, full_refresh=("*",), rules=CatalogRules(("!other",))
    )
    assert again[-1]["value"] == kept


@pytest.mark.parametrize(("limit", "ids"), [(1, [1]), (2, [1, 2]), (9, [1, 2])])
@pytest.mark.parametrize("method", ["INCREMENTAL", "FULL_TABLE"])
def test_a_limited_run_writes_no_state_and_activates_no_version(
    tmp_path: Path, orders: dict[str, Any], method: str, limit: int, ids: list[int]
) -> None:
    Path(orders["path"], "b.csv").write_text("id,name,at\n2,,2024-01-02T00:00:00+01:00\n")
    settings = {"streams": [{**orders, "replication_method": method}]}
    messages = run(tmp_path, settings, state={"bookmarks": {"x": {}}}, limit=limit)
    assert {message["type"] for message in messages} == {"SCHEMA", "RECORD"}
    records = of_type("RECORD", messages)
    assert [message["record"]["id"] for message in records] == ids
    # The next complete run removes these rows by their version.
    assert {"version" in message for message in records} == {method == "FULL_TABLE"}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_test_reads_one_record(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a").write_bytes(FILES[kind] + FILES[kind].splitlines(keepends=True)[-1])
    stream = {"name": "orders", "format": kind, "path": str(tmp_path / "a")}
    batch = {"encoding": {"format": "parquet"}, "storage": {"root": str(tmp_path / "batches")}}
    out = tmp_path / "out.jsonl"
    with out.open("wb") as file:
        output = MessageOutput(os.dup(file.fileno()))
        config = tap_config({"streams": [stream], "batch_config": batch})
        run_test(config, "all", None, output)
        output.close()
    schema, record = map(json.loads, out.read_text().splitlines())
    assert (schema["type"], record["record"]) == ("SCHEMA", {"id": 1, "name": "a"})


def test_a_dry_run_logs_the_plan(
    orders: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    Path(orders["path"], "b.csv").write_text("id,name,at\n2,,2024-01-02T00:00:00+01:00\n")
    settings = {"streams": [orders, {**orders, "name": "t", "replication_method": "FULL_TABLE"}]}
    state = run(tmp_path, settings, streams=("s",))[-1]["value"]
    caplog.clear()
    dry_run(tap_config(settings), None, state, RunOptions())
    first, second = [item.getMessage() for item in caplog.records]
    assert first == (
        "stream 's': INCREMENTAL by file and line, after 2 known file(s); "
        "3 column(s): id, name, at; 2 file(s), 0.0 MB, 0.0 MB of it new"
    )
    assert second.startswith("stream 't': FULL_TABLE of every row; 3 column(s): id, name, at; 2 fi")


@pytest.mark.parametrize(("policy", "kind"), [("stop", SourceError), ("continue", PartialRunError)])
def test_a_dry_run_finds_what_is_missing(
    orders: dict[str, Any], policy: str, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config = tap_config({"streams": [orders], "on_stream_failure": policy})
    catalog = discovered_catalog(threads(), config)
    other = {**catalog["streams"][0], "tap_stream_id": "gone", "stream": "gone"}
    gone = {**orders, "name": "gone", "path": orders["path"] + "/gone.csv"}
    config = tap_config({"streams": [gone, orders], "on_stream_failure": policy})
    with pytest.raises(kind, match="stream 'gone'"):
        dry_run(config, {"streams": [other, *catalog["streams"]]}, None)
    assert any(item.getMessage().startswith("stream 's': ") for item in caplog.records)


def test_a_large_file_with_a_schema_is_looked_at_only_at_its_start(
    tmp_path: Path, orders: dict[str, Any]
) -> None:
    path = Path(orders["path"], "large.csv")
    path.write_bytes(b"id,name,at\r\n" + b"1,a,2024-01-01\r\n" * 8000 + b"\xff\n")
    config = tap_config({"streams": [{**orders, "schema": "id INT, at DATE"}]})
    (entry,) = discovered_catalog(threads(), config)["streams"]
    assert list(entry["schema"]["properties"]) == ["id", "at"]


@pytest.fixture
def batches(tmp_path: Path) -> dict[str, Any]:
    """Return settings for BATCH files."""
    encoding = {"format": "parquet", "compression": "snappy"}
    return {"encoding": encoding, "storage": {"root": str(tmp_path / "batches")}}


def batch_rows(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    urls = [url for message in of_type("BATCH", messages) for url in message["manifest"]]
    return [row for url in urls for row in pq.read_table(url.removeprefix("file://")).to_pylist()]


LINES = [
    '{"id": 1, "name": "a", "tags": ["x"], "at": {"y": 1.5}, "old": null}',
    '{"id": 2, "at": {"x": true, "y": 1e9}, "tags": [null, "\\ud83c\\udf89"]}',
]
ROWS = [
    {"at": {"x": None, "y": 1.5}, "id": 1, "name": "a", "old": None, "tags": ["x"]},
    {"at": {"x": True, "y": 1e9}, "id": 2, "name": None, "old": None, "tags": [None, "🎉"]},
]


@pytest.fixture
def events(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "events.jsonl").write_text("\n".join([*LINES, ""]))
    path = str(tmp_path / "events.jsonl")
    return {"name": "s", "format": "json", "path": path, "replication_method": "INCREMENTAL"}


def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, batches: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first rows have been sent: Spark cannot read them anew."""
    (tmp_path / "a.csv").write_text("id,at\n" + "1,2024-01-01\n" * 100)
    monkeypatch.setattr(driver_files, "BLOCK_BYTES", 400)
    monkeypatch.setattr(batch_tasks.BatchTask.__init__, "__defaults__", (None, 8, ()))
    typed = csv_blocks.CsvBlocks.typed
    announce = batch_writer.BatchWriter._announce
    blocks, announced = itertools.count(), threading.Event()

    def announcing(self: Any, written: Any, key: Any) -> None:
        announce(self, written, key)
        announced.set()

    monkeypatch.setattr(batch_writer.BatchWriter, "_announce", announcing)

    def changing(self: Any, block: Any, places: Any, types: Any) -> Any:
        rows = typed(self, block, places, types)
        if next(blocks):
            # Before its first message the run could still leave the stream to Spark.
            announced.wait(60)
            (tmp_path / "a.csv").write_text("id,at\n" + "1,nowhen\n" * 200)
        return rows

    monkeypatch.setattr(csv_blocks.CsvBlocks, "typed", changing)
    settings = {"streams": [{"name": "s", "format": "csv", "path": str(tmp_path / "a.csv")}]}
    with pytest.raises(SourceError, match="stream 's': a file changed while it was read") as error:
        run(tmp_path, {**settings, "batch_config": batches})
    assert error.value.exit_code == DestinationError.exit_code
    sent = (tmp_path / "out.jsonl").read_text()
    assert "BATCH" in sent
    assert "STATE" not in sent


def test_small_files_of_json_lines_are_discovered_and_read(
    tmp_path: Path, events: dict[str, Any]
) -> None:
    first = run(tmp_path, {"streams": [events]})
    assert [message["record"] for message in of_type("RECORD", first)] == ROWS
    with Path(events["path"]).open("a") as file:
        file.write('{"id": 3}\n{"id": 4, "na')
    schema = "id BIGINT, name STRING"
    second = run(tmp_path, {"streams": [{**events, "schema": schema}]}, state=first[-1]["value"])
    assert [message["record"] for message in of_type("RECORD", second)] == [{"id": 3, "name": None}]
    with Path(events["path"]).open("a") as file:
        file.write('me": "d", "more": []}')
    third = run(tmp_path, {"streams": [{**events, "schema": schema}]}, state=second[-1]["value"])
    assert [message["record"] for message in of_type("RECORD", third)] == [{"id": 4, "name": "d"}]
    assert of_type("STATE", third)[-1]["value"]["bookmarks"]["s"]["files"][events["path"]] == {
        **position(Path(events["path"])),
        "lines": 3,
    }


def test_fields_that_are_not_selected_are_left_out(tmp_path: Path, events: dict[str, Any]) -> None:
    config = {"streams": [{**events, "replication_method": "FULL_TABLE"}]}
    catalog = discovered_catalog(threads(), tap_config(config))
    for item in catalog["streams"][0]["metadata"]:
        if item["breadcrumb"] in (["properties", "tags"], ["properties", "at", "properties", "y"]):
            item["metadata"]["selected"] = False
    records = of_type("RECORD", run(tmp_path, config, catalog))
    assert [message["record"] for message in records] == [
        {"at": {"x": None}, "id": 1, "name": "a", "old": None},
        {"at": {"x": True}, "id": 2, "name": None, "old": None},
    ]


def test_small_files_of_json_lines_become_batch_files(
    tmp_path: Path, events: dict[str, Any], batches: dict[str, Any]
) -> None:
    messages = run(tmp_path, {"streams": [events], "batch_config": batches})
    assert batch_rows(messages) == ROWS


def test_csv_files_of_any_size_become_batch_files(
    tmp_path: Path, orders: dict[str, Any], batches: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_files, "BLOCK_BYTES", 32)
    settings = {"streams": [orders], "batch_config": batches}
    first = run(tmp_path, settings)
    assert {message["type"] for message in first} == {"SCHEMA", "BATCH", "STATE"}
    assert sorted(batch_rows(first), key=lambda row: row["id"]) == [
        {"id": 1, "name": 'a "b"', "at": datetime(2024, 1, 1, tzinfo=timezone.utc)},
        {"id": 2, "name": None, "at": datetime(2024, 1, 1, 23, tzinfo=timezone.utc)},
    ]
    with Path(orders["path"], "b.csv").open("a") as file:
        file.write("c,2024-01-03T00:00:00Z\n")
    second = run(tmp_path, settings, state=first[-1]["value"])
    (row,) = batch_rows(second)
    assert row["name"] == "c"
    third = run(tmp_path, settings, state=second[-1]["value"])
    assert [message["type"] for message in third] == ["SCHEMA", "STATE"]
    published = {url for message in first + second for url in message.get("manifest", ())}
    assert {f"file://{path}" for path in (tmp_path / "batches").iterdir()} == published


def many_orders(folder: str) -> list[int]:
    """Write a larger file; return the ids of all orders, in order."""
    lines = [f'{number},"a, b",2024-01-02T00:00:00Z\n' for number in range(3, 200)]
    Path(folder, "c.csv").write_text("id,name,at\n" + "".join(lines))
    return [1, 2, *range(3, 200)]


def test_records_of_csv_files_come_in_order(
    tmp_path: Path, orders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_files, "BLOCK_BYTES", 64)
    numbers = many_orders(orders["path"])
    records = of_type("RECORD", run(tmp_path, {"streams": [orders]}))
    assert [message["record"]["id"] for message in records] == numbers


@pytest.mark.parametrize("late", ["04,d,2024-01-03T00:00:00Z\n", "5,d\n"])
def test_records_are_left_to_spark_before_the_first_is_written(
    tmp_path: Path, orders: dict[str, Any], monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    catalog = discovered_catalog(threads(), tap_config({"streams": [orders]}))
    monkeypatch.setattr(driver_files, "BLOCK_BYTES", 64)
    many_orders(orders["path"])
    with Path(orders["path"], "c.csv").open("a") as file:
        file.write(late)
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, {"streams": [orders]}, catalog)
    assert "RECORD" not in (tmp_path / "out.jsonl").read_text()


def test_records_beyond_the_limit_are_left_to_spark(tmp_path: Path, orders: dict[str, Any]) -> None:
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, {"streams": [orders], "spark_above": 10})


@pytest.mark.parametrize(
    "more",
    [
        {"batch_size": 10},
        {"encoding": {"format": "jsonl", "compression": "none"}},
    ],
)
def test_exact_files_and_lines_are_left_to_spark(
    tmp_path: Path, orders: dict[str, Any], batches: dict[str, Any], more: dict[str, Any]
) -> None:
    settings = {"streams": [orders], "batch_config": {**batches, **more}}
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, settings)


@pytest.mark.parametrize("master", ["local[1]", "local[64]", "spark://localhost:7077", "yarn"])
def test_the_rule_is_the_same_for_every_master(
    tmp_path: Path, orders: dict[str, Any], batches: dict[str, Any], master: str
) -> None:
    settings = {"streams": [orders], "batch_config": batches, "spark": {"master": master}}
    summary = RunSummary("tap-spark")
    assert len(batch_rows(run(tmp_path, settings, summary=summary))) == 2
    assert summary.as_dict(None)["streams"]["s"]["engine"] == "threads"
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, {**settings, "spark_above": 10})
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, {**settings, "engine": "spark"})


def test_records_wait_on_disk_until_spark_need_not_read_them(
    tmp_path: Path, orders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "HELD_BYTES", 1)
    monkeypatch.setattr(driver_files, "BLOCK_BYTES", 32)
    settings: dict[str, Any] = {"streams": [orders], "spool": {"root": str(tmp_path)}}
    before = sorted(tmp_path.iterdir())
    assert len(of_type("RECORD", run(tmp_path, settings))) == 2
    catalog = discovered_catalog(threads(), tap_config(settings))
    with Path(orders["path"], "b.csv").open("a") as file:
        file.write("c,2024-01-03T00:00:00Z\n04,d,2024-01-03T00:00:00Z\n")
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, settings, catalog)
    assert b"RECORD" not in (tmp_path / "out.jsonl").read_bytes()
    assert {*tmp_path.iterdir()} - {*before} == {tmp_path / "out.jsonl"}


@pytest.mark.parametrize("limit", [700, 2_000, 6_000])
def test_a_full_disk_of_waiting_records_names_the_setting(
    tmp_path: Path, orders: dict[str, Any], monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(slices, "HELD_BYTES", 1)
    monkeypatch.setattr(driver_files, "BLOCK_BYTES", 64)
    many_orders(orders["path"])
    root = tmp_path / "new" / "spool"
    settings: dict[str, Any] = {"streams": [orders], "spool": {"root": str(root)}}
    catalog = discovered_catalog(threads(), tap_config(settings))
    hint = r"setting 'spool.root': cannot write to the spool folder: File too large"
    with largest_file(limit), pytest.raises(DestinationError, match=hint):
        run(tmp_path, settings, catalog)
    assert list(root.iterdir()) == []
    assert of_type("RECORD", run(tmp_path, settings, catalog))


def test_with_threads_what_only_spark_reads_is_an_error(
    tmp_path: Path, orders: dict[str, Any]
) -> None:
    settings = {"streams": [orders], "engine": "threads"}
    catalog = discovered_catalog(threads(), tap_config(settings))
    with Path(orders["path"], "b.csv").open("a") as file:
        file.write("c,2024-01-03T00:00:00Z\n04,d,2024-01-03T00:00:00Z\n")
    with pytest.raises(SettingsError, match="never starts: what the files hold"):
        run(tmp_path, settings, catalog)


@pytest.mark.parametrize("staged", [True, False])
def test_if_one_value_is_left_to_spark_no_file_stays(
    tmp_path: Path,
    orders: dict[str, Any],
    batches: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    staged: bool,
) -> None:
    settings = {"streams": [orders], "batch_config": batches}
    catalog = discovered_catalog(threads(), tap_config(settings))
    with Path(orders["path"], "b.csv").open("a") as file:
        file.write("c,2024-01-03T00:00:00Z\n04,d,2024-01-03T00:00:00Z\n")
    if not staged:
        monkeypatch.setattr(batch_plan, "staging_folder_for", lambda _: None)
    # The first file is a row group: it is written before the other is read.
    monkeypatch.setattr(columnar_encoding, "ROW_GROUP_BYTES", 1)
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, settings, catalog)
    assert not list((tmp_path / "batches").iterdir())


def test_selected_columns_of_whole_files(tmp_path: Path, orders: dict[str, Any]) -> None:
    stream = {**orders, "replication_method": "FULL_TABLE", "path": orders["path"] + "/a.csv"}
    config = {"streams": [stream]}
    catalog = discovered_catalog(threads(), tap_config(config))
    for item in catalog["streams"][0]["metadata"]:
        if item["breadcrumb"] == ["properties", "name"]:
            item["metadata"]["selected"] = False
    messages = run(tmp_path, config, catalog)
    (record,) = of_type("RECORD", messages)
    assert record["record"] == {"id": 1, "at": "2024-01-01T00:00:00.000000+00:00"}
    assert record["version"] == messages[1]["version"]


def test_names_by_position_are_left_to_spark_if_there_is_a_header(
    tmp_path: Path, orders: dict[str, Any]
) -> None:
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, {"streams": [{**orders, "schema": "a BIGINT, b STRING, c TIMESTAMP"}]})


@pytest.mark.parametrize(
    "change",
    [
        {"spark": {"remote": "sc://localhost"}},
        {"spark": {"conf": {"spark.sql.caseSensitive": "true"}}},
    ],
)
def test_another_configuration_is_left_to_spark(
    tmp_path: Path, orders: dict[str, Any], change: dict[str, Any]
) -> None:
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        run(tmp_path, {"streams": [orders], **change})
