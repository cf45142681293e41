"""The load path with Spark: staged lines and batch files in, tables out, read back by others."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.engine.engine import Engine
from shared.errors import DestinationError, MessageError, RecordError, SettingsError
from shared.formats.file_formats import Encoding
from target_spark.core.load_plans import Batch, InputFile, SchemaContract, StreamSchema
from target_spark.load.loader import Loader
from target_spark.run_settings import TargetConfig

pytestmark = pytest.mark.spark

FORMATS = ("parquet", "json", "csv", "orc")
SDC = [
    "_sdc_extracted_at", "_sdc_received_at", "_sdc_batched_at", "_sdc_deleted_at",
    "_sdc_sequence", "_sdc_table_version", "_sdc_sync_started_at",
]  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "at": {"type": ["string", "null"], "format": "date-time"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": ["array", "null"], "items": {"type": "string"}},
        "in.side": {"type": ["object", "null"], "properties": {"a": {"type": "integer"}}},
    },
}


def record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": ["plain", "", 'quo"te, and\nline', "ünï"][number % 4],
        "at": "2026-07-01T12:00:00.123456+00:00",
        "price": number / 2,
        "tags": ["x", "y"],
        "in.side": {"a": number},
    }


class Bench:
    """Stages records as the target does and loads them with one loader."""

    def __init__(self, spark: Any, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.path = folder / "out"
        self.loader = Loader(
            TargetConfig(path=str(self.path), **settings), Engine.of(lambda: spark)
        )
        self.count = 0

    def staged(self, records: list[Any], first_line: int = 10, **extra: Any) -> InputFile:
        self.count += 1
        path = self.folder / f"{self.count}.singer"
        lines = [
            json.dumps({"type": "RECORD", "stream": "s", "record": r, **extra}) for r in records
        ]
        path.write_text("\n".join(lines) + "\n")
        encoding = Encoding("singer")
        return InputFile(str(path), encoding, None, path.stat().st_size, ((1, first_line),))

    def batch(self, *files: InputFile, schema: Any = SCHEMA, stream: str = "s") -> Batch:
        self.count += 1
        return Batch(StreamSchema(stream, schema), files, f"tok-{self.count}", 7, time.time())

    def load(self, *files: InputFile, **more: Any) -> None:
        batch = self.batch(*files, **more)
        results = [self.loader.convert(Batch(batch.stream, (f,), batch.token, 7)) for f in files]
        self.loader.commit(batch, results)

    @property
    def table(self) -> str:
        return str(self.path / "s")

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Any:
    return lambda **settings: Bench(spark, tmp_path, **settings)


def rows_of(spark: Any, table: str, form: str, schema: Any = None) -> list[dict[str, Any]]:
    reader = spark.read.option("header", True).option("multiLine", form == "csv")
    reader = reader.option("escape", '"')
    frame = (reader.schema(schema) if schema else reader).format(form).load(table)
    return sorted((row.asDict(True) for row in frame.collect()), key=lambda row: int(row["id"]))


def test_parquet_has_exact_types_for_every_reader(bench: Any, spark: Any) -> None:
    b = bench()
    b.load(b.staged([record(n) for n in range(5)]), b.staged([record(n) for n in range(5, 8)]))
    b.loader.finish("s")
    frame = spark.read.parquet(b.table)
    assert frame.columns == [*SCHEMA["properties"], *SDC]
    assert [kind for _, kind in frame.dtypes[:6]] == [
        "bigint", "string", "timestamp", "double", "array<string>", "struct<a:bigint>",
    ]  # fmt: skip
    rows = rows_of(spark, b.table, "parquet")
    assert [row["name"] for row in rows[:4]] == ["plain", "", 'quo"te, and\nline', "ünï"]
    assert rows[3]["in.side"] == {"a": 3}
    arrow = pq.read_table(b.table)
    assert arrow.num_rows == 8
    assert arrow.column_names == frame.columns
    assert duckdb.sql(f"select count(*), sum(price) from '{b.table}/*.parquet'").fetchall() == [
        (8, 14.0)
    ]
    assert [name for name in b.names() if not name.startswith(".")] == ["s"]


@pytest.mark.parametrize("form", FORMATS)
def test_values_in_every_format(bench: Any, spark: Any, form: str) -> None:
    b = bench(format=form, add_record_metadata=False)
    b.load(b.staged([record(n) for n in range(4)]))
    b.load(b.staged([record(n) for n in range(4, 6)]))
    b.loader.finish("s")
    rows = rows_of(spark, b.table, form)
    assert [int(row["id"]) for row in rows] == list(range(6))
    empty = None if form == "csv" else ""  # Spark's CSV reader takes "" for null
    assert [row["name"] for row in rows[:4]] == ["plain", empty, 'quo"te, and\nline', "ünï"]
    assert float(rows[3]["price"]) == 1.5
    if form == "csv":
        assert rows[1]["tags"] == '["x","y"]'
        assert json.loads(rows[1]["in.side"]) == {"a": 1}
    else:
        assert rows[1]["tags"] == ["x", "y"]
        assert rows[1]["in.side"] == {"a": 1}
    if form == "orc":
        assert rows[0]["at"].timestamp() == 1782907200.123456
        assert dict(spark.read.orc(b.table).dtypes)["at"].startswith("timestamp")


@pytest.mark.parametrize("form", FORMATS)
def test_added_and_widened_columns(bench: Any, spark: Any, form: str) -> None:
    b = bench(format=form, add_record_metadata=False)

    def schema(column: str, kind: str) -> Any:
        kinds = {"id": "integer", column: "string", "n": kind}
        return {"type": "object", "properties": {name: {"type": t} for name, t in kinds.items()}}

    old, new = schema("b", "integer"), schema("c", "number")
    b.load(b.staged([{"id": 1, "b": "x,1", "n": 1}]), b.staged([{"id": 2, "n": 2}]), schema=old)
    b.load(b.staged([{"id": 3, "c": "y", "n": 2.5}]), schema=new)
    b.load(b.staged([{"id": 4, "b": "", "n": 4}]), schema=old)
    b.loader.finish("s")
    rows = rows_of(spark, b.table, form)
    empty = None if form == "csv" else ""  # Spark's CSV reader takes "" for null
    texts = [("x,1", None), (None, None), (None, "y"), (empty, None)]
    assert [(row["b"], row["c"]) for row in rows] == texts
    assert [float(row["n"]) for row in rows] == [1.0, 2.0, 2.5, 4.0]
    if form == "parquet":
        assert pq.read_table(b.table, columns=["id", "c"]).num_rows == 4
        assert {str(pq.read_table(b.table).schema.field(n).type) for n in ("id", "n")} == {
            "int64", "double",
        }  # fmt: skip
        sql = f"select b, c from read_parquet('{b.table}/*.parquet') order by id"
        assert duckdb.sql(sql).fetchall() == texts


def test_a_schema_that_changes_between_convert_and_commit(bench: Any, spark: Any) -> None:
    b = bench(add_record_metadata=False)
    whole = {"type": "object", "properties": {"id": {"type": "integer"}}}
    real = {"type": "object", "properties": {"id": {"type": "number"}}}
    first = b.batch(b.staged([{"id": 1}]), schema=whole)
    second = b.batch(b.staged([{"id": 2.5}]), schema=real)
    one, two = b.loader.convert(first), b.loader.convert(second)
    b.loader.commit(second, [two])
    b.loader.commit(first, [one])
    assert sorted(row.id for row in spark.read.parquet(b.table).collect()) == [1.0, 2.5]


@pytest.mark.parametrize(
    # The folder changes alike with each format.
    "form",
    [pytest.param(f, marks=() if f in {"parquet", "csv"} else pytest.mark.slow) for f in FORMATS],
)
def test_overwrite(bench: Any, spark: Any, form: str) -> None:
    first = bench(format=form)
    first.load(first.staged([record(n) for n in range(3)]))
    first.loader.finish("s")
    first.loader.close()
    b = bench(format=form, load_method="overwrite")
    b.load(b.staged([record(7)]))
    b.load(b.staged([record(8)]))
    assert len(rows_of(spark, b.table, form)) == 3
    b.loader.finish("s")
    assert [int(row["id"]) for row in rows_of(spark, b.table, form)] == [7, 8]
    b.loader.close()
    assert b.names() == [".s.lock", ".s.schema", "s"]


def test_overwrite_with_several_schemas_keeps_the_rows_of_all(bench: Any, spark: Any) -> None:
    old = bench()
    old.load(old.staged([record(1)]))
    old.loader.finish("s")
    old.loader.close()
    b = bench(load_method="overwrite")
    narrow = {"properties": {"id": {"type": "integer"}}}
    real = {"properties": {"id": {"type": "number"}, "more": {"type": "string"}}}
    for number, schema in enumerate((narrow, real, narrow), 7):
        b.load(b.staged([{"id": number, "more": "x"}]), schema=schema)
    b.loader.finish("s")
    rows = spark.read.parquet(b.table).orderBy("id").collect()
    assert [(row.id, row.more) for row in rows] == [(7, None), (8, "x"), (9, None)]


@pytest.mark.parametrize("method", ["append-only", "overwrite"])
def test_a_stream_without_records_is_an_empty_table(bench: Any, spark: Any, method: str) -> None:
    b = bench(load_method=method)
    b.loader.commit(b.batch(), [])
    b.loader.finish("s")
    assert spark.read.parquet(b.table).count() == 0
    assert spark.read.parquet(b.table).columns == [*SCHEMA["properties"], *SDC]


def test_record_metadata(bench: Any, spark: Any) -> None:
    b = bench()
    gone = {**record(1), "_sdc_deleted_at": "2026-01-02T00:00:00+00:00"}
    b.load(b.staged([gone], time_extracted="2026-11-21T06:20:21.224137+00:00", version=7))
    row = spark.read.parquet(b.table).collect()[0].asDict()
    assert row["_sdc_extracted_at"].timestamp() == 1795242021.224137
    assert row["_sdc_deleted_at"].timestamp() == 1767312000
    assert row["_sdc_table_version"] == 7
    assert dict(spark.read.parquet(b.table).dtypes)["_sdc_sequence"] == "bigint"


def test_without_record_metadata_reserved_columns_go(bench: Any, spark: Any) -> None:
    b = bench(add_record_metadata=False)
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "_sdc_batched_at": {"type": "string"}},
    }
    b.load(b.staged([{"id": 1, "_sdc_batched_at": "x"}]), schema=schema)
    assert spark.read.parquet(b.table).columns == ["id"]


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_a_record_that_breaks_the_schema(bench: Any, form: str) -> None:
    b = bench(format=form)
    good = b.staged([record(1)], first_line=2)
    bad = b.staged([record(1), record(2), {**record(3), "id": "three"}], first_line=15)
    with pytest.raises(RecordError, match=r"^stream 's', line 17: .*id"):
        b.loader.convert(b.batch(good, bad))
    assert not Path(b.table).exists()
    assert not list(b.path.rglob("*.parquet"))


def test_a_bad_record_of_a_batch_file_names_the_file(bench: Any, tmp_path: Path) -> None:
    b = bench()
    path = tmp_path / "a.jsonl"
    path.write_text('{"id":1}\n\n{"id":"x"}\n{"id":"y"}\n')
    with pytest.raises(RecordError, match=r"a\.jsonl', line 3: .*2 records"):
        b.loader.convert(b.batch(InputFile(str(path), Encoding("jsonl"))))


def test_batch_files_are_read_by_content(bench: Any, spark: Any, tmp_path: Path) -> None:
    import gzip

    b = bench()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id":1}\n{"id":2}'))
    (tmp_path / "b.jsonl").write_text('{"id":3}\n')
    pq.write_table(pa.table({"id": [4, 5], "other": ["x", "y"]}), tmp_path / "c.parquet")
    files = [
        InputFile(str(tmp_path / "a.jsonl.gz"), Encoding("jsonl")),
        InputFile(f"file://{tmp_path}/b.jsonl", Encoding("jsonl", "gzip")),
        InputFile(str(tmp_path / "c.parquet"), Encoding("parquet")),
    ]
    b.load(*files)
    assert [row["id"] for row in rows_of(spark, b.table, "parquet")] == [1, 2, 3, 4, 5]


def test_missing_and_damaged_batch_files(bench: Any, tmp_path: Path) -> None:
    b = bench()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(MessageError, match=r"gone\.jsonl"):
        b.loader.convert(b.batch(InputFile(str(tmp_path / "gone.jsonl"), Encoding("jsonl"))))
    with pytest.raises(MessageError, match=r"gone\.jsonl"):
        b.loader.convert(
            b.batch(InputFile(str(tmp_path / "gone.jsonl"), Encoding("jsonl"), None, 5))
        )
    with pytest.raises(MessageError, match=r"bad\.parquet' cannot be read"):
        b.loader.convert(b.batch(InputFile(str(tmp_path / "bad.parquet"), Encoding("parquet"))))


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_a_place_that_fails_on_the_executors(bench: Any, form: str) -> None:
    b = bench(format=form)
    batch = b.batch(b.staged([record(1)]))
    write = b.loader._tables.prepare(batch)
    Path(write.pending).rmdir()
    Path(write.pending).write_text("in the way")
    with pytest.raises(DestinationError, match=r"cannot write to .*(directory|exists)") as caught:
        b.loader.convert(batch)
    assert "\n" not in str(caught.value)


def test_abort_leaves_nothing(bench: Any) -> None:
    b = bench()
    batch = b.batch(b.staged([record(1)]))
    result = b.loader.convert(batch)
    assert Path(result.parts[0].url).exists()
    b.loader.abort(batch, [result])
    assert not Path(result.parts[0].url).exists()


def test_a_table_of_another_program_is_continued(bench: Any, spark: Any, tmp_path: Path) -> None:
    spark.range(3).selectExpr("cast(id as int) as id", "'x' as extra").write.parquet(
        str(tmp_path / "out" / "s")
    )
    b = bench()
    with pytest.raises(SettingsError, match="files of another program") as raised:
        b.load(b.staged([record(9)]))
    b.loader.close()
    assert raised.value.where.setting == "schema_contract.rules"
    b = bench(schema_contract=SchemaContract(rules="evolve"))
    b.load(b.staged([record(9)]))
    rows = rows_of(spark, b.table, "parquet")
    assert [(row["id"], row["extra"]) for row in rows] == [(0, "x"), (1, "x"), (2, "x"), (9, None)]


def test_types_with_no_name_in_parquet(bench: Any, spark: Any) -> None:
    from shared.formats.json_schema import spark_to_json_schema

    ddl = (
        "id bigint, y interval year to month, d interval day to second, m map<string,int>, "
        "dec decimal(38,10), v variant"
    )
    schema = spark_to_json_schema(spark.range(0).selectExpr("1 id").schema.fromDDL(ddl))
    value = {
        "id": 1, "y": "P1Y2M", "d": "P1DT2H3M4.5S", "m": {"a": 1},
        "dec": 12345678901234567890.5, "v": {"a": [1, "x"]},
    }  # fmt: skip
    b = bench(add_record_metadata=False)
    b.load(b.staged([value]), schema=schema)
    kinds = dict(spark.read.parquet(b.table).dtypes)
    assert kinds["y"] == "interval year to month"
    assert kinds["d"] == "interval day to second"
    assert kinds["dec"] == "decimal(38,10)"
    for form in ("json", "csv"):
        other = bench(add_record_metadata=False, format=form, table_prefix=form)
        other.load(other.staged([value]), schema=schema)
        [part] = [p for p in (other.path / f"{form}s").iterdir() if p.name[0] == "p"]
        text = part.read_text()
        assert "P1Y2M" in text, text
        assert "4.5" in text, text


def test_without_validation_values_are_converted(bench: Any, spark: Any) -> None:
    b = bench(validate_records=False, add_record_metadata=False)
    schema = {
        "properties": {"id": {"type": "integer"}, "n": {"type": "string"}, "r": {"type": "number"}},
        "required": ["id", "n"],
    }
    b.load(
        b.staged([{"id": 1, "n": "x", "r": 1}, {"id": "2", "n": 3, "r": "2.5"}, {"id": 3}]),
        schema=schema,
    )
    rows = [tuple(row) for row in spark.read.parquet(b.table).orderBy("id").collect()]
    assert rows == [(1, "x", 1.0), (2, "3", 2.5), (3, None, None)]
    with pytest.raises(RecordError, match=r"line 11: .*id"):
        b.loader.convert(b.batch(b.staged([{"id": 1}, {"id": "two"}]), schema=schema))
