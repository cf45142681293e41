"""Batch files adopted unchanged: when, how, and what is still read row by row."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.engine.engine import COPIED, Engine
from shared.errors import DestinationError, RecordError
from shared.formats import column_copies
from shared.formats.file_formats import Encoding
from shared.settings.batch_settings import BatchConfig
from shared.storage.access import remote
from target_spark.convert import adoption, converter, write_tasks
from target_spark.core.load_plans import Batch, InputFile, StreamSchema
from target_spark.destinations.folders import stored_folder
from target_spark.load.loader import Loader
from target_spark.run_settings import TargetConfig
from tests.helpers.engines import threads

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": ["integer", "null"], "description": "a number"},
        "name": {"type": ["null", "string"]},
        "at": {"type": ["string", "null"], "format": "date-time"},
    },
}
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])


class NeedsSparkError(Exception):
    pass


def no_spark() -> Any:
    raise NeedsSparkError


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "GRACE_SECONDS", 0.0)


class Bench:
    def __init__(self, folder: Path, **settings: Any) -> None:
        plain = {"path": str(folder / "out"), "add_record_metadata": False}
        self.folder = folder
        self.config = TargetConfig(**{**plain, **settings})
        self.loader = Loader(self.config, Engine.of(no_spark))
        self.count = 0

    def file(self, rows: list[dict[str, Any]], columns: pa.Schema = COLUMNS, **more: Any) -> Path:
        self.count += 1
        path = self.folder / f"{self.count}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, columns), path, **more)
        return path

    def load(self, *paths: Path, schema: Any = SCHEMA, keys: tuple[str, ...] = ()) -> None:
        batch = self.batch(*paths, schema=schema, keys=keys)
        self.loader.commit(batch, [self.loader.convert(batch)])
        self.loader.delete_consumed(batch.files)

    def batch(self, *paths: Path, schema: Any = SCHEMA, keys: tuple[str, ...] = ()) -> Batch:
        files = tuple(InputFile(str(path), Encoding("parquet", "snappy")) for path in paths)
        return Batch(StreamSchema("s", schema, keys), files, f"t{self.count}", None, time.time())

    def needs_spark(self, *paths: Path, **more: Any) -> bool:
        try:
            self.load(*paths, **more)
        except DestinationError as error:
            if isinstance(error.__cause__, NeedsSparkError):
                return True
            raise
        return False

    def table(self) -> Path:
        return self.folder / "out" / "s"

    def parts(self) -> list[Path]:
        return sorted(self.table().glob("part-*.parquet"))

    def rows(self) -> list[dict[str, Any]]:
        return [row for part in self.parts() for row in pq.read_table(part).to_pylist()]


CHECKED = {"write_page_checksum": True}


class Copies(Bench):
    """A table with metadata, loaded by threads, with or without copies of columns."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **{"add_record_metadata": True, **settings})
        self.loader = Loader(self.config, threads())
        self.copied: list[bool] = []

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note of each batch whose files are asked whether its columns are copied in the end."""
        ask, copy = write_tasks.copies_columns, write_tasks._copied

        def asked(*arguments: Any) -> Any:
            self.copied.append(ask(*arguments))
            return self.copied[-1]

        def copied(*arguments: Any) -> Any:
            result = copy(*arguments)
            self.copied[-1] &= result is not None
            return result

        monkeypatch.setattr(converter, "LEAST_COPIED", 0)
        monkeypatch.setattr(write_tasks, "copies_columns", asked)
        monkeypatch.setattr(write_tasks, "_copied", copied)

    def table_rows(self) -> pa.Table:
        tables = [pq.read_table(part) for part in self.parts()]
        return pa.concat_tables(tables).sort_by("id").drop_columns(["_sdc_batched_at"])


def row(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "at": None}


def test_files_that_fit_become_parts_in_their_order(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    first, second = b.file([row(1), row(2)]), b.file([row(3)])
    data = first.read_bytes()
    b.load(first, second)
    assert [r["id"] for r in b.rows()] == [1, 2, 3]
    assert first.exists(), "the files belong to the tap"
    assert b.parts()[0].read_bytes() == data, "taken over byte for byte"
    assert not os.path.samefile(b.parts()[0], first)


def test_files_given_to_the_target_are_moved(tmp_path: Path) -> None:
    b = Bench(tmp_path, batch_config=BatchConfig(cleanup=True, root=str(tmp_path)))
    path = b.file([row(1)])
    number = path.stat().st_ino
    b.load(path)
    assert not path.exists()
    assert [part.stat().st_ino for part in b.parts()] == [number]


def test_files_that_stay_share_nothing_with_the_table(tmp_path: Path) -> None:
    """The owner of such a file may change it."""
    b = Bench(tmp_path, batch_config=BatchConfig(cleanup=True, root=str(tmp_path / "in")))
    path = b.file([row(1)])
    b.load(path)
    assert path.exists()
    assert not os.path.samefile(b.parts()[0], path)


def test_a_file_without_rows_adds_no_part(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    b.load(b.file([row(1)]), b.file([]))
    assert len(b.parts()) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"add_record_metadata": True},
        {"adopt_files": False},
        {"load_method": "overwrite"},
        {"format": "orc"},
        {"options": {"compression": "zstd"}},
    ],
)
def test_settings_that_change_rows(tmp_path: Path, settings: dict[str, Any]) -> None:
    b = Bench(tmp_path, **settings)
    assert b.needs_spark(b.file([row(1)]))


@pytest.mark.parametrize(
    "node",
    [
        {"type": ["integer", "null"], "minimum": 1},
        {"type": ["integer", "null"], "minimum": -(2**63), "maximum": 2**63 - 2},
        {"type": ["integer", "null"], "maximum": 2**63 - 1, "exclusiveMinimum": -(2**63)},
        {"type": ["integer", "null"], "enum": [1]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {},
    ],
)
def test_schemas_that_check_more_than_types(tmp_path: Path, node: dict[str, Any]) -> None:
    schema = {"properties": {**SCHEMA["properties"], "id": node}}
    b = Bench(tmp_path)
    assert b.needs_spark(b.file([row(1)]), schema=schema)


def test_properties_that_are_never_null(tmp_path: Path) -> None:
    """A footer shows that each row has a value; a null, and what it means, is for the reader."""
    integers = {**SCHEMA, "properties": {**SCHEMA["properties"], "id": {"type": "integer"}}}
    b = Bench(tmp_path)
    for schema in (integers, {**integers, "required": ["id", "name"]}):
        b.load(b.file([row(1), row(2)]), schema=schema)
        assert b.needs_spark(b.file([row(1), {**row(2), "id": None}]), schema=schema)
    assert b.needs_spark(b.file([row(1)]), schema={**integers, "required": ["other"]})
    assert [r["id"] for r in b.rows()] == [1, 2, 1, 2]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_bounds_that_every_number_of_the_column_keeps(tmp_path: Path, bits: int) -> None:
    bounds = {"minimum": -(2 ** (bits - 1)), "maximum": 2 ** (bits - 1) - 1}
    properties = {**SCHEMA["properties"], "id": {"type": ["integer", "null"], **bounds}}
    columns = COLUMNS.set(0, pa.field("id", pa.type_for_alias(f"int{bits}")))
    b = Bench(tmp_path)
    b.load(b.file([row(1)], columns), schema={"properties": properties})
    assert [r["id"] for r in b.rows()] == [1]


def test_bounds_that_numbers_of_a_wider_column_may_break(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    b.load(b.file([row(1)]))
    bounds = {"minimum": -(2**31), "maximum": 2**31 - 1}
    properties = {**SCHEMA["properties"], "id": {"type": ["integer", "null"], **bounds}}
    assert b.needs_spark(b.file([row(2**40)]), schema={"properties": properties})


def test_rules_do_not_count_where_nothing_is_validated(tmp_path: Path) -> None:
    schema = {"properties": {**SCHEMA["properties"], "id": {"type": "integer", "minimum": 1}}}
    b = Bench(tmp_path, validate_records=False)
    b.load(b.file([row(1)]), schema={**schema, "required": ["id"]})
    assert [r["id"] for r in b.rows()] == [1]


def test_a_property_whose_type_is_null_may_hold_anything(tmp_path: Path) -> None:
    b = Bench(tmp_path, validate_records=False)
    properties = {**SCHEMA["properties"], "name": {"type": None}}
    assert b.needs_spark(b.file([row(1)]), schema={"properties": properties})


@pytest.mark.parametrize(
    "columns",
    [
        pa.schema([("id", pa.int32()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
        pa.schema([("id", pa.int64()), ("name", pa.string())]),
        pa.schema([*COLUMNS, ("more", pa.int64())]),
        pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("ns", "UTC"))]),
    ],
)
def test_other_columns_are_read(tmp_path: Path, columns: pa.Schema) -> None:
    b = Bench(tmp_path)
    existing = {name: value for name, value in row(1).items() if name in columns.names}
    assert b.needs_spark(b.file([existing], columns))


def test_the_order_of_columns_does_not_matter(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    b.load(b.file([row(1)], pa.schema(list(reversed(COLUMNS)))))
    assert [r["id"] for r in b.rows()] == [1]


def test_one_file_that_does_not_fit_has_all_of_them_read(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and no more")
    assert b.needs_spark(b.file([row(1)]), broken)
    assert not b.table().exists()


def test_columns_that_the_table_has_besides(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    wider = {"properties": {**SCHEMA["properties"], "more": {"type": ["string", "null"]}}}
    b.load(
        b.file([{**row(1), "more": "x"}], pa.schema([*COLUMNS, ("more", pa.string())])),
        schema=wider,
    )
    assert b.needs_spark(b.file([row(2)])), "the file lacks a column of the table"


def test_a_compression_that_is_asked_for_and_there(tmp_path: Path) -> None:
    b = Bench(tmp_path, options={"compression": "zstd"})
    b.load(b.file([row(1)], compression="zstd"))
    assert len(b.parts()) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"compression": "brotli"},
        {"use_dictionary": False, "column_encoding": {"id": "BYTE_STREAM_SPLIT"}},
    ],
)
def test_files_that_spark_does_not_read(tmp_path: Path, more: dict[str, Any]) -> None:
    b = Bench(tmp_path)
    assert b.needs_spark(b.file([row(1)], **more))


def test_a_footer_shows_that_no_key_is_null(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    b.load(b.file([row(1), row(2), row(3)], row_group_size=2), keys=("id", "name"))
    assert [r["id"] for r in b.rows()] == [1, 2, 3]
    required = COLUMNS.set(0, pa.field("id", pa.int64(), nullable=False))
    b.load(b.file([row(4)], required, write_statistics=False), keys=("id",))
    assert [r["id"] for r in b.rows()] == [1, 2, 3, 4]


def test_rows_without_a_key_are_not_taken_over_unread(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    last = b.file([row(1), row(2), {**row(3), "id": None}], row_group_size=2)
    assert b.needs_spark(last, keys=("id",))
    assert b.needs_spark(b.file([row(1)]), keys=("at",))
    assert b.needs_spark(b.file([row(1)], write_statistics=False), keys=("id",)), "it can't be told"
    assert b.needs_spark(b.file([row(1)]), keys=("other",))
    b.load(last, keys=("name",))


def test_files_whose_columns_cannot_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read, and judged as ever."""
    b = Copies(tmp_path)
    b.watch(monkeypatch)
    b.load(b.file([row(1)]))  # no checksums
    b.load(b.file([row(2)], COLUMNS.set(0, pa.field("id", pa.int32())), **CHECKED))
    b.load(b.file([{**row(3), "more": 1}], pa.schema([*COLUMNS, ("more", pa.int8())]), **CHECKED))
    assert b.copied == [False] * 3
    positive = {"type": ["integer", "null"], "minimum": 1}
    checks = {"properties": {**SCHEMA["properties"], "id": positive}}
    b.load(b.file([row(4)], **CHECKED), schema=checks)
    assert b.copied == [False] * 3, "what more than types is checked, no file is asked"
    batch = b.batch(b.file([{**row(5), "id": None}], **CHECKED), keys=("id",))
    with pytest.raises(RecordError, match="key property 'id' is null"):
        b.loader.convert(batch)
    assert [r["id"] for r in b.rows()] == [1, 2, 3, 4]


def test_files_whose_columns_are_copied_need_no_spark_for_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converter, "LEAST_COPIED", 0)

    def load(name: str, **more: Any) -> Copies:
        folder = tmp_path / name
        folder.mkdir()
        b, engine = Copies(folder), threads()
        path = b.file([row(1)], **more)
        engine.limit = int(path.stat().st_size * COPIED) + 1
        b.loader = Loader(b.config, engine)
        b.load(path)
        return b

    assert len(load("copied", **CHECKED).parts()) == 1
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        load("read")


def test_small_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their columns would be copied in more time."""
    b, rows = Copies(tmp_path), [{"id": n, "name": f"{n}", "at": None} for n in range(50_000)]
    least = converter.LEAST_COPIED
    b.watch(monkeypatch)
    monkeypatch.setattr(converter, "LEAST_COPIED", least)
    b.load(b.file(rows[:100], **CHECKED))
    assert b.copied == []
    b.load(b.file(rows, **CHECKED))
    assert b.copied == [True]
    assert len(b.rows()) == 50_100


@pytest.mark.parametrize("extra", [("id", pa.int64()), ("id", pa.string()), ("ID", pa.int64())])
def test_a_name_that_is_there_twice(tmp_path: Path, extra: tuple[str, pa.DataType]) -> None:
    b = Bench(tmp_path)
    columns = pa.schema([*COLUMNS, extra])
    path = tmp_path / "twice.parquet"
    pq.write_table(
        pa.Table.from_arrays([pa.nulls(1, f.type) for f in columns], schema=columns), path
    )
    assert b.needs_spark(path)
    assert not b.table().exists()


@pytest.mark.parametrize("number", range(12))
def test_copied_columns_are_those_that_reading_gives(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, tables = random.Random(number), []
    count = chance.choice([1, 40, 2000])
    rows = [
        {
            "id": place,
            "name": chance.choice([None, "", "é", f"n{place}"]),
            "at": chance.choice([None, datetime.fromtimestamp(place, timezone.utc)]),
        }
        for place in range(count)
    ]
    columns = pa.schema(chance.sample(list(COLUMNS), len(COLUMNS)))
    keys = ("id",) if chance.random() < 0.5 else ()
    for adopts in (True, False):
        folder = tmp_path / str(adopts)
        folder.mkdir()
        b = Copies(folder, adopt_files=adopts)
        b.watch(monkeypatch)
        paths = [b.file(rows, columns, **CHECKED), b.file([], columns, **CHECKED)]
        batch = replace(b.batch(*paths, keys=keys), received_at=1e9, version=7)
        result = b.loader.convert(batch)
        b.loader.commit(batch, [result])
        assert b.copied == [True] * adopts
        tables.append((b.table_rows(), result.received, result.rows, result.columns.keys()))
    (one, *counts), (other, *others) = tables
    names = other.column_names
    started = names.index("_sdc_sync_started_at")
    assert one.select(names).remove_column(started).equals(other.remove_column(started))
    assert counts == others


class Remote(Bench):
    """The same on a storage with URLs."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.root = f"memory://{folder.name}"
        super().__init__(folder, **{"path": f"{self.root}/out", **settings})

    def file(self, rows: list[dict[str, Any]], columns: pa.Schema = COLUMNS, **more: Any) -> Any:
        local = super().file(rows, columns, **more)
        url = f"{self.root}/in/{local.name}"
        remote(url)[0].pipe_file(url, local.read_bytes())
        return url

    def left(self, folder: str) -> list[str]:
        system, inside = remote(f"{self.root}/{folder}")
        return sorted(name.removeprefix(f"{inside}/") for name in system.find(inside))

    def contents(self) -> list[bytes]:
        names = [name for name in self.left("out/s") if name.startswith("part-")]
        return [remote(self.root)[0].cat_file(f"{self.root}/out/s/{name}") for name in names]


def test_remote_files_that_fit_are_copied_by_their_storage(tmp_path: Path) -> None:
    b = Remote(tmp_path)
    url = b.file([row(1), row(2)])
    b.load(url)
    assert b.contents() == [remote(url)[0].cat_file(url)]
    assert b.left("in") == ["1.parquet"], "the files belong to the tap"


def test_remote_files_go_after_the_commit_if_they_are_given(tmp_path: Path) -> None:
    b = Remote(tmp_path, batch_config=BatchConfig(cleanup=True, root=f"memory://{tmp_path.name}"))
    b.load(b.file([row(1)]))
    assert (len(b.contents()), b.left("in")) == (1, [])


def test_a_flush_that_is_given_up_leaves_remote_files(tmp_path: Path) -> None:
    b = Remote(tmp_path)
    batch = b.batch(b.file([row(1)]))
    b.loader.abort(batch, [b.loader.convert(batch)])
    assert (b.contents(), b.left("in")) == ([], ["1.parquet"])


def test_many_small_remote_files_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = Remote(tmp_path)
    urls = [b.file([row(number)]) for number in range(2)]
    assert b.needs_spark(*urls)
    monkeypatch.setattr(adoption, "LEAST_REMOTE_BYTES", 100)
    b.load(*urls)
    assert len(b.contents()) == 2


def test_remote_files_that_the_table_cannot_reach_are_read(tmp_path: Path) -> None:
    b = Remote(tmp_path, storage_options={"key": "other"})
    assert b.needs_spark(b.file([row(1)]))
    assert Bench(tmp_path).needs_spark(b.file([row(1)]))


@pytest.mark.spark
def test_spark_reads_what_was_taken_over(spark: Any, tmp_path: Path) -> None:
    b = Bench(tmp_path)
    b.load(b.file([row(1), row(2)]))
    actual = spark.read.parquet(str(b.table()))
    assert actual.dtypes == [("id", "bigint"), ("name", "string"), ("at", "timestamp")]
    assert actual.count() == 2


@pytest.mark.spark
def test_spark_reads_copied_columns(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_copies, "LEAST_BYTES", 0)
    b = Copies(tmp_path)
    b.watch(monkeypatch)
    b.load(b.file([row(n) for n in range(900)], row_group_size=100, **CHECKED))
    assert b.copied == [True]
    parts = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    for split in (2_000, 1 << 20):
        actual = parts.option("maxPartitionBytes", split).parquet(str(b.table()))
        assert actual.where("id = 777 and name = 'n777' and _sdc_sequence > 0").count() == 1
        assert actual.where("_sdc_deleted_at is null").count() == 900
