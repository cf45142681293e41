"""Every encoding x compression x storage: awkward values written and read again, exactly."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from shared.arrow_types import struct_to_arrow
from shared.encodings import BATCH_FORMATS, FORMATS, Encoding
from shared.json_schema import spark_to_json_schema
from shared.row_values import plain_rows, row_text
from shared.storage import StorageOptions, join
from target_spark.plans import InputFile
from target_spark.read_rows import Piece, ReadPlan, UnreadableInputError, read_task
from target_spark.reject_files import Rejects

F = T.StructField
INNER = T.StructType([F("a b.c", T.DecimalType(38, 18)), F("l", T.ArrayType(T.TimestampType()))])
STRUCT = T.StructType(
    [
        F("id", T.LongType(), False),
        F("byte", T.ByteType()),
        F("exact", T.DecimalType(38, 18)),
        F("whole", T.DecimalType(38, 0)),
        F("real", T.DoubleType()),
        F("single", T.FloatType()),
        F("text", T.StringType()),
        F("bytes", T.BinaryType()),
        F("yes", T.BooleanType()),
        F("day", T.DateType()),
        F("at", T.TimestampType()),
        F("local", T.TimestampNTZType()),
        F("clock", T.TimeType(6)),
        F("span", T.DayTimeIntervalType()),
        F("months", T.YearMonthIntervalType()),
        F("in.side", INNER),
        F("list", T.ArrayType(T.StringType())),
        F("map", T.MapType(T.StringType(), T.LongType())),
        F("of days", T.MapType(T.DateType(), T.DoubleType())),
        F("1 odd-näme", T.VariantType()),
    ]
)
UTC = timezone.utc
INSTANT = datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
FULL: dict[str, Any] = {
    "id": 2**63 - 1,
    "byte": -128,
    "exact": Decimal("-99999999999999999999.999999999999999999"),
    "whole": Decimal("12345678901234567890123456789012345678"),
    "real": 5e-324,
    "single": 0.10000000149011612,
    "text": 'a\0b\u2028é"\\\n\t/😀,x\r\n',
    "bytes": b"\x00\xff\x10",
    "yes": True,
    "day": date(1, 1, 1),
    "at": INSTANT,
    "local": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "clock": time(23, 59, 59, 999999),
    "span": -(2**62),
    "months": 14,
    "in.side": {"a b.c": Decimal("0.000000000000000001"), "l": [None, INSTANT]},
    "list": ["", None, "NaN", "\n"],
    "map": [("", 1), ("k y", None), ("a.b", -(2**63))],
    "of days": [(date(2020, 2, 29), 0.1)],
    "1 odd-näme": '{"a":[1,2.50,null,"x"]}',
}
ROWS = [
    FULL,
    {"id": -(2**63), "text": "", "bytes": b"", "list": [], "map": [], "real": math.inf},
    {"id": 0, "real": -math.inf, "in.side": {"a b.c": None, "l": []}, "single": math.nan},
    {"id": 1},
]
TABLE = pa.Table.from_pylist(
    [{name: row.get(name) for name in STRUCT.names} for row in ROWS], struct_to_arrow(STRUCT)
)
NESTED = ("in.side", "list", "map", "of days")
SPANS = ("span", "months")
CASES = [(name, codec) for name in BATCH_FORMATS for codec in FORMATS[name].compressions]


def span_texts(row: dict[str, Any]) -> dict[str, Any]:
    words = {"span": "-PT4611686018427.387904S", "months": "P1Y2M"}
    return {
        name: words.get(name, value) if value is not None else None for name, value in row.items()
    }


def as_lines() -> pa.Table:
    """The rows as the tap's SQL would write them: nested values and variants as JSON."""
    lines = []
    for row in plain_rows(TABLE):
        text = row_text({**span_texts(row), "1 odd-näme": None}).decode()
        variant = row["1 odd-näme"] or "null"
        assert text.endswith('"1 odd-näme":null}')
        lines.append(f"{text[:-5]}{variant}}}\n")
    return pa.table({"value": lines})


def as_csv() -> pa.Table:
    table = TABLE
    for name in NESTED:
        values = [
            None if row[name] is None else row_text({"v": row[name]}).decode()[5:-1]
            for row in plain_rows(TABLE)
        ]
        table = table.set_column(
            table.column_names.index(name), name, pa.array(values, pa.string())
        )
    return table


def write(url: str, form: str, codec: str, options: StorageOptions) -> None:
    table = {"jsonl": as_lines, "csv": as_csv}.get(form, lambda: TABLE)()
    FORMATS[form].write(url, table.schema, [table.slice(0, 3), table.slice(3)], codec, options)


def read(url: str, form: str, label: str, options: StorageOptions) -> tuple[pa.Table, Rejects]:
    piece = Piece(InputFile(url, Encoding(form, label)))
    plan = ReadPlan(
        ((piece,),), spark_to_json_schema(STRUCT), struct_to_arrow(STRUCT), options=options
    )
    rejects = Rejects()
    return pa.concat_tables(read_task(plan, [piece], rejects)), rejects


def check(url: str, form: str, codec: str, options: StorageOptions) -> None:
    write(url, form, codec, options)
    for label in {codec, "gzip", "none"}:
        found, rejects = read(url, form, label, options)
        assert rejects.found == []
        assert repr(found.to_pylist()) == repr(TABLE.to_pylist())


@pytest.mark.parametrize(("form", "codec"), CASES)
def test_on_disk(form: str, codec: str, tmp_path: Path) -> None:
    check(str(tmp_path / "ä b"), form, codec, StorageOptions())


@pytest.mark.parametrize(("form", "codec"), CASES)
def test_on_s3(form: str, codec: str, server: Any) -> None:
    check(join(server.folder(), "ä b"), form, codec, StorageOptions(server.options))


@pytest.mark.parametrize("form", BATCH_FORMATS)
def test_missing_and_cut_on_s3(form: str, server: Any) -> None:
    options = StorageOptions(server.options)
    url = join(server.folder(), "x")
    with pytest.raises(UnreadableInputError) as missing:
        read(url, form, "none", options)
    assert missing.value.args[0] == url
    write(url, form, "bzip2" if FORMATS[form].packed else "none", options)
    from shared.storage import open_output, open_random

    with open_random(url, options) as source:
        data = source.read()
    with open_output(url, options=options) as sink:
        sink.write(data[:-9])
    with pytest.raises(UnreadableInputError):
        read(url, form, "none", options)


def test_texts_of_csv(tmp_path: Path) -> None:
    write(str(tmp_path / "x"), "csv", "none", StorageOptions())
    head = (tmp_path / "x").read_bytes().splitlines()[0].decode()
    assert head.startswith('"id","byte","exact"')
    last = (tmp_path / "x").read_bytes().rstrip().rpartition(b"\n")[2]
    assert last == b"1" + b"," * (len(STRUCT.names) - 1), "a null is empty"
    assert json.loads(as_csv().column("in.side")[0].as_py())["a b.c"] > 0
