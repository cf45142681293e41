"""`tap_spark.get_batches`: records of Python to files, typed by the schema."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tap_spark
from shared.errors import RecordError, SettingsError
from shared.formats.file_formats import FORMATS, Encoding
from shared.formats.json_lines import LineReader
from shared.formats.typed_rows import RowReader
from shared.settings.batch_settings import BatchConfig

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": ["number", "null"], "multipleOf": 0.01},
        "at": {"type": ["string", "null"], "format": "date-time"},
        "day": {"type": ["string", "null"], "format": "date"},
        "late": {"type": ["string", "null"]},
        "inner": {
            "type": ["object", "null"],
            "properties": {
                "list": {"type": "array", "items": {"type": "integer"}},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        },
    },
}
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc)


def records(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "id": number,
            "amount": Decimal("12.50"),
            "at": MOMENT,
            "day": date(2026, 1, 2),
            "late": f"ü{number}" if number > 2 else None,
            "inner": {"list": [1, number], "map": {"a": number}},
        }


def config(root: Path, form: str, **more: Any) -> dict[str, Any]:
    return {"encoding": {"format": form}, "storage": {"root": str(root)}, **more}


def rows(form: str, url: str) -> list[dict[str, Any]]:
    if FORMATS[form].rows == "lines":
        reader = LineReader(SCHEMA, envelope=False, strict=True)
        tables = [reader.read(bytes(t.column(0)[0].as_py())).table for t in FORMATS[form].read(url)]
    else:
        typed = RowReader(SCHEMA, strict=True, texts=form == "csv")
        tables = [typed.read(table).table for table in FORMATS[form].read(url)]
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("whole", [1, 2**70])
def test_what_json_does_not_have_has_a_name(tmp_path: Path, whole: int) -> None:
    values = [
        float("nan"),
        float("-inf"),
        0.1,
        Decimal("Infinity"),
        {"ü": Decimal("0.1" + "0" * 20)},
    ]
    record = {"id": whole, "x": (*values, None)}
    [(_, [url])] = tap_spark.get_batches([record], {}, config(tmp_path, "jsonl"))
    text = gzip.decompress(Path(url.removeprefix("file://")).read_bytes()).decode()
    odd = '["NaN","-Infinity",0.1,"Infinity",{"ü":0.100000000000000000000},null]'
    assert text.replace("\\u00fc", "ü") == f'{{"id":{whole},"x":{odd}}}\n'


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv", "avro", "arrow"])
def test_batches_of_every_format(tmp_path: Path, form: str) -> None:
    if form == "avro":
        pytest.importorskip("fastavro")
    actual = list(tap_spark.get_batches(records(7), SCHEMA, config(tmp_path, form, batch_size=3)))
    assert {encoding.format for encoding, _ in actual} == {form}
    urls = [url for _, manifest in actual for url in manifest]
    assert [len(rows(form, url)) for url in urls] == [3, 3, 1]
    read = [row for url in urls for row in rows(form, url)]
    assert [row["id"] for row in read] == list(range(7))
    assert [row["late"] for row in read] == [None, None, None, "ü3", "ü4", "ü5", "ü6"]
    assert {(row["amount"], row["at"], row["day"]) for row in read} == {
        (Decimal("12.50"), MOMENT, date(2026, 1, 2))
    }
    assert [row["inner"] for row in read] == [
        {"list": [1, number], "map": [("a", number)]} for number in range(7)
    ]


def test_files_are_written_when_iterated(tmp_path: Path) -> None:
    asked = []

    def source() -> Iterator[dict[str, Any]]:
        for record in records(9):
            asked.append(record["id"])
            yield record

    batches = tap_spark.get_batches(source(), SCHEMA, config(tmp_path, "jsonl", batch_size=3))
    encoding, _ = next(batches)
    assert encoding == Encoding("jsonl", "gzip")
    assert asked == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 1


def test_names_and_a_checked_block(tmp_path: Path) -> None:
    checked = BatchConfig(format="parquet", compression="zstd", root=str(tmp_path), prefix="p-")
    ((encoding, (url,)),) = tap_spark.get_batches(
        records(2), SCHEMA, checked, tap_name="tap-x", stream_name="orders"
    )
    assert encoding == Encoding("parquet", "zstd")
    assert url.startswith(f"file://{tmp_path}/p-tap-x--orders-")
    assert url.endswith("-1.parquet")


@pytest.mark.parametrize(
    ("form", "codec", "highest"),
    [("jsonl", "gzip", 9), ("csv", "gzip", 9), ("parquet", "zstd", 22), ("arrow", "zstd", 22)],
)
def test_the_level_is_for_the_files_alone(
    tmp_path: Path, form: str, codec: str, highest: int
) -> None:
    sizes = []
    for level in (1, highest):
        encoding = {"format": form, "compression": codec, "compression_level": level}
        block = {**config(tmp_path / str(level), form, batch_size=5000), "encoding": encoding}
        ((named, (url,)),) = tap_spark.get_batches(records(5000), SCHEMA, block)
        assert named == Encoding(form, codec)
        sizes.append(Path(url.removeprefix("file://")).stat().st_size)
        assert [row["id"] for row in rows(form, url)] == list(range(5000))
    assert sizes[0] != sizes[1]


def test_without_records_no_file_is_written(tmp_path: Path) -> None:
    assert list(tap_spark.get_batches([], SCHEMA, config(tmp_path, "csv"))) == []
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_block_is_rejected_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="compression"):
        list(
            tap_spark.get_batches(
                [], SCHEMA, {**config(tmp_path, "csv"), "encoding": {"compression": "x"}}
            )
        )


def test_a_record_that_breaks_the_schema_is_named(tmp_path: Path) -> None:
    wrong = [*records(2), {"id": "x"}]
    with pytest.raises(RecordError, match=r"record 3 .*id"):
        list(tap_spark.get_batches(wrong, SCHEMA, config(tmp_path, "parquet")))


def test_a_root_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        list(tap_spark.get_batches(records(1), SCHEMA, config(tmp_path / "file", "csv")))


def test_jsonl_keeps_properties_outside_the_schema(tmp_path: Path) -> None:
    huge = 10**30
    record = {"id": huge, "more": b"\x00\xff", "exact": Decimal("0.10"), "nan": Decimal("NaN")}
    ((_, (url,)),) = tap_spark.get_batches([record], {}, config(tmp_path, "jsonl"))
    (table,) = FORMATS["jsonl"].read(url)
    line = table.column(0)[0].as_py()
    assert line == b'{"id":%d,"more":"AP8=","exact":0.10,"nan":"NaN"}\n' % huge


def test_the_import_stays_light() -> None:
    code = "import sys, tap_spark; assert 'pyarrow' not in sys.modules; tap_spark.get_batches"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
    with pytest.raises(AttributeError, match="nothing"):
        _ = tap_spark.nothing
