"""JSON lines and documents as rows: each value as it is written, or the reason and the line."""

from __future__ import annotations

import gzip
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from shared.storage import limits
from tap_spark.sources.files.json_kinds import alike_names, merged_all, type_of
from tap_spark.sources.files.json_rows import JsonRows, JsonTask, document_records, kinds_of
from tap_spark.sources.files.line_reader import LineRange

LONG = T.StructType([T.StructField("a", T.LongType())])
NOT_JSON = {
    "two objects on a line": ('{"a":1}{"a":2}', "Extra data"),
    "garbage after an object": ('{"a":1} x', "Extra data"),
    "a trailing comma": ('{"a":1,}', "not JSON"),
    "a comment": ('{"a":1} // one', "Extra data"),
    "single quotes": ("{'a':1}", "not JSON"),
    "an unquoted name": ("{a:1}", "not JSON"),
    "a repeated name": ('{"a":1,"a":2}', "has the name 'a' twice"),
    "a repeated name inside": ('{"a":1,"b":{"c":1,"c":2}}', "has the name 'c' twice"),
    "a lone surrogate": ('{"a":1,"b":"\\ud800"}', "lone surrogate"),
    "a lone surrogate in a name": ('{"a":1,"\\ud800":2}', "lone surrogate"),
    "a scalar": ("7", "not a JSON object: 7"),
    "text": ('"a"', "not a JSON object: 'a'"),
    "an array of scalars": ("[1]", "not a JSON object: 1"),
    "a leading zero": ('{"a":01}', "not JSON"),
    "a raw control character": ('{"a":1,"b":"x\ty"}', "not JSON"),
    "nesting without end": ('{"a":1,"b":' + "[" * 20000 + "}", "nested too deeply"),
    "half an object": ('{"a":', "not JSON"),
    "latin-1": (b'{"a":1,"b":"\xe9"}', "not UTF-8: byte 13 of the line"),
}
NUMBERS = {
    "long": (["1", "-9223372036854775808", "9007199254740993"], "bigint"),
    "double": (["1.5", "2", "0.30000000000000004", "1E5", "-0.0", "1e-7", "5e-324"], "double"),
    "seventeen digits": (["12345678901234567.89", "1"], "decimal(38,2)"),
    "long beside a fraction": (["9007199254740993", "1.5"], "decimal(38,1)"),
    "forty digits": (["1234567890123456789012345678901234567890", "1"], "string"),
    "beyond 64 bits": (["12345678901234567890", "-1"], "decimal(38,0)"),
    "printed by C": (["40.712775999999998", "0.10000000000000001"], "decimal(38,17)"),
    "thirty-two places": ([f"0.{'123' * 10}45", "1"], "decimal(38,32)"),
    "hundred places": ([f"0.{'1' * 100}", "1"], "string"),
    "too large": (["1e400", "1.50"], "string"),
    "too small": (["1e-400", "-1"], "string"),
    "far apart": (["1e30", "0.1234567890123456789", "7"], "string"),
    "exponents": (["1e3", "9007199254740993"], "decimal(38,0)"),
    "text and number": (['"x"', "1.10", "1e400"], "string"),
}
REFUSED = [
    ("DoubleType", T.DoubleType(), "9007199254740993"),
    ("DoubleType", T.DoubleType(), "12345678901234567.89"),
    ("DoubleType", T.DoubleType(), "1e400"),
    ("DoubleType", T.DoubleType(), "1e-400"),
    ("money", T.DecimalType(10, 2), "1.555"),
    ("money", T.DecimalType(10, 2), "123456789.5"),
    ("money", T.DecimalType(10, 2), '"1,5"'),
    ("long", T.LongType(), "1.5"),
    ("long", T.LongType(), "9223372036854775808"),
    ("int", T.IntegerType(), "2147483648"),
    ("float", T.FloatType(), "16777217"),
    ("float", T.FloatType(), "1e39"),
    ("map", T.MapType(T.StringType(), T.DoubleType()), '{"k":9007199254740993}'),
    ("local", T.TimestampNTZType(), '"2024-01-01T00:00:00+01:00"'),
    ("instant", T.TimestampType(), '"2024-01-01T00:00:00.1234567Z"'),
    ("date", T.DateType(), '"2024-02-30"'),
    ("boolean", T.BooleanType(), "1"),
    ("text", T.LongType(), '"x"'),
]
DOCUMENTS = {
    '[{"a":1},\n{"a":2}]': 2,
    '{\n"a":1}': 1,
    "[]\n": 0,
    " ": 0,
    ' [ { "a" : 1 } ] ': 1,
    '[{"a":1}]{"a":2}': "several JSON values",
    '{"a":1}\n{"a":2}': "several JSON values",
    '[{"a":1}] x': "after the document",
    '[{"a":1},]': "not JSON",
    '[{"a":1},2]': "not a JSON object",
    '[{"a":1,"a":2}]': "twice",
    '[{"a":1}': "ends within a value",
    '[{"a":"x\ny"}]': "not JSON",
}


def read(path: Path, read_block: Any, **settings: Any) -> list[pa.RecordBatch]:
    size = path.stat().st_size
    packed = path.suffix == ".gz"
    part = LineRange(str(path), 0, 0, size, size, aligned=True, is_stream=packed)
    task = JsonTask(read_block, **settings)
    return list(pickle.loads(pickle.dumps(task))([part]))


def rows(path: Path, struct: T.StructType, *, case: bool = False, **settings: Any) -> list[Any]:
    return [row for b in read(path, JsonRows(struct, case), **settings) for row in b.to_pylist()]


def inferred(path: Path, **settings: Any) -> T.StructType:
    batches = read(path, kinds_of, **settings)
    actual = type_of(merged_all(pickle.loads(b["kinds"][0].as_py()) for b in batches))
    assert isinstance(actual, T.StructType)
    return actual


def failure(call: Any) -> dict[str, str]:
    with pytest.raises(RuntimeError) as caught:
        call()
    parts: dict[str, str] = json.loads(str(caught.value).split("]", 1)[1].rsplit("[", 1)[0])
    return parts


@pytest.mark.parametrize(("line", "reason"), NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_that_is_no_object(tmp_path: Path, line: Any, reason: str, packed: bool) -> None:
    data = b'{"a":0}\n\n%s\n{"a":9}\n' % (line if isinstance(line, bytes) else line.encode())
    path = tmp_path / ("a.json.gz" if packed else "a.json")
    path.write_bytes(gzip.compress(data) if packed else data)
    struct = T.StructType([*LONG.fields, T.StructField("b", T.StringType())])
    for call in (lambda: inferred(path), lambda: rows(path, struct)):
        actual = failure(call)
        assert actual["file"] == str(path)
        assert reason in actual["problem"]
        assert "(line 3)" in actual["problem"]


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"a":"' + b"x" * (9 << 20)))
    assert "a line is longer than 1 MiB" in failure(lambda: rows(path, LONG))["problem"]


@pytest.mark.parametrize("shape", ["{}", '{{"n":{}}}', "[{}]", '[{{"n":[{}]}}]'])
@pytest.mark.parametrize("step", [1, -1])
def test_numbers_are_exact(tmp_path: Path, shape: str, step: int) -> None:
    """In columns, objects and arrays, whatever the digits and the order."""
    path = tmp_path / "a.json"
    for name, (texts, kind) in NUMBERS.items():
        lines = [f'{{"{name}":{shape.format(text)}}}\n' for text in texts[::step]]
        path.write_text("".join(lines))
        struct = inferred(path)
        assert f"{kind}" in struct.simpleString()
        # Lines on their own, and in one block, have one type.
        kinds = [k for line in lines for k in kinds_of(line.encode())]
        alone = merged_all(pickle.loads(k["kinds"][0].as_py()) for k in kinds)
        assert type_of(alone) == struct
        values = [inner(row[name]) for row in rows(path, struct)]
        if kind == "string":
            assert values == [text.strip('"') for text in texts[::step]]
        else:
            assert [*map(exact, values)] == [*map(Decimal, texts[::step])], name


def inner(value: Any) -> Any:
    while isinstance(value, dict | list):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value


def exact(value: Any) -> Decimal:
    return Decimal(repr(value) if isinstance(value, float) else value)


@pytest.mark.parametrize(("name", "dtype", "text"), REFUSED)
def test_a_type_that_cannot_keep_a_value(
    tmp_path: Path, name: str, dtype: T.DataType, text: str
) -> None:
    inside = T.StructType([T.StructField("x", dtype)])
    shapes = [("%s", dtype), ('{"x":%s}', inside), ("[%s]", T.ArrayType(dtype))]
    path = tmp_path / f"{name}.json"
    for shape, kind in shapes:
        path.write_text('{"b":1}\n{"b":2,"a":%s}\n' % (shape % text))
        struct = T.StructType([T.StructField("a", kind), T.StructField("b", T.IntegerType())])
        problem = failure(lambda struct=struct: rows(path, struct))["problem"]
        assert "property 'a" in problem
        assert "(line 2)" in problem


@pytest.mark.parametrize(
    ("text", "struct"),
    [
        ('{"ID":1}', LONG),
        ('{"a":1,"A":2}', LONG),
        ('{"\\u0041":2}', LONG),
        ('{"s":{"A":1}}', T.StructType([T.StructField("s", LONG)])),
        ('{"l":[{"A":1}]}', T.StructType([T.StructField("l", T.ArrayType(LONG))])),
    ],
)
def test_names_that_differ_by_case(tmp_path: Path, text: str, struct: T.StructType) -> None:
    path = tmp_path / "a.json"
    path.write_text(text + "\n")
    if "ID" in text:
        struct = T.StructType([T.StructField("id", T.LongType())])
    assert "by case only" in failure(lambda: rows(path, struct))["problem"]
    assert len(rows(path, struct, case=True)) == 1
    both = merged_all(
        pickle.loads(k["kinds"][0].as_py())
        for line in (text, text if '"a"' in text else text.lower().replace("\\u0041", "a"))
        for k in kinds_of(line.encode())
    )
    assert alike_names(type_of(both)) is not None


@pytest.mark.parametrize("text", DOCUMENTS)
def test_documents(tmp_path: Path, text: str) -> None:
    expected = DOCUMENTS[text]
    for name, data in (("a.json", text.encode()), ("a.json.gz", gzip.compress(text.encode()))):
        path = tmp_path / name
        path.write_bytes(data)
        if isinstance(expected, int):
            assert len(rows(path, LONG, document=True)) == expected
        else:
            actual = failure(lambda path=path: rows(path, LONG, document=True))
            assert expected in actual["problem"]
            assert actual["file"] == str(path)


def test_the_records_of_a_path() -> None:
    text = '{"n": {"rows": 1}, "in": {"x": [], "rows": [{"a": 1}, {"a": 2}]}, "z": null}'
    assert list(document_records(text, ("in", "rows"))) == ['{"a": 1}', '{"a": 2}']
    twice = '{"rows": [{"a": 1}], "rows": []}'
    with pytest.raises(ValueError, match="twice"):
        list(document_records(twice, ("rows",)))
