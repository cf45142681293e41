"""Records without a value for a key property, read from lines and from files of every format."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shared.formats.file_formats import FORMATS, Encoding
from target_spark.config import REGISTRY, key_properties, target_config
from target_spark.convert.read_plan import Piece, ReadPlan, split_origin
from target_spark.convert.read_rows import read_task
from target_spark.convert.stream_tables import StreamTables
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import DOCUMENT, InputFile, StreamSchema
from target_spark.destinations.destination import ROW_ORIGIN, Tools
from target_spark.validation.columns import Key

NAN = float("nan")
NULLABLE = {"properties": {"a": {"type": ["integer", "null"]}, "b": {"type": ["string", "null"]}}}
COLUMNS = pa.schema({"a": pa.int64(), "b": pa.string()})
RECORDS: list[dict[str, Any]] = [
    {"a": 1, "b": "x"}, {"b": "y"}, {"a": None, "b": "z"}, {"a": 4}, {"a": 0, "b": ""}, {}
]  # fmt: skip
ACTUAL = [(1, "x"), (0, "")]
REASONS = {
    2: "key property 'a' is null or missing",
    3: "key property 'a' is null or missing",
    4: "key property 'b' is null or missing",
    6: "key property 'a' is null or missing",
}


@pytest.mark.parametrize(
    ("of_schema", "settings"), [(("a", "a"), {}), ((), {"key_properties": ["a", "a"]})]
)
def test_a_name_counts_once(of_schema: tuple[str, ...], settings: dict[str, Any]) -> None:
    config = target_config({"path": "out", "streams": {"s": settings}})
    assert key_properties(config, StreamSchema("s", NULLABLE, of_schema)) == ("a",)


def singer(path: Path, records: list[dict[str, Any]]) -> InputFile:
    lines = [{"type": "RECORD", "stream": "s", "record": one} for one in records]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return InputFile(str(path), Encoding("singer"))


def jsonl(path: Path, records: list[dict[str, Any]]) -> InputFile:
    path = path.with_suffix(".gz")
    path.write_bytes(gzip.compress("\n".join(json.dumps(one) for one in records).encode()))
    return InputFile(str(path), Encoding("jsonl", "gzip"))


def columnar(form: str) -> Callable[[Path, list[dict[str, Any]]], InputFile]:
    def write(path: Path, records: list[dict[str, Any]]) -> InputFile:
        table = pa.Table.from_pylist(records, COLUMNS)
        FORMATS[form].write(str(path), COLUMNS, iter([table]), "none", None)
        return InputFile(str(path), Encoding(form))

    return write


FILES = {
    "singer": singer,
    "jsonl": jsonl,
    **{name: columnar(name) for name in ("parquet", "csv", "avro", "orc")},
}


def plan(*names: str, schema: dict[str, Any] = NULLABLE, **more: Any) -> ReadPlan:
    keys = tuple(Key(name, (name,)) for name in names)
    return ReadPlan(tasks=(), schema=schema, columns=COLUMNS, keys=keys, **more)


def read(file: InputFile, how: ReadPlan) -> tuple[list[dict[str, Any]], dict[int, str]]:
    rejects = Rejects(None)
    rows = [row for table in read_task(how, [Piece(file)], rejects) for row in table.to_pylist()]
    return rows, {one.line: one.reason for one in rejects.reported}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("form", FILES)
def test_every_format_gives_the_same_verdicts(form: str, strict: bool, tmp_path: Path) -> None:
    file = FILES[form](tmp_path / "file", RECORDS)
    rows, reasons = read(file, plan("a", "b", strict=strict))
    assert ([(row["a"], row["b"]) for row in rows], reasons) == (ACTUAL, REASONS)
    assert len(read(file, plan(strict=strict))[0]) == len(RECORDS), "no key, no refusal"


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_file_without_the_column_has_no_key_at_all(form: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    table = pa.table({"b": ["x", "y"]})
    FORMATS[form].write(str(path), table.schema, iter([table]), "none", None)
    rows, reasons = read(InputFile(str(path), Encoding(form)), plan("a"))
    assert (rows, list(reasons)) == ([], [1, 2])


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("schema", [{}, {"properties": {"b": {"type": ["string", "null"]}}}])
def test_a_key_that_the_schema_does_not_name(
    form: str, schema: dict[str, Any], tmp_path: Path
) -> None:
    file = FILES[form](tmp_path / "file", RECORDS)
    columns = pa.schema({"b" if schema else "data": pa.string()})
    rows, reasons = read(file, replace(plan("a", schema=schema), columns=columns))
    assert (len(rows), list(reasons)) == (3, [2, 3, 6])


def test_a_line_with_two_faults_is_told_once(tmp_path: Path) -> None:
    schema = {"properties": {**NULLABLE["properties"], "b": {"type": "string", "maxLength": 1}}}
    file = singer(tmp_path / "file", [{"b": "long"}, {"a": 1, "b": "long"}, {"b": "x"}])
    _, reasons = read(file, plan("a", schema=schema))
    assert list(reasons) == [1, 2, 3]
    assert reasons[1].startswith("property 'b'")
    assert reasons[3] == "key property 'a' is null or missing"


def test_where_others_tell_what_does_not_fit_keys_are_told_all_the_same(tmp_path: Path) -> None:
    for form in ("singer", "parquet"):
        schema = {"properties": {**NULLABLE["properties"], "b": {"type": ["string", "null"],
                                                                 "maxLength": 1}}}  # fmt: skip
        file = FILES[form](tmp_path / form, [{"a": 1, "b": "long"}, {"b": "x"}, {"a": 3}])
        rows, reasons = read(file, plan("a", schema=schema, reports_rejects=False))
        assert ([row["a"] for row in rows], list(reasons)) == ([3], [2])


@pytest.mark.parametrize("form", FILES)
def test_documents_and_places_stay_beside_their_rows(form: str, tmp_path: Path) -> None:
    how = plan("a", document=DOCUMENT, row_origin=ROW_ORIGIN)
    columns = COLUMNS.append(pa.field(DOCUMENT, pa.string())).append(
        pa.field(ROW_ORIGIN, pa.int64())
    )
    rows, _ = read(FILES[form](tmp_path / "file", RECORDS), replace(how, columns=columns))
    assert [row["a"] for row in rows] == [int(json.loads(row[DOCUMENT])["a"]) for row in rows]
    assert [split_origin(row[ROW_ORIGIN]) for row in rows] == [(0, 0), (0, 3), (0, 4)]


@pytest.mark.parametrize("form", ["singer", "jsonl"])
@pytest.mark.parametrize("reports", [True, False])
def test_a_record_without_a_document_is_rejected(form: str, reports: bool, tmp_path: Path) -> None:
    how = plan("a", document=DOCUMENT, row_origin=ROW_ORIGIN, reports_rejects=reports)
    columns = [*COLUMNS, pa.field(DOCUMENT, pa.string()), pa.field(ROW_ORIGIN, pa.int64())]
    records = [{"a": 1}, {"a": 2, "x": "\ud800"}, {"b": "y"}, {"a": "z"}, {"a": 5, "x": NAN}]
    file = FILES[form](tmp_path / "file", [*records, {"x": {"y": "\udfff"}}, {"a": 7}])
    rows, reasons = read(file, replace(how, columns=pa.schema(columns)))
    assert [json.loads(row[DOCUMENT])["a"] for row in rows] == [1, 5, 7]
    assert [split_origin(row[ROW_ORIGIN])[1] for row in rows] == [0, 4, 6]
    assert list(reasons) == ([2, 3, 4, 6] if reports else [3])
    assert not reports or reasons[2] == "lone surrogate '\\ud800' is not Unicode text"


def test_a_key_inside_of_an_object(tmp_path: Path) -> None:
    inner = {"type": ["object", "null"], "properties": {"id": {"type": ["integer", "null"]}}}
    records = [{"o": {"id": 1}}, {"o": {}}, {"o": None}, {}, {"o": {"id": None}}]
    how = replace(
        plan(schema={"properties": {"o": inner}}),
        columns=pa.schema({"o": pa.struct({"id": pa.int64()})}),
        keys=(Key("o__id", ("o", "id")),),
    )
    rows, reasons = read(singer(tmp_path / "file", records), how)
    assert (rows, list(reasons)) == ([{"o": {"id": 1}}], [2, 3, 4, 5])
    assert reasons[3] == "key property 'o__id' is null or missing"


def test_a_column_of_the_metadata_may_be_a_key_and_null() -> None:
    """Which is why upserts compare nulls: no record brings these columns along."""
    keys = ["a", "_sdc_table_version"]
    config = target_config({"path": "x", "streams": {"s": {"key_properties": keys}}})
    tables = StreamTables(config, REGISTRY.get("parquet").open(config, Tools(print, print)))
    stream = StreamSchema("s", NULLABLE)
    assert tables.keys(stream) == ("a",)
    request = tables.request(stream)
    assert request.keys == ("a", "_sdc_table_version")
    assert request.struct["_sdc_table_version"].nullable
