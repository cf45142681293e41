"""ACTIVATE_VERSION for tables of files, without Spark, and once with it."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import IdleSpark, threads
from file_tables import Table, struct
from test_loader import Bench
from whole_runs import run_target

from shared.engine.engine import Engine
from shared.formats.file_formats import FORMATS, Encoding
from target_spark.config import REGISTRY, target_config
from target_spark.convert.converter import rewrite_files
from target_spark.core.load_plans import StreamSchema
from target_spark.destinations.destination import TableWrite
from target_spark.destinations.destination_declaration import FILE_FORMATS as DECLARED
from target_spark.destinations.destination_declaration import Supports
from target_spark.destinations.folders import stored_folder
from target_spark.load.loader import Loader
from target_spark.tables.version_edit import VersionEdit

ALL = tuple(declared.name for declared in DECLARED)
COLUMNS = struct("a bigint, b string, _sdc_deleted_at timestamp, _sdc_table_version bigint")
AT = 1782907200.123456
HARD = VersionEdit(7, True, AT)
SOFT = VersionEdit(7, False, AT)


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "GRACE_SECONDS", 0.0)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return lambda *args, **more: Table(str(tmp_path / "out"), *args, **more)


def filled(t: Table) -> Table:
    """Load five files: old, mixed, new, old but deleted already, without a version."""
    gone = 1577836800000000 if t.form != "json" else "2020-01-01T00:00:00.000000+00:00"
    text = 'say "_sdc_deleted_at":null, {}\\'
    for rows in (
        [(1, "x", None, 5), (2, text, None, 6)],
        [(3, "y", None, 6), (4, None, None, 7)],
        [(5, "z", None, 7), (6, "z", None, 8)],
        [(7, "w", gone, 5)],
        [(8, "v", None, None)],
    ):
        t.destination.commit(t.flush(COLUMNS, rows))
    return t


def deleted(t: Table) -> dict[int, str | None]:
    rows = sorted(t.rows(), key=lambda row: int(row["a"]))
    return {int(row["a"]): str(row["_sdc_deleted_at"] or "")[:10] or None for row in rows}


def names(t: Table) -> set[str]:
    return {name for name in os.listdir(t.folder) if name[0] not in "._"}


class TestFilesThatWereReplaced:
    """Rows of a source that the tap names give way to newer ones, if nobody says otherwise."""

    def load(self, t: Table, source: str | None, *rows: tuple[Any, ...]) -> None:
        flush = t.flush(COLUMNS, rows)
        request = replace(flush.request, source=source)
        t.destination.commit(replace(flush, request=request))

    def activate(self, t: Table, source: str | None, version: int, **more: bool) -> str | None:
        chosen = {"replaces_source": True, **more}
        has_rows = chosen.pop("has_rows", True)
        request = replace(t.request(), source=source, **chosen)
        return t.destination.activate(request, VersionEdit(version, False, AT, has_rows))

    @pytest.mark.parametrize(("form", "what"), [("parquet", "2 rows"), ("csv", "the rows")])
    def test_older_rows_of_the_source_go(self, table: Any, form: str, what: str) -> None:
        t = table(form)
        self.load(t, "S", (1, "x", None, 5), (2, "y", None, 5))
        assert self.activate(t, "S", 5) is None
        self.load(t, "S", (3, "z", None, 6))
        assert self.activate(t, "S", 6, has_rows=False) is None
        assert deleted(t) == {1: None, 2: None, 3: None}
        assert self.activate(t, "S", 6) == f"remove {what} of older versions"
        assert deleted(t) == {3: None}

    def test_explicit_settings_win(self, table: Any) -> None:
        t = table("parquet")
        self.load(t, "S", (1, "x", None, 5))
        self.load(t, "S", (2, "y", None, 6))
        reported = self.activate(t, "S", 6, replaces_source=False)
        assert reported == "mark 1 row of older versions"
        assert deleted(t) == {1: "2026-07-01", 2: None}

    @pytest.mark.parametrize("sources", [("S", "T"), (None, "S"), ("S", None), ("S", "T", "S")])
    def test_rows_of_other_sources_are_marked(
        self, table: Any, sources: tuple[str | None, ...]
    ) -> None:
        t = table("parquet")
        for version, source in enumerate(sources):
            self.load(t, source, (version, "x", None, version))
        last = len(sources) - 1
        assert self.activate(t, sources[-1], last) is not None
        assert deleted(t) == {**dict.fromkeys(range(last), "2026-07-01"), last: None}


@pytest.mark.parametrize("source", ["S", None])
@pytest.mark.parametrize("settings", [{}, {"hard_delete": False}])
def test_runs_that_replace_a_file(
    tmp_path: Path, source: str | None, settings: dict[str, Any]
) -> None:
    """A run that fails, is cut or is empty removes nothing; nor does one of another source."""
    config = target_config({"path": str(tmp_path / "out"), **settings})
    schema = {"properties": {"id": {"type": "integer"}}}
    names = {} if source is None else {"stream_source": source}

    def run(version: int, *ids: int, ends: bool = True) -> dict[int, bool]:
        engine = threads(IdleSpark())
        head = {"type": "SCHEMA", "stream": "s", "schema": schema, "key_properties": [], **names}
        activation = {"type": "ACTIVATE_VERSION", "stream": "s", "version": version}
        records = [
            {"type": "RECORD", "stream": "s", "record": {"id": number}, "version": version}
            for number in ids
        ]
        messages = [head, activation, *records, *([activation] if ends else [])]
        run_target(config, Loader(config, engine), tmp_path, messages, engine)
        rows = pq.read_table(tmp_path / "out" / "s").to_pylist()
        return {row["id"]: row["_sdc_deleted_at"] is not None for row in rows}

    is_replaced = source is not None and not settings
    assert run(1, 1, 2) == {1: False, 2: False}
    marks = not is_replaced
    assert run(2) == {1: marks, 2: marks}
    assert run(3, 3, ends=False) == {1: marks, 2: marks, 3: False}
    wanted = {4: False} if is_replaced else {1: True, 2: True, 3: True, 4: False}
    assert run(4, 4) == wanted


@pytest.mark.parametrize("form", ALL)
class TestFormats:
    def test_hard_delete(self, table: Any, form: str) -> None:
        t = filled(table(form))
        before = names(t)
        t.destination.activate(t.request(), HARD)
        assert t.values() == [4, 5, 6, 8]
        assert len(names(t)) == 3
        assert len(names(t) & before) == 2, "untouched files keep their names"

    def test_soft_delete(self, table: Any, form: str) -> None:
        t = filled(table(form))
        before = names(t)
        t.destination.activate(t.request(), SOFT)
        day, old = "2026-07-01", "2020-01-01"
        assert deleted(t) == {1: day, 2: day, 3: day, 4: None, 5: None, 6: None, 7: old, 8: None}
        assert len(names(t) & before) == 3
        texts = {int(row["a"]): row["b"] for row in t.rows()}
        assert texts[2] == 'say "_sdc_deleted_at":null, {}\\'
        again = names(t)
        t.destination.activate(t.request(), VersionEdit(7, False, AT + 86400))
        assert names(t) == again

    @pytest.mark.parametrize("edit", [HARD, SOFT])
    def test_files_of_others_stay(self, table: Any, form: str, edit: VersionEdit) -> None:
        t = filled(table(form))
        others = [t.folder / "README.md", t.folder / f"x.{form}"]
        for path in others:
            path.write_text("a\n1\n")
        (t.folder / "archive").mkdir()
        assert t.destination.activate(t.request(), edit) is not None
        assert {path.read_text() for path in others} == {"a\n1\n"}
        for path in others:
            path.unlink()
        (t.folder / "archive").rmdir()
        values = t.values() if edit.hard_delete else [a for a, at in deleted(t).items() if not at]
        assert values == [4, 5, 6, 8]

    def test_everything_goes(self, table: Any, form: str) -> None:
        t = filled(table(form))
        t.destination.activate(t.request(), VersionEdit(100, True, AT))
        assert t.values() == [8]
        t = table(form)
        t.flushes = 50
        t.destination.commit(t.flush(COLUMNS, [(9, "q", None, 9)]))
        t.destination.activate(t.request(), VersionEdit(100, True, AT))
        assert t.values() == [8]

    def test_an_empty_table_keeps_its_columns(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(COLUMNS, [(9, "q", None, 5)]))
        t.destination.activate(t.request(), HARD)
        assert t.rows() == []
        t.destination.commit(t.flush(COLUMNS, [(1, "q", None, 8)]))
        assert t.values() == [1]

    def test_a_table_that_does_not_exist(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.activate(t.request(), HARD)
        assert not t.folder.exists()

    def test_rows_without_versions_are_left_alone(self, table: Any, form: str) -> None:
        t = table(form)
        t.destination.commit(t.flush(struct("a bigint, b string"), [(1, "x")]))
        t.destination.activate(t.request(), HARD)
        assert t.values() == [1]

    def test_object_stores(self, form: str) -> None:
        t = filled(Table(f"memory://versions-{form}/out", form))
        t.destination.activate(t.request(), HARD)
        urls = [f"{t.table}/{name}" for name in t.destination.folder(t.request()).files()]
        assert len(urls) == 3
        assert sum(table.num_rows for url in urls for table in FORMATS[form].read(url)) >= 3


def test_order_of_rows_stays(table: Any) -> None:
    t = filled(table())
    t.destination.activate(t.request(), SOFT)
    assert t.values() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_with_overwrite_nothing_changes(table: Any) -> None:
    filled(table())
    over = table(overwrite=True)
    over.destination.activate(over.request(), HARD)
    assert len(over.rows()) == 8


def write(path: Path, versions: list[int | None], deleted_at: list[int | None]) -> str:
    columns = {
        "_sdc_table_version": pa.array(versions, pa.int64()),
        "_sdc_deleted_at": pa.array(deleted_at, pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), path, row_group_size=1)
    return str(path)


@pytest.mark.parametrize(
    ("versions", "deleted_at", "hard", "soft"),
    [
        ([5], [None], False, False),
        ([7, 8], [None, None], True, True),
        ([8, 5], [None, None], False, False),
        ([5, 6], [1, 1], False, True),
        ([None], [None], True, True),
        ([], [], True, True),
    ],
)
def test_footers(tmp_path: Path, versions: Any, deleted_at: Any, hard: bool, soft: bool) -> None:
    url = write(tmp_path / "x.parquet", versions, deleted_at)
    assert HARD.keeps_file(url, "parquet") is hard
    assert SOFT.keeps_file(url, "parquet") is soft


def test_a_footer_without_statistics_or_version(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"_sdc_table_version": [5]}), path, write_statistics=False)
    assert not HARD.keeps_file(str(path), "parquet")
    pq.write_table(pa.table({"a": [5]}), path)
    assert HARD.keeps_file(str(path), "parquet")
    assert not HARD.keeps_file("never opened", "csv")


def test_lines_of_another_program(tmp_path: Path) -> None:
    block = pa.table({"value": pa.array([b'{"a":1}\n\n{"a":2}\n'], pa.large_binary())})
    with pytest.raises(pa.ArrowInvalid, match="no JSON objects"):
        SOFT.apply(block, "json")


def test_only_destinations_that_can(table: Any) -> None:
    assert REGISTRY.get(table().form).supports.versions
    assert not Supports().versions


def test_spark_does_not_start_to_look_at_files(tmp_path: Path) -> None:
    """A FULL_TABLE run ends with ACTIVATE_VERSION, however many files it has written."""
    place = TableWrite(str(tmp_path / "new"), Encoding("parquet"), struct("a bigint"))
    files = [write(tmp_path / f"{n}.parquet", [7], [None]) for n in range(200)]
    assert rewrite_files(threads(), [(url, f"{url}.new") for url in files], place, HARD) == {}


@pytest.mark.spark
class TestWithSpark:
    @pytest.mark.parametrize("form", ["parquet", "json"])
    @pytest.mark.parametrize("hard", [True, False])
    def test_a_run(self, spark: Any, tmp_path: Path, form: str, hard: bool) -> None:
        b = Bench(spark, tmp_path, format=form, hard_delete=hard)
        schema = {"properties": {"id": {"type": "integer"}}}
        b.load(b.staged([{"id": 1}], version=6), b.staged([{"id": 2}], version=7), schema=schema)
        b.loader.activate(StreamSchema("s", {"properties": {"id": {"type": "integer"}}}), 7)
        b.loader.activate(StreamSchema("other", {}), 7)
        rows = spark.read.format(form).load(b.table).orderBy("id").collect()
        assert [(row["id"], row["_sdc_deleted_at"] is None) for row in rows] == (
            [(2, True)] if hard else [(1, False), (2, True)]
        )
        if form == "json" and not hard:
            [first] = Path(b.table).glob("part-*~*")
            assert json.loads(first.read_text())["_sdc_deleted_at"].endswith("+00:00")

    def test_switched_off(self, spark: Any, tmp_path: Path, caplog: Any) -> None:
        for number, settings in enumerate(
            ({"activate_version": False}, {"add_record_metadata": False})
        ):
            b = Bench(spark, tmp_path / str(number), hard_delete=True, **settings)
            b.folder.mkdir()
            b.load(b.staged([{"id": 1}], version=6), schema={"properties": {"id": {}}})
            with caplog.at_level(logging.WARNING):
                caplog.clear()
                b.loader.activate(StreamSchema("s", {"properties": {"id": {"type": "integer"}}}), 7)
                b.loader.activate(StreamSchema("s", {"properties": {"id": {"type": "integer"}}}), 8)
            assert len(caplog.records) == number
            assert spark.read.parquet(b.table).count() == 1


def test_versions_of_a_history_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rows that did not change keep an older version, so nothing may remove them."""
    config = target_config({"path": str(tmp_path), "format": "delta", "load_method": "history"})

    def no_spark() -> Any:
        raise AssertionError

    loader = Loader(config, Engine.of(no_spark))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            loader.activate(StreamSchema("s", {"properties": {"a": {}}}, ("a",)), 5)
    assert [
        r.message for r in caplog.records if "ignoring ACTIVATE_VERSION: 'history'" in r.message
    ]
    assert len(caplog.records) == 1
