"""File tables without Spark: commits, evolution, overwrite and refusals of every format."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from engines import threads
from file_tables import AB, Table, rewrite_here, struct
from pyspark.sql.types import LongType, StructField, StructType
from whole_runs import run_target

from shared.errors import DestinationError, SettingsError
from shared.formats.file_formats import FORMATS, Encoding
from shared.storage.urls import join
from target_spark.config import target_config
from target_spark.core.load_plans import SchemaContract, TableName
from target_spark.destinations.destination import Tools
from target_spark.destinations.destination_declaration import FILE_FORMATS as DECLARED
from target_spark.destinations.files.file_destination import file_destination
from target_spark.destinations.files.stored_columns import TableSchema, merge_columns
from target_spark.destinations.folders import stored_folder
from target_spark.destinations.folders.stored_folder import RemoteFolder
from target_spark.destinations.folders.table_folder import FolderChange, table_path
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader
from target_spark.run_settings import OverlapSettings
from target_spark.tables.version_edit import VersionEdit

ALL = tuple(declared.name for declared in DECLARED)


AC = struct("a bigint, c string")
REAL = struct("a double, b string")


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "GRACE_SECONDS", 0.0)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return lambda *args, **more: Table(str(tmp_path / "out"), *args, **more)


@pytest.mark.parametrize("form", ALL)
class TestConformance:
    def test_a_flush_is_visible_whole_after_its_commit(self, table: Any, form: str) -> None:
        t = table(form)
        flush = t.flush(AB, [(1, "x")], [(2, "y"), (3, None)])
        assert not t.folder.exists()
        t.destination.commit(flush)
        assert t.values() == [1, 2, 3]
        t.destination.commit(t.flush(AB, [(4, "z")]))
        assert t.values() == [1, 2, 3, 4]

    def test_a_repeated_commit_changes_nothing(self, table: Any, form: str) -> None:
        t = table(form)
        flush = t.flush(AB, [(1, "x")], [(2, "y")])
        t.destination.commit(flush)
        t.destination.commit(flush)
        assert t.values() == [1, 2]

    def test_abort(self, table: Any, form: str) -> None:
        t = table(form)
        flush = t.flush(AB, [(1, "x")])
        t.destination.abort(flush)
        t.destination.abort(flush)
        t.destination.finish(t.request())
        assert [n for n in os.listdir(t.folder.parent) if not n.startswith(".")] == []

    def test_finish_tidies_up(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(AB, [(1, "x")]))
        t.destination.finish(t.request())
        t.destination.finish(t.request())
        assert sorted(os.listdir(t.folder.parent)) == [".s.lock", ".s.schema", "s"]

    def test_overwrite_at_the_end_only(self, table: Any, form: str) -> None:
        old = table(form)
        old.destination.commit(old.flush(AB, [(1, "x")]))
        t = table(form, overwrite=True)
        t.destination.commit(t.flush(AC, [(2, "y")]))
        flush = t.flush(AB, [(3, "y")], [(4, "y")])
        t.destination.commit(flush)
        t.destination.commit(flush)
        assert t.values() == [1]
        t.destination.finish(t.request())
        assert t.values() == [2, 3, 4]

    def test_failed_overwrite_leaves_the_table(self, table: Any, form: str) -> None:
        old = table(form)
        old.destination.commit(old.flush(AB, [(1, "x")]))
        t = table(form, overwrite=True)
        t.destination.commit(t.flush(AB, [(2, "y")]))
        t.destination._close()
        assert t.values() == [1]
        assert not [n for n in os.listdir(t.folder.parent) if t.destination._run in n]

    def test_added_and_widened_columns(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(AB, [(1, "x")], [(2, "y")]))
        t.destination.commit(t.flush(AC, [(3, None, "z")]))
        t.destination.commit(t.flush(REAL, [(4.5, "w", None)]))
        assert t.values() == [1, 2, 3, 4.5]
        existing = TableSchema.from_bytes((t.folder.parent / ".s.schema").read_bytes())
        assert existing.struct.simpleString() == "struct<a:double,b:string,c:string>"
        if form != "json":
            assert {str(sorted(row)) for row in t.rows()[-1:]} == {"['a', 'b', 'c']"}

    def test_parts_written_before_the_table_changed(self, table: Any, form: str) -> None:
        t = table(form)
        early = t.flush(AB, [(1, "x")])
        t.destination.commit(t.flush(REAL, [(2.5, "y")]))
        t.destination.commit(early)
        assert sorted(t.values()) == [1, 2.5]

    def test_another_format_there(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(AB, [(1, "x")]))
        other = "csv" if form == "parquet" else "parquet"
        with pytest.raises(DestinationError, match=f"holds {form} files and `format` is {other}"):
            table(other).prepare()
        with pytest.raises(DestinationError, match="cannot be written to"):
            table(other, overwrite=True).prepare()

    def test_strange_files_there(self, table: Any, form: str) -> None:
        t = table(form)
        t.folder.mkdir(parents=True)
        (t.folder / "notes.txt").write_text("mine")
        for overwrite in (False, True):
            with pytest.raises(DestinationError, match=f"'notes.txt' in it is not a {form} file"):
                table(form, overwrite=overwrite).prepare()

    def test_an_empty_stream(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(AB))
        t.destination.commit(t.flush(AB))
        assert t.rows() == []
        parts = [n for n in os.listdir(t.folder) if not n.startswith("_")]
        assert len(parts) == (0 if form == "json" else 1)


READERS = {
    "duckdb": lambda folder: duckdb.sql(f"from read_parquet('{folder}/*.parquet')").df(),
    "pandas": pd.read_parquet,
    "polars": lambda folder: pl.read_parquet(f"{folder}/").to_pandas(),
    "polars, named files": lambda folder: pl.read_parquet(f"{folder}/*.parquet").to_pandas(),
    "pyarrow": lambda folder: pq.read_table(folder).to_pandas(),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("ddl", "row", "columns"),
    [
        ("a bigint, c string", {"a": 2, "c": "z"}, "a bigint, b string, c string"),
        ("d date, a bigint", {"a": 2}, "a bigint, b string, d date"),
        ("a bigint", {"a": 2}, "a bigint, b string"),
        ("b string, a bigint", {"a": 2, "b": "y"}, "a bigint, b string"),
        ("a double", {"a": 2.0}, "a double, b string"),
        ("a decimal(22,2)", {"a": Decimal("2.00")}, "a decimal(22,2), b string"),
        ("a bigint, n string", {"a": 2}, "a bigint, b string, n string"),
    ],
)
def test_all_readers_read_a_folder_as_one_table(
    table: Any, reader: str, ddl: str, row: Any, columns: str
) -> None:
    for overwrite in (False, True):
        t = table(overwrite=overwrite)
        t.destination.commit(t.flush(AB, [(1, "x")]))
        t.destination.commit(t.flush(struct(ddl), [row]))
        t.destination.commit(t.flush(AB, [(3, "w")]))
        t.destination.finish(t.request())
        rows = READERS[reader](str(t.folder)).sort_values("a")
        assert list(rows.columns) == struct(columns).names
        assert [int(value) for value in rows["a"]] == [1, 2, 3]
        assert [rows["b"].iloc[0], rows["b"].iloc[2]] == ["x", "w"]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_new_fields_inside_columns_reach_all_files(table: Any, form: str) -> None:
    def nested(*names: str) -> StructType:
        inside = StructType([StructField(name, LongType()) for name in names])
        return StructType([StructField("a", LongType()), StructField("s", inside)])

    t = table(form)
    t.destination.commit(t.flush(nested("x"), [(1, {"x": 1})]))
    t.destination.commit(t.flush(nested("y"), [(2, {"y": 2})]))
    read = ds.dataset(t.folder, format=form).to_table().to_pylist()
    assert sorted(read, key=lambda row: row["a"]) == [
        {"a": 1, "s": {"x": 1, "y": None}},
        {"a": 2, "s": {"x": None, "y": 2}},
    ]


def test_files_of_other_programs(table: Any) -> None:
    t = table()
    t.folder.mkdir(parents=True)
    theirs = t.folder / "x.snappy.parquet"
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), theirs)
    (t.folder / "_SUCCESS").touch()
    content = theirs.read_bytes()
    t.destination.commit(t.flush(struct("a bigint"), [(2, None)]))
    t.destination.commit(t.flush(AB, [(3, "y")]))
    assert sorted(t.values()) == [1, 2, 3]
    assert theirs.read_bytes() == content
    assert (t.folder / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("a bigint", r"'x\.parquet', would be rewritten \(.*'a' from int to bigint"),
        ("a integer, b string", r"'x\.parquet', would be rewritten \(add the column 'b'"),
    ],
)
def test_files_of_other_programs_are_rewritten_by_a_setting_only(
    table: Any, ddl: str, text: str
) -> None:
    t = table()
    t.folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), t.folder / "x.parquet")
    with pytest.raises(SettingsError, match=text) as raised:
        t.prepare(struct(ddl))
    assert raised.value.where.setting == "schema_contract.rules"
    assert os.listdir(t.folder) == ["x.parquet"]
    t.contract = SchemaContract(rules="evolve")
    t.destination.commit(t.flush(struct(ddl), [(2, "y")]))
    assert sorted(t.values()) == [1, 2]
    assert len({pq.read_schema(path) for path in t.folder.glob("*.parquet")}) == 1
    # They are ours by now.
    t.contract = SchemaContract()
    t.destination.commit(t.flush(struct("c string"), [(None, None, "z")]))


@pytest.mark.parametrize("form", ALL)
def test_overwrite_removes_files_of_other_programs_by_a_setting_only(table: Any, form: str) -> None:
    t = table(form)
    t.destination.commit(t.flush(AB, [(1, "x")]))
    t = table(form, overwrite=True)
    t.destination.commit(t.flush(AB, [(2, "y")]))
    (t.folder / "README.md").write_text("mine")
    (t.folder / f"x.{form}").touch()
    before = set(os.listdir(t.folder))
    for step in (t.prepare, partial(t.destination.finish, t.request())):
        with pytest.raises(SettingsError, match=rf"would remove files .*'x\.{form}'") as raised:
            step()
        assert raised.value.where.setting == "schema_contract.rules"
    assert set(os.listdir(t.folder)) == before
    t.contract = SchemaContract(rules="evolve")
    t.destination.finish(t.request())
    t.destination.commit(t.flush(AB, [(3, "z")]))
    t.destination.finish(t.request())
    assert set(os.listdir(t.folder)) & before == {"README.md"}
    (t.folder / "README.md").unlink()
    assert t.values() == [3]


def test_a_delta_table_is_no_folder_of_files(table: Any) -> None:
    t = table()
    t.folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), t.folder / "x.parquet")
    (t.folder / "_delta_log").mkdir()
    with pytest.raises(DestinationError, match="it is a Delta table"):
        t.prepare()


def test_files_of_other_programs_with_different_types(table: Any) -> None:
    t = table()
    t.folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": pa.array([1], pa.int64())}), t.folder / "x.parquet")
    pq.write_table(pa.table({"a": pa.array([1.5])}), t.folder / "y.parquet")
    with pytest.raises(DestinationError, match="different types for the same column"):
        t.prepare()


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ({}, "timestamp_ntz"),
        ({"use_deprecated_int96_timestamps": True}, "timestamp"),
        ({"schema": pa.schema({"at": pa.timestamp("ns", "UTC")})}, "timestamp"),
    ],
)
def test_times_in_files_of_other_programs(table: Any, written: dict[str, Any], kind: str) -> None:
    t = table()
    t.folder.mkdir(parents=True)
    data = pa.table({"at": pa.array([datetime(2026, 1, 1)], pa.timestamp("ns"))})
    data = data.cast(written.pop("schema", data.schema))
    pq.write_table(data, t.folder / "x.parquet", **written)
    other = {"timestamp": "timestamp_ntz", "timestamp_ntz": "timestamp"}[kind]
    t.destination.commit(t.flush(struct(f"at {kind}"), [(None,)]))
    with pytest.raises(SettingsError, match=f"from {kind} to {other}"):
        t.prepare(struct(f"at {other}"))


@pytest.mark.parametrize(
    ("value", "kind"),
    [(1, pa.uint8()), (1, pa.uint64()), ([1], pa.list_(pa.uint32())), (1, pa.decimal256(50, 2))],
)
def test_types_of_other_programs_that_spark_lacks(table: Any, value: Any, kind: Any) -> None:
    t = table()
    t.folder.mkdir(parents=True)
    value = Decimal(value) if pa.types.is_decimal(kind) else value
    pq.write_table(pa.table({"a": [1], "n": pa.array([value], kind)}), t.folder / "x.parquet")
    with pytest.raises(DestinationError, match=r"column 'n' of 'x\.parquet' in it is "):
        t.prepare()


@pytest.mark.parametrize("form", ["csv", "json"])
def test_text_files_of_other_programs(table: Any, form: str) -> None:
    t = table(form)
    t.folder.mkdir(parents=True)
    (t.folder / f"x.{form}").write_text("a\n1\n")
    with pytest.raises(DestinationError, match="were not written by target-spark"):
        t.prepare()


def test_names_of_earlier_flushes_are_not_kept(table: Any) -> None:
    t = table()
    for number in range(3):
        t.destination.commit(t.flush(AB, [(number, "x")]))
    [step] = t.destination._steps.values()
    assert len(step.change.add) == 1
    t.destination.finish(t.request())
    assert not t.destination._steps


def test_damaged_side_file_and_damaged_footer(table: Any) -> None:
    t = table()
    t.folder.mkdir(parents=True)
    (t.folder / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(DestinationError, match=r"'x\.parquet' in it cannot be read"):
        t.prepare()
    (t.folder / "x.parquet").rename(t.folder / f"part-{0:013d}-x.parquet")
    (t.folder.parent / f".{t.folder.name}.schema").write_text("{")
    with pytest.raises(DestinationError, match="side file cannot be read"):
        t.prepare()


@pytest.mark.parametrize("commits", [True, False])
def test_types_with_nothing_in_common(table: Any, *, commits: bool) -> None:
    t = table()
    flush = t.flush(AB, [(1, "x")])
    if commits:
        t.destination.commit(flush)
    with pytest.raises(SettingsError, match="column 'b' cannot change from string to bigint"):
        t.prepare(struct("b bigint"))


KINDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "a": lambda kind: kind,
    "o": lambda kind: {"type": "object", "properties": {"b": kind}},
    "l": lambda kind: {"type": "array", "items": kind},
    "m": lambda kind: {"type": "object", "additionalProperties": kind},
}
ODD = (1 << 53) + 1


def loaded(folder: Path, *sent: tuple[str, list[Any]]) -> list[Any]:
    """Load records of some types into a table, and return all its rows."""
    config = target_config({"path": str(folder / "out"), "add_record_metadata": False,
                            "failure": {"policy": "LogAndContinue"}})  # fmt: skip
    folder.mkdir(exist_ok=True)
    messages = []
    for name, records in sent:
        properties = {key: kind({"type": ["null", name]}) for key, kind in KINDS.items()}
        schema = {"properties": {"id": {"type": "integer"}, **properties}}
        messages.append({"type": "SCHEMA", "stream": "t", "schema": schema})
        messages += [{"type": "RECORD", "stream": "t", "record": one} for one in records]
    with closing(Loader(config, threads())) as loader:
        run_target(config, loader, folder, messages)
    rows: list[Any] = ds.dataset(folder / "out" / "t").to_table().to_pylist()
    return rows


@pytest.mark.parametrize(
    ("odd", "place"),
    [({"a": ODD}, "a"), ({"o": {"b": -ODD}}, "o.b"), ({"l": [1, ODD]}, "l[]"),
     ({"m": {"x": 1, "y": ODD}}, "m[]")],
)  # fmt: skip
def test_integers_that_a_double_does_not_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, odd: dict[str, Any], place: str
) -> None:
    whole = {"a": ODD - 1, "o": {"b": 3}, "l": [1, None, 2], "m": {"x": 5}}
    loaded(tmp_path, ("number", [{"id": 1, "a": 1.5}]))
    sent = [{"id": 2, **whole}, {"id": 3, **odd}, {"id": 4}]
    rows = {row["id"]: row for row in loaded(tmp_path, ("integer", sent))}
    assert (rows.keys(), rows[2]["a"], rows[2]["l"]) == ({1, 2, 4}, float(ODD - 1), [1, None, 2])
    reason = rf"line 3: rejected: property '{re.escape(place)}': -?{ODD} is not between"
    assert re.search(reason, caplog.text)
    loaded(tmp_path / "whole", ("integer", sent))
    text = rf"column '{re.escape(place)}' cannot change from bigint to double: -?{ODD} would change"
    with pytest.raises(SettingsError, match=text):
        loaded(tmp_path / "whole", ("number", [{"id": 5}]))
    with pytest.raises(SettingsError, match=text):
        loaded(tmp_path / "run", *((kind, sent) for kind in ("integer", "number", "integer")))


@pytest.mark.parametrize("name", ["a", "o", "l", "m"])
def test_times_that_arrow_cannot_read_from_orc(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    inside = {"a": lambda time: time, "o": lambda time: {"b": time}, "l": lambda time: [None, time],
              "m": lambda time: {"x": time}}[name]  # fmt: skip
    kind = KINDS[name]({"type": ["null", "string"], "format": "date-time"})
    times = ["1677-09-22T00:00:00Z", "9999-12-31T00:00:00Z", "0001-01-01T00:00:00Z",
             "2262-04-11T00:00:00Z"]  # fmt: skip
    schema = {"properties": {"id": {"type": "integer"}, name: kind}}
    messages = [{"type": "SCHEMA", "stream": "t", "schema": schema}]
    messages += [
        {"type": "RECORD", "stream": "t", "record": {"id": number, name: inside(time)}}
        for number, time in enumerate(times)
    ]
    config = {"path": str(tmp_path / "out"), "format": "orc", "add_record_metadata": False,
              "failure": {"policy": "LogAndContinue"}}  # fmt: skip
    with closing(Loader(target_config(config), threads())) as loader:
        run_target(target_config(config), loader, tmp_path, messages)
    rows = ds.dataset(tmp_path / "out" / "t", format="orc").to_table().to_pylist()
    assert [row["id"] for row in rows] == [0, 3]
    assert "9999-12-31 00:00:00.000000Z is not between 1677-09-22 and 2262-04-11" in caplog.text


@pytest.mark.parametrize(
    ("maps", "ids"),
    [
        ({"at": None, "year": "str(at)[:4]"}, [1]),
        ({"at": "None if at else at"}, [1]),
        ({"at": None, "until": "at"}, []),
        ({"at": None, "far": "datetime.datetime(9999, 12, 31)"}, []),
    ],
)
def test_times_of_orc_are_checked_behind_maps(
    tmp_path: Path, maps: dict[str, Any], ids: list[int]
) -> None:
    at = {"type": ["null", "string"], "format": "date-time"}
    schema = {"properties": {"id": {"type": "integer"}, "at": at}}
    record = {"id": 1, "at": "9999-12-31T00:00:00Z"}
    messages = [{"type": "SCHEMA", "stream": "t", "schema": schema},
                {"type": "RECORD", "stream": "t", "record": record}]  # fmt: skip
    config = {"path": str(tmp_path / "out"), "format": "orc", "stream_maps": {"t": maps},
              "failure": {"policy": "LogAndContinue"}}  # fmt: skip
    with closing(MappedLoader(target_config(config), threads())) as loader:
        run_target(target_config(config), loader, tmp_path, messages)
    rows = ds.dataset(tmp_path / "out" / "t", format="orc").to_table().to_pylist()
    assert [row["id"] for row in rows] == ids


def test_rows_that_no_rewrite_keeps_are_no_bad_input(tmp_path: Path) -> None:
    table = tmp_path / "out" / "t"
    table.mkdir(parents=True)
    column = pa.array([1], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"id": [1], "c": column}), table / "a.parquet")
    properties = {"id": {"type": "integer"}, "new": {"type": "string"}}
    messages = [{"type": "SCHEMA", "stream": "t", "schema": {"properties": properties}},
                {"type": "RECORD", "stream": "t", "record": {"id": 2, "new": "x"}}]  # fmt: skip
    config = target_config({"path": str(tmp_path / "out"), "add_record_metadata": False,
                            "schema_contract": {"rules": "evolve"}})  # fmt: skip
    with (
        closing(Loader(config, threads())) as loader,
        pytest.raises(
            SettingsError, match=r"a\.parquet' cannot get other columns or rows: Casting"
        ),
    ):
        run_target(config, loader, tmp_path, messages)


def test_columns_that_differ_by_case_only() -> None:
    with pytest.raises(SettingsError, match="columns 'a', 'A' of 'p' differ only in case"):
        merge_columns(AB, struct("A string"), "p")
    with pytest.raises(SettingsError, match="no columns"):
        merge_columns(None, StructType([]), "p")


def test_a_commit_that_fails_shows_nothing_and_may_be_repeated(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = table()
    t.destination.commit(t.flush(AB, [(1, "x")]))
    flush = t.flush(AC, [(2, None, "y")], [(3, None, "y")])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(stored_folder, "exchange", full)
        with pytest.raises(DestinationError, match=r"No space left on device.*free some disk"):
            t.destination.commit(flush)
    assert t.values() == [1]
    t.destination.commit(flush)
    assert t.values() == [1, 2, 3]


def settings(**more: Any) -> Any:
    base = {
        "path": "/p", "format": "parquet", "options": {}, "default_target_schema": None,
        "table_prefix": "", "load_method": "append-only",
    }  # fmt: skip
    own = {"storage_options": {}, "overlapping_runs": OverlapSettings()}
    config: Any = SimpleNamespace(**{**own, **base, **more})
    return file_destination(config, Tools(pytest.fail, rewrite_here))


def test_where_tables_lie() -> None:
    assert table_path(settings().path, TableName("a/b")) == "/p/a%2Fb"
    assert table_path(settings().path, TableName("_ts", "x")) == "/p/x/%5Fts"
    assert table_path(settings(path="s3://b/k/").path, TableName("s")) == "s3://b/k/s"
    assert settings(path="~/p").path == str(Path("~/p").expanduser())


def test_settings_of_files() -> None:
    assert settings().encoding == Encoding("parquet", "snappy")
    assert settings(options={"Compression": "ZSTD"}).encoding.compression == "zstd"
    assert settings(options={"compression": "uncompressed"}).encoding.compression == "none"
    assert settings(format="csv").encoding == Encoding("csv", "none")
    for wrong, match in (
        ({"options": {"compression": "rar"}}, "'rar' is not one of none, snappy"),
        ({"options": {"delimiter": ";"}}, "options.delimiter"),
        ({"path": ""}, "setting 'path'"),
    ):
        with pytest.raises(SettingsError, match=match):
            settings(**wrong)


@pytest.mark.parametrize("form", ALL)
def test_object_stores(form: str) -> None:
    path = f"memory://bucket-{form}/out"
    t = Table(path, form)
    t.destination.commit(t.flush(AB, [(1, "x")], [(2, "y")]))
    folder = RemoteFolder(t.table, "look")
    assert len(folder.files()) == 2
    t.destination.finish(t.request())
    over = Table(path, form, overwrite=True)
    over.flushes = 10  # tokens are never those of another run
    over.destination.commit(over.flush(AB, [(3, "z")]))
    over.destination.abort(over.flush(AB, [(4, "z")]))
    assert len(folder.files()) == 2
    over.destination.finish(over.request())
    assert len(folder.files()) == 1
    assert TableSchema.from_bytes(folder.side() or b"").format == form
    folder.close()


def appended(t: Table) -> Callable[[], Any]:
    return partial(t.destination.commit, t.flush(AB, [(1, "x")], [(2, "y")]))


def appended_to_narrower_columns(t: Table) -> Callable[[], Any]:
    t.destination.commit(t.flush(AB, [(1, "x")], [(2, "y")]))
    return partial(t.destination.commit, t.flush(REAL, [(2.5, "z")]))


def replaced(t: Table) -> Callable[[], Any]:
    t.destination.commit(t.flush(AB, [(1, "x")], [(2, "y")]))
    t.destination.finish(t.request())
    t.method = "overwrite"
    t.destination.commit(t.flush(AB, [(3, "x")], [(4, "y")]))
    t.destination.commit(t.flush(AB, [(5, "x")]))
    return partial(t.destination.finish, t.request())


def activated(edit: VersionEdit, t: Table) -> Callable[[], Any]:
    columns = struct("a bigint, _sdc_deleted_at timestamp, _sdc_table_version bigint")
    t.destination.commit(t.flush(columns, [(1, None, 1), (2, None, 2)], [(3, None, 1)]))
    t.destination.commit(t.flush(columns, [(4, None, 2)]))
    return partial(t.destination.activate, t.request(columns), edit)


STEPS: tuple[Callable[[Table], Callable[[], Any]], ...] = (
    appended,
    appended_to_narrower_columns,
    replaced,
    partial(activated, VersionEdit(2, True, 0.0)),
    partial(activated, VersionEdit(2, False, 0.0)),
)


@pytest.mark.parametrize("place", ["memory://", ""])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_may_be_repeated_wherever_it_has_failed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[[Table], Callable[[], Any]],
    place: str,
) -> None:
    """What its first attempt has written counts neither as older rows nor twice."""
    names = ["cp_file", "rm_file", "pipe_file", "find"] if place else ["make_durable", "link"]

    def rows(t: Table) -> list[dict[str, Any]]:
        folder = t.destination._closed_folder(t.request())
        urls = [join(folder.table, name) for name in folder.files()]
        tables = [table for url in urls for table in FORMATS["parquet"].read(url)]
        actual = [row for table in tables for row in table.to_pylist()]
        return sorted(actual, key=lambda row: row["a"])

    def outcome(failing: str, at: int) -> tuple[Any, list[dict[str, Any]], bool]:
        where = f"{uuid4()}/out"
        t = Table(f"memory://{where}" if place else str(tmp_path / where))
        taken = step(t)
        if place:
            owner: Any = type(RemoteFolder(t.table, "look")._place[0])
        else:
            owner = os if failing == "link" else stored_folder
        works, calls = getattr(owner, failing), itertools.count(1)

        def fails_once(*args: Any, **more: Any) -> Any:
            if next(calls) == at:
                raise ConnectionResetError(104, "reset")
            return works(*args, **more)

        with monkeypatch.context() as patched:
            patched.setattr(owner, failing, fails_once)
            try:
                result = taken()
            except DestinationError:
                result = taken()
        return result, rows(t), next(calls) > at

    expected = outcome(names[0], sys.maxsize)[:2]
    for name in names:
        for at in itertools.count(1):
            *actual, has_failed = outcome(name, at)
            assert tuple(actual) == expected, (name, at)
            if not has_failed:
                break


def test_failures_that_are_no_os_errors_name_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: Any, **more: Any) -> None:
        raise RuntimeError("no credentials")

    folder = RemoteFolder("memory://odd/out/s", "look")
    monkeypatch.setattr(type(folder._place[0]), "pipe_file", missing)
    with pytest.raises(DestinationError, match="memory://odd/out/s': RuntimeError: no credentials"):
        folder.publish(FolderChange({}, side=b"{}"))
