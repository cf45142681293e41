"""A suite of tests for encodings of files: what each of them promises.

Needs pytest, and in `conftest.py` the line `pytest_plugins = ["shared.testing"]`, so that failures
say what they saw. Subclass `EncodingSuite` in a test module, and let pytest find `Test...`:

    from shared.testing import EncodingSuite

    class TestArrow(EncodingSuite):
        form = ENCODING
"""

from __future__ import annotations

import gzip
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

try:
    import pytest
except ModuleNotFoundError as missing:
    missing.msg = f"{__name__} needs pytest: pip install 'singer-spark[testing]'"
    raise
from shared.batch_config import validate
from shared.encodings.encoding_format import EncodingFormat
from shared.formats.arrow_types import conform, struct_to_arrow
from shared.formats.file_formats import FORMATS
from shared.formats.json_lines import LineReader
from shared.formats.json_schema import spark_to_json_schema
from shared.formats.spark_types import T
from shared.formats.typed_rows import RowReader, plain_values, row_text
from shared.storage import limits
from shared.storage.access import StorageOptions

_HEAVY = ("pyspark", "pyarrow", "pandas", "numpy", "fsspec")
_MANY = 40_000
_F = T.StructField
_INNER = T.StructType([_F("a b.c", T.DecimalType(38, 18)), _F("l", T.ArrayType(T.TimestampType()))])
STRUCT = T.StructType(
    [
        _F("id", T.LongType(), False),
        _F("byte", T.ByteType()),
        _F("exact", T.DecimalType(38, 18)),
        _F("whole", T.DecimalType(38, 0)),
        _F("real", T.DoubleType()),
        _F("single", T.FloatType()),
        _F("text", T.StringType()),
        _F("bytes", T.BinaryType()),
        _F("yes", T.BooleanType()),
        _F("day", T.DateType()),
        _F("at", T.TimestampType()),
        _F("local", T.TimestampNTZType()),
        _F("clock", T.TimeType(6)),
        _F("span", T.DayTimeIntervalType()),
        _F("months", T.YearMonthIntervalType()),
        _F("in.side", _INNER),
        _F("list", T.ArrayType(T.StringType())),
        _F("map", T.MapType(T.StringType(), T.LongType())),
        _F("of days", T.MapType(T.DateType(), T.DoubleType())),
        _F("1 odd-näme", T.VariantType()),
    ]
)
_INSTANT = datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=timezone.utc)
_FULL: dict[str, Any] = {
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
    "at": _INSTANT,
    "local": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "clock": time(23, 59, 59, 999999),
    "span": -(2**62),
    "months": 14,
    "in.side": {"a b.c": Decimal("0.000000000000000001"), "l": [None, _INSTANT]},
    "list": ["", None, "NaN", "\n"],
    "map": [("", 1), ("k y", None), ("a.b", -(2**63))],
    "of days": [(date(2020, 2, 29), 0.1)],
    "1 odd-näme": '{"a":[1,2.50,null,"x"]}',
}
ROWS = [
    _FULL,
    {"id": -(2**63), "text": "", "bytes": b"", "list": [], "map": [], "real": math.inf},
    {"id": 0, "real": -math.inf, "in.side": {"a b.c": None, "l": []}, "single": math.nan},
    {"id": 1},
]
TABLE = pa.Table.from_pylist(
    [{name: row.get(name) for name in STRUCT.names} for row in ROWS], struct_to_arrow(STRUCT)
)
_NESTED = ("in.side", "list", "map", "of days")


def _span_texts(row: dict[str, Any]) -> dict[str, Any]:
    words = {"span": "-PT4611686018427.387904S", "months": "P1Y2M"}
    return {
        name: words.get(name, value) if value is not None else None for name, value in row.items()
    }


def _as_lines() -> pa.Table:
    """Return the rows as the tap's SQL would write them: nested values and variants as JSON."""
    lines = []
    for row in plain_values(TABLE):
        text = row_text({**_span_texts(row), "1 odd-näme": None}).decode()
        variant = row["1 odd-näme"] or "null"
        lines.append(f"{text[:-5]}{variant}}}\n")
    return pa.table({"value": lines})


def _as_texts() -> pa.Table:
    table = TABLE
    for name in _NESTED:
        values = [
            None if row[name] is None else row_text({"v": row[name]}).decode()[5:-1]
            for row in plain_values(TABLE)
        ]
        table = table.set_column(
            table.column_names.index(name), name, pa.array(values, pa.string())
        )
    return table


def awkward(form: EncodingFormat) -> pa.Table:
    """Return rows with values of every type, laid out as files of an encoding hold them."""
    if form.rows == "lines":
        return _as_lines()
    return _as_texts() if form.rows == "texts" else TABLE


def typed(form: EncodingFormat, tables: Iterator[pa.Table]) -> pa.Table:
    """Return what files of an encoding held, with the columns and types of the awkward rows."""
    schema, columns = spark_to_json_schema(STRUCT), struct_to_arrow(STRUCT)
    conformed = [conform(_typed(form, schema, table), columns) for table in tables]
    return pa.concat_tables(conformed) if conformed else columns.empty_table()


def _typed(form: EncodingFormat, schema: Any, table: pa.Table) -> pa.Table:
    if form.rows == "lines":
        blocks = b"".join(table.column(0).cast(pa.large_binary()).to_pylist())
        lines = LineReader(schema, envelope=False, strict=True).read(blocks)
        assert lines.rejects == ()
        return lines.table
    rows = RowReader(schema, strict=True, texts=form.rows == "texts").read(table)
    assert rows.rejects == ()
    return rows.table


def _numbers(form: EncodingFormat, start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    if form.rows == "lines":
        return pa.table({"value": [f'{{"id":{number}}}\n' for number in numbers]})
    return pa.table({"id": pa.array(numbers, pa.int64())})


@cache
def heavy_imports(code: str) -> str:
    """Return the list of the slow libraries that a program of its own imports, as text."""
    loaded = f"[name for name in {_HEAVY} if name in sys.modules]"
    script = f"import sys; {code}; print({loaded})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


class EncodingSuite:
    """The tests; a subclass says of what."""

    form: ClassVar[EncodingFormat]
    cannot_hold: ClassVar[tuple[str, ...]] = ()
    """Columns of the awkward rows for which it lacks a type; empty for batch files."""

    def test_it_is_found_by_its_name(self) -> None:
        assert FORMATS[self.form.name] == self.form
        assert self.cannot_hold == () or self.form.batch_compression is None

    def test_declarations_need_no_arrow(self) -> None:
        registry = "shared.encodings.encoding_format"
        assert heavy_imports(f"import {registry} as all; dict(all.FORMATS)") == "[]"

    def test_batch_settings_know_it(self, tmp_path: Path) -> None:
        for compression in (*self.form.compressions, "nope"):
            encoding = {"format": self.form.name, "compression": compression}
            block = {"encoding": encoding, "storage": {"root": str(tmp_path)}}
            faults = validate({"batch_config": block}, "tap").problems
            good = self.form.batch_compression is not None and compression != "nope"
            assert bool(faults) is not good

    def test_every_type_and_compression(self, tmp_path: Path) -> None:
        table = awkward(self.form).drop_columns(list(self.cannot_hold))
        for compression in self.form.compressions:
            url = str(tmp_path / f"ä b{self.form.extension(compression)}")
            parts = [table.slice(0, 3), table.slice(3, 0), table.slice(3)]
            self.form.write(url, table.schema, iter(parts), compression, StorageOptions())
            rows = typed(self.form, self.form.read(url, StorageOptions()))
            rows = rows.drop_columns(list(self.cannot_hold))
            wanted = TABLE.drop_columns(list(self.cannot_hold))
            assert repr(rows.to_pylist()) == repr(wanted.to_pylist())

    def test_many_rows_stay_in_order(self, tmp_path: Path) -> None:
        url = str(tmp_path / "x")
        parts = [_numbers(self.form, start, _MANY // 4) for start in range(0, _MANY, _MANY // 4)]
        self.form.write(url, parts[0].schema, iter(parts), self.form.default_compression)
        ids = self._ids(url)
        assert ids == list(range(_MANY))

    def test_every_level_keeps_the_rows(self, tmp_path: Path) -> None:
        table = _numbers(self.form, 0, 1000)
        for compression, highest in self.form.levels.items():
            for level in (1, highest):
                url = str(tmp_path / f"{level}{self.form.extension(compression)}")
                self.form.write(url, table.schema, [table], compression, None, level)
                assert self._ids(url) == list(range(1000))

    def test_a_file_without_rows(self, tmp_path: Path) -> None:
        table = awkward(self.form).drop_columns(list(self.cannot_hold))
        for compression in self.form.compressions:
            url = str(tmp_path / f"x{self.form.extension(compression)}")
            self.form.write(url, table.schema, iter(()), compression)
            assert Path(url).is_file()
            parts = list(self.form.read(url))
            assert sum(part.num_rows for part in parts) == 0
            if self.form.rows != "lines":
                assert all(part.column_names == table.column_names for part in parts)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="x"):
            list(self.form.read(str(tmp_path / "x")))
        (tmp_path / "file").touch()
        table = _numbers(self.form, 0, 1)
        url = str(tmp_path / "file" / "x")
        with pytest.raises(OSError, match="file"):
            self.form.write(url, table.schema, [table], self.form.default_compression)

    def test_files_of_another_encoding_are_refused(self, tmp_path: Path) -> None:
        noise = b"\x00\x01" + random.Random(1).randbytes(10_000)  # noqa: S311
        others = {"noise": noise}
        for other in (form for form in FORMATS.values() if form.missing() is None):
            if other.rows != self.form.rows or (other.rows == "tables" and other != self.form):
                table = _numbers(other, 0, 100)
                path = tmp_path / other.name
                other.write(str(path), table.schema, [table], other.default_compression)
                others[other.name] = path.read_bytes()
        if self.form.rows == "lines":
            others.pop("csv")  # text, which differs from JSON only in its lines
        for name, content in others.items():
            path = tmp_path / f"{name}.other"
            path.write_bytes(content)
            with pytest.raises((OSError, pa.ArrowInvalid)):
                list(self.form.read(str(path)))

    def test_cut_files_fail_or_hold_less(self, tmp_path: Path) -> None:
        for compression in self.form.compressions:
            table = _numbers(self.form, 0, 1000)
            path = tmp_path / "x"
            self.form.write(str(path), table.schema, [table], compression)
            whole = path.read_bytes()
            for size in (1, 7, len(whole) // 2, len(whole) - 1):
                path.write_bytes(whole[:size])
                try:
                    count = sum(part.num_rows for part in self.form.read(str(path)))
                except (OSError, pa.ArrowInvalid):
                    continue
                assert self.form.rows != "tables", f"{size} bytes pass for a whole file"
                assert count < table.num_rows or size == len(whole) - 1

    def test_a_bomb_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if not self.form.packed:
            pytest.skip("not offered: files are not compressed as a whole")
        monkeypatch.setattr(limits, "FREE_BYTES", 1 << 20)
        monkeypatch.setattr(limits, "MAX_RATIO", 100)
        row = b'{"a":1}\n' if self.form.rows == "lines" else b"a,a\n"
        path = tmp_path / "x"
        path.write_bytes(gzip.compress(row * (1 << 24)))
        with pytest.raises(pa.ArrowInvalid, match="times its size"):
            list(self.form.read(str(path)))

    def _ids(self, url: str) -> list[int]:
        tables = list(self.form.read(url))
        if self.form.rows != "lines":
            return [int(value) for part in tables for value in part.column("id").to_pylist()]
        lines = b"".join(value for part in tables for value in part.column(0).to_pylist())
        return [int(line[6:-1]) for line in lines.splitlines()]
