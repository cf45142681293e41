"""Whole loads into file tables in folders of partitions, with and without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from engines import threads
from mapped_bench import Bench, record, schema, state
from whole_runs import run_target

from shared.errors import ExpectationError, SettingsError
from target_spark.core.differences import DryRun
from target_spark.load.loader import Loader
from target_spark.run_settings import TargetConfig

COLUMNS = {
    "id": {"type": "integer"},
    "land": {"type": ["string", "null"]},
    "day": {"type": ["string", "null"], "format": "date"},
}
STRANGE = "a/b=c:%{x}^\"'*?#[]\\ ü,+&;<>|~$!@()\t\n.."
ROWS: list[dict[str, Any]] = [
    {"id": 1, "land": "DE", "day": "2026-01-31"},
    {"id": 2, "land": STRANGE, "day": "2026-01-31"},
    {"id": 3, "land": None, "day": None},
    {"id": 4, "land": "DE", "day": "2026-02-01"},
    {"id": 5, "land": "007", "day": "0001-01-01"},
]
MESSAGES = [schema("s", COLUMNS), *(record("s", row) for row in ROWS), state({"at": 1})]
BY_BOTH = {"partition_by": ("land", "day"), "add_record_metadata": False}


def load(folder: Path, messages: list[Any], **settings: Any) -> list[bytes]:
    config = TargetConfig(path=str(folder / "out"), **settings)
    return run_target(config, Loader(config, threads()), folder, messages)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    kinds = pa.schema([("land", pa.string()), ("day", pa.date32())])
    layout = ds.partitioning(kinds, flavor="hive")
    actual = ds.dataset(folder / "out" / "s", partitioning=layout).to_table().to_pylist()
    return sorted(json.loads(json.dumps(actual, default=str)), key=lambda row: int(row["id"]))


def names(table: Path) -> set[str]:
    return {str(path.parent.relative_to(table)) for path in table.rglob("part-*")}


@pytest.mark.parametrize("form", ["parquet", "orc", "csv"])
def test_a_small_load_takes_no_spark(tmp_path: Path, form: str) -> None:
    assert load(tmp_path, MESSAGES, format=form, **BY_BOTH) == [b'{"at": 1}\n']
    actual = names(tmp_path / "out" / "s")
    assert len(actual) == len(ROWS)
    assert {"land=DE/day=2026-01-31", "land=007/day=0001-01-01"} < actual
    if form == "parquet":
        assert rows_of(tmp_path) == ROWS
        files = f"read_parquet('{tmp_path}/out/s/**/*.parquet', hive_partitioning = true)"
        rows = duckdb.sql(f"SELECT id, land, day::TEXT FROM {files} ORDER BY id").fetchall()
        assert rows == [(row["id"], row["land"], row["day"]) for row in ROWS]


def test_a_batch_file_is_divided_and_not_adopted(tmp_path: Path) -> None:
    days = pa.array([row["day"] for row in ROWS[:2]]).cast(pa.date32())
    table = pa.table({name: [row[name] for row in ROWS[:2]] for name in ("id", "land")})
    source = tmp_path / "in.parquet"
    pq.write_table(table.append_column("day", days), source)
    batch = {
        "type": "BATCH",
        "stream": "s",
        "encoding": {"format": "parquet"},
        "manifest": [f"file://{source}"],
    }
    nullable = schema("s", {**COLUMNS, "id": {"type": ["integer", "null"]}})
    load(tmp_path, [nullable, batch], **BY_BOTH)
    assert rows_of(tmp_path) == ROWS[:2]
    [file] = (tmp_path / "out" / "s").glob("land=DE/*/part-*")
    assert pq.read_schema(file).names == ["id"]
    load(tmp_path, [nullable, batch], add_record_metadata=False, table_prefix="flat_")
    [file] = (tmp_path / "out" / "flat_s").glob("part-*")
    assert file.read_bytes() == source.read_bytes()


def test_expectations_know_partition_columns(tmp_path: Path) -> None:
    streams = {"s": {"expect": {"max_null_share": {"land": 0.2}}}}
    load(tmp_path, MESSAGES, streams=streams, **BY_BOTH)
    streams["s"]["expect"]["max_null_share"]["land"] = 0.1
    with pytest.raises(ExpectationError, match=r"20\.0% of column 'land' are null"):
        load(tmp_path, MESSAGES, streams=streams, **BY_BOTH)


def test_too_many_values_are_an_error_of_the_setting(tmp_path: Path) -> None:
    many = [record("s", {"id": n, "land": str(n)}) for n in range(1001)]
    with pytest.raises(SettingsError, match="more than 1,000 different values") as error:
        load(tmp_path, [schema("s", COLUMNS), *many, state({"at": 1})], partition_by=("land",))
    assert (error.value.where.stream, error.value.where.setting) == ("s", "partition_by")
    assert not (tmp_path / "out" / "s").exists()


def test_a_dry_run_tells_what_cannot_be(tmp_path: Path) -> None:
    load(tmp_path, MESSAGES, **BY_BOTH)
    other = {**BY_BOTH, "partition_by": ("day",), "dry_run": DryRun()}
    with pytest.raises(SettingsError, match="are divided by 'land', 'day', not by 'day'"):
        load(tmp_path, MESSAGES, **other)


@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
def test_spark_reads_the_folder_and_names_folders_alike(bench: Bench, form: str) -> None:
    maps = {"stream_maps": {"s": {"big": "id * 10", "id": "id", "land": "land", "day": "day"}}}
    settings = {**BY_BOTH, "format": form, "partition_by": list(BY_BOTH["partition_by"])}
    plain = bench.target(MESSAGES, settings)
    # Columns that Spark makes, and text that Spark makes, are divided, too.
    loaded = bench.target(MESSAGES, {**settings, **maps})
    assert bench.spark is not None
    reader = bench.spark.read.option("header", True)
    ddl = "id bigint, big bigint, land string, day date"
    frame = reader.schema(ddl).format(form).load(str(loaded.path / "s"))
    rows = frame.selectExpr("id", "big", "land", "string(day)").collect()
    wanted = [(row["id"], row["id"] * 10, row["land"], row["day"]) for row in ROWS]
    assert sorted(map(tuple, rows)) == wanted
    theirs = bench.folder / "theirs"
    frame.write.partitionBy("land", "day").parquet(str(theirs))
    assert names(plain.path / "s") == names(loaded.path / "s") == names(theirs)
