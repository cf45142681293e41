"""JSON files read by Spark: each value as it is written, or an error that names file and line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zipfile
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_matrix import matrix
from pyarrow import orc
from pyspark.sql import types as T  # noqa: N812
from tap_runs import failure, read_all, rows, stream, types

from shared.formats.date_numbers import text_rank
from tap_spark.config import TapConfig
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.sources.frame_helpers import rank_column
from tap_spark.state.bookmarks import greater_bookmark, normal_key

pytestmark = [pytest.mark.spark, pytest.mark.costly]
UTC = timezone.utc
BOTH_METHODS = ["FULL_TABLE", "INCREMENTAL"]
METHODS = pytest.mark.parametrize("method", BOTH_METHODS)


@pytest.mark.parametrize(("method", "supplied"), matrix(BOTH_METHODS, ["a BIGINT, b STRING", None]))
def test_a_line_of_two_objects_is_named(spark, write, method, supplied):
    path = write("a.json", '{"a":0}\n\n{"a":1}{"a":2}\n{"a":9}\n')
    config = stream("json", path, schema=supplied, replication_method=method)
    text = failure(lambda: rows(spark, config))
    assert path in text
    assert "(line 3)" in text


@METHODS
def test_unusual_lines_are_read(spark, write, method):
    text = '\ufeff{"a":1}\r\n\r\n   \n [{"a":2}, {"a":3}]\n{ "a" : 4 }\r{"a":5}\n{"a":null}\n{}\n'
    config = stream(
        "json",
        write("a.json", text),
        replication_method=method,
        options={"multiLine": "false"},
    )
    assert [row["a"] for row in rows(spark, config)] == [1, 2, 3, 4, 5, None, None]


@pytest.mark.parametrize(
    ("lines", "method"),
    matrix([['{"id":1}', '{"ID":2}'], ['{"s":{"id":1}}', '{"s":{"Id":2}}']], BOTH_METHODS),
)
def test_names_that_differ_by_case(spark, write, method, lines):
    path = write("a.json", "\n".join(lines) + "\n")
    config = stream("json", path, replication_method=method)
    text = failure(lambda: rows(spark, config))
    assert path in text
    assert "differ by case only" in text
    supplied = "s STRUCT<id: BIGINT>" if '"s"' in lines[0] else "id BIGINT"
    text = failure(
        lambda: rows(spark, stream("json", path, schema=supplied, replication_method=method))
    )
    assert f"{path}'" in text
    assert "by case only" in text
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        actual = rows(spark, config)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert without_nulls(actual) == [json.loads(line) for line in lines]


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@METHODS
def test_numbers_are_exact(spark, write, method):
    lines = [
        '{"a":12345678901234567.89,"b":9007199254740993,"c":1e400,"d":{"x":[0.1]}}',
        '{"a":1,"b":1.5,"c":1.50,"d":{"x":[12345678901234567.89]}}',
    ]
    path = write("a.json", "\n".join(lines) + "\n")
    config = stream("json", path, replication_method=method)
    kinds = types(spark, config)
    assert [kinds[name] for name in "abc"] == ["decimal(38,2)", "decimal(38,1)", "string"]
    first, second = rows(spark, config)
    assert (first["a"], first["b"]) == (Decimal("12345678901234567.89"), 9007199254740993)
    assert (second["a"], second["b"]) == (1, Decimal("1.5"))
    assert [first["c"], second["c"]] == ["1e400", "1.50"]
    assert second["d"]["x"] == [Decimal("12345678901234567.89")]


@METHODS
def test_given_types(spark, write, method):
    path = write(
        "a.json",
        '{"d":12345678901234567.89,"t":1.10,"o":{"n": 1.10},"e":1E5,"i":1e3,"f":-0.0}\n',
    )
    schema = "d DECIMAL(38,2), t STRING, o STRING, e DOUBLE, i INT, f DOUBLE"
    (row,) = rows(spark, stream("json", path, schema=schema, replication_method=method))
    assert list(map(str, row.values())) == [
        *("12345678901234567.89", "1.10", '{"n": 1.10}', "100000.0", "1000", "-0.0")
    ]
    config = stream("json", path, schema="d DOUBLE", replication_method=method)
    text = failure(lambda: rows(spark, config))
    assert path in text
    assert "property 'd': type double cannot keep 12345678901234567.89 as written (line 1)" in text


@METHODS
def test_files_are_read_by_their_content(spark, write, tmp_path, method):
    packed = [gzip.compress, bz2.compress, lzma.compress, lambda data: pa.compress(data, "zstd")]
    for number, pack in enumerate([*packed, bytes]):
        text = f'{{"a":{number},"b":"\u00e9"}}\n'.encode()
        write(f"d/{number}.jsonl", bytes(pack(text)))
        write(f"e/{number}.json", bytes(pack(b"[" + text + b"]")))
    write("d/8.jsonl", '{"a":8,"b":"\u00e9"}\n'.encode("utf-16"))
    write("d/9.json.gz", '\ufeff{"a":9,"b":"\u00e9"}\n')
    for folder, last in (("d", [8, 9]), ("e", [])):
        config = stream("json", str(tmp_path / folder), replication_method=method)
        assert types(spark, config) == {"a": "long", "b": "string"}
        actual = sorted(rows(spark, config), key=lambda row: row["a"])
        assert actual == [{"a": a, "b": "\u00e9"} for a in [*range(5), *last]]


@pytest.mark.parametrize(
    ("name", "method"), matrix(["windows-1252", "GBK", "UTF-16LE"], BOTH_METHODS)
)
def test_encodings(spark, write, method, name):
    word = "\u4e2d" if name == "GBK" else "\u00e9"
    lines = write("a.json", f'{{"a":"{word}"}}\n{{"a":"x"}}\n'.encode(name))
    document = write("b.json", f'[{{"a":"{word}"}},\n{{"a":"x"}}]\n'.encode(name))
    for path in (lines, document):
        config = stream("json", path, options={"encoding": name}, replication_method=method)
        assert [row["a"] for row in rows(spark, config)] == [word, "x"]


@METHODS
def test_what_is_no_json_text_is_named(spark, write, tmp_path, method):
    with zipfile.ZipFile(tmp_path / "z.json", "w") as archive:
        archive.writestr("a.json", '{"a":1}')
    text = b'{"a":"\xe9"}\n'
    cases = {
        str(tmp_path / "z.json"): ("zip archive", {}),
        write("cut.json", gzip.compress(b'{"a":1}\n' * 9999)[:-12]): ("cannot be read", {}),
        write("w.json", '{"a":1}\n'.encode("utf-16-le")): ("likely to UTF-16LE", {}),
        write("l.json", text): ("set the option 'encoding'", {}),
        write("m.json", text): ("byte 6 (0xe9) is not text in", {"encoding": "GBK"}),
        write("n.json", gzip.compress(text)): ("does not say so", {"allowComments": "true"}),
        write("o.json", '{"a":1}\n'.encode("utf-16")): ("UTF-16", {"allowComments": "true"}),
    }
    for path, (problem, options) in cases.items():
        config = stream("json", path, replication_method=method, options=options)
        message = failure(lambda config=config: rows(spark, config))
        assert path in message
        assert problem in message


def test_parquet_of_other_writers(spark, tmp_path):
    nanos = pa.array([1_000], pa.timestamp("ns", "UTC"))
    first = {"i": pa.array([1], pa.int32()), "at": nanos, "t": pa.array([1], pa.time64("ns"))}
    pq.write_table(pa.table(first), tmp_path / "1.parquet", compression="brotli")
    pq.write_table(pa.table({"i": [2**40], "n": pa.nulls(1)}), tmp_path / "2.parquet")
    for method in ("FULL_TABLE", "INCREMENTAL"):
        config = stream("parquet", str(tmp_path), replication_method=method)
        actual = sorted(rows(spark, config), key=lambda row: row["i"])
        assert [row["i"] for row in actual] == [1, 2**40]
        assert [row["t"] for row in actual] == ["00:00:00.000000001", None]
    pq.write_table(pa.table({"i": ["x"]}), tmp_path / "3.parquet")
    text = failure(lambda: rows(spark, config))
    assert f"column 'i' is string in '{tmp_path}/3.parquet', and int64 in" in text


ENCODINGS = {
    "BYTE_STREAM_SPLIT": pa.array([0.1, None, -2.5]),
    "DELTA_BINARY_PACKED": pa.array([2**62, None, -1]),
    "DELTA_LENGTH_BYTE_ARRAY": pa.array(["a", None, "\u00e9"]),
    "DELTA_BYTE_ARRAY": pa.array(["aa", None, "ab"]),
}


@pytest.mark.parametrize("codec", ["lz4", "zstd", "gzip", "brotli"])
def test_encodings_of_parquet(spark, tmp_path, codec):
    pq.write_table(
        pa.table(ENCODINGS), tmp_path / "a.parquet", compression=codec, use_dictionary=False,
        column_encoding={name: name for name in ENCODINGS},
    )  # fmt: skip
    actual = rows(spark, stream("parquet", str(tmp_path)))
    assert actual == pa.table(ENCODINGS).to_pylist()


@METHODS
def test_brotli_in_a_later_file(spark, tmp_path, method):
    for number, codec in enumerate(["snappy", "brotli"]):
        pq.write_table(pa.table({"a": [number]}), tmp_path / f"{number}.parquet", compression=codec)
    actual = rows(spark, stream("parquet", str(tmp_path), replication_method=method))
    assert sorted(row["a"] for row in actual) == [0, 1]


@pytest.mark.parametrize(
    ("method", "zone"), matrix(["FULL_TABLE", "INCREMENTAL"], ["America/New_York", "UTC"])
)
def test_orc_with_zones(spark, tmp_path, method, zone):
    times = [datetime(2024, 7, 1, 1, 2, 3, 4, UTC), datetime(1700, 1, 1, tzinfo=UTC), None]
    nested = pa.array([[time] for time in times], pa.list_(pa.timestamp("us", "UTC")))
    table = pa.table({"a": pa.array(times, pa.timestamp("us", "UTC")), "b": nested})
    orc.write_table(table, tmp_path / "a.orc")
    config = stream("orc", str(tmp_path), replication_method=method)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert types(spark, config)["a"] == "timestamp"
        (piece,) = read_all(spark, config)[1]
        actual = piece.frame.selectExpr("unix_micros(a) a", "transform(b, x -> unix_micros(x)) b")
        micros = table["a"].cast(pa.int64()).to_pylist()
        assert [(row.a, row.b[0]) for row in actual.collect()] == [(m, m) for m in micros]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    orc.write_table(pa.table({"a": pa.array([1], pa.timestamp("ns", "UTC"))}), tmp_path / "b.orc")
    text = failure(lambda: rows(spark, config))
    assert "column 'a' holds a value" in text
    assert f"{tmp_path}/b.orc" in text


def test_nanoseconds_are_said_to_be_cut(spark, tmp_path, caplog):
    table = pa.table({"at": pa.array([1_000], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    orc.write_table(table, tmp_path / "a.orc")
    for kind, options, count in (
        ("parquet", {"mergeSchema": "true"}, 1),
        ("orc", {}, 1),
        ("parquet", {}, 0),
    ):
        caplog.clear()
        config = stream(kind, str(tmp_path / f"a.{kind}"), options=options)
        assert types(spark, config) == {"at": "timestamp"}
        (row,) = rows(spark, config)
        assert row["at"].microsecond == 1
        message = "stream 's': nanoseconds of timestamps are cut to microseconds: at"
        assert (caplog.messages.count(message) >= 1) is bool(count)


def test_nanoseconds_of_int96_by_setting(spark, tmp_path):
    table = pa.table({"at": pa.array([1_001], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    text = failure(lambda: rows(spark, stream("parquet", str(tmp_path))))
    assert "column 'at'" in text
    assert "a.parquet" in text
    assert "STRING by 'schema'" in text
    actual = rows(spark, stream("parquet", str(tmp_path), schema="at STRING"))
    assert actual == [{"at": "1970-01-01T00:00:00.000001001Z"}]


ORDERED = [
    *("", "-", "2024-01-01T10:00:00+1", "2024-02-30", "9a", "n/a", "é"),
    *("-10.5", "-9", "0", "0.000000000000000001", "9", "10", "10.25", "99999999999999999999.9"),
    *("1969-12-31T23:59:59Z", "1970-01-01", "2024-01-01T01:00:00+01:30", "2024-01-01"),
    *("2024-01-01T10:00:00Z", "2024-01-01T10:00:00.5", "2024-01-01 10:00:00.500000001Z"),
    *("2024-01-01T05:00:01.25-0500", "9999-12-31T00:00:00z"),
]


@pytest.mark.parametrize("kind", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_texts_have_the_order_of_their_values(spark, kind):
    """Also if users want times without zone."""
    spark.conf.set("spark.sql.timestampType", kind)
    frame = spark.createDataFrame([(text,) for text in ORDERED], "k string")
    try:
        ranks = [row.rank for row in frame.select(rank_column(frame.k).alias("rank")).collect()]
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert ranks == [text_rank(text) for text in ORDERED]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("first", "second", "last"),
    [
        # Its parts are those of the next one and of texts in `ORDERED`.
        pytest.param(
            ["2024-01-01T09:00:00Z", "2024-01-01T10:00:00Z"],
            "2024-01-01T10:00:00.500Z",
            2,
            marks=pytest.mark.slow,
        ),
        (["2024-01-01T10:00:00Z"], "2024-01-01T08:30:00-02:00", 2),
        pytest.param(["9", "10"], "11", 2, marks=pytest.mark.slow),
        (["9", "10"], "n/a", 2),
        (["a", "b"], "ba", 2),
        (["9", "10"], "2", 1),
    ],
)
def test_a_key_of_text_is_compared_by_value(spark, write, first, second, last):
    write_lines = "".join(json.dumps({"k": key}) + "\n" for key in [*first, second])
    path = write("a.json", write_lines)
    config = stream("json", path, replication_key="k")
    state = {"bookmarks": {"s": {"replication_key_value": first[-1]}}}
    actual = [row["k"] for row in rows(spark, config, state=state)]
    assert actual == [*first[-1:], second][:last]
    kept = TapConfig(streams=(config,))
    (plan,) = plan_streams(kept, catalog_for(spark, kept), None, 1)
    assert greater_bookmark(first[0], first[-1], plan.key_type) == first[-1]
    assert normal_key(second, plan.key_type) == second


LONG = "12345678901234567.89"
HONOURED = [
    {"dateFormat": "yyyy", "timeZone": "UTC"},
    {"mode": "FAILFAST", "samplingRatio": "0.1"},
    {"allowComments": "false", "lineSep": "\n", "inferTimestamp": "false"},
]


@pytest.mark.parametrize(("options", "method"), matrix(HONOURED, BOTH_METHODS))
def test_options_that_change_no_value(spark, write, method, options, caplog):
    path = write("a.json", f'{{"a":{LONG},"t":"2024-01-01"}}\n')
    config = stream("json", path, replication_method=method, options=options)
    assert rows(spark, config) == [{"a": Decimal(LONG), "t": "2024-01-01"}]
    assert "Spark's own reader" not in caplog.text
    write("a.json", '{"a":0}\n{"a":1}{"a":2}\n')
    text = failure(lambda: rows(spark, stream("json", path, schema="a BIGINT", options=options)))
    assert "(line 2)" in text


def test_options_that_choose_types(spark, write):
    path = write("a.json", f'{{"a":{LONG},"b":1.50,"c":true,"d":null,"e":[],"f":{{"g":[1.5]}}}}\n')

    def actual(**options):
        return types(spark, stream("json", path, options=options))

    assert actual(primitivesAsString="true")["f"] == str(
        T.StructType().add("g", T.ArrayType(T.StringType())).jsonValue()
    )
    (row,) = rows(spark, stream("json", path, options={"primitivesAsString": "true"}))
    assert row == {"a": LONG, "b": "1.50", "c": "true", "d": None, "e": [], "f": {"g": ["1.5"]}}
    assert actual(prefersDecimal="true")["b"] == "decimal(38,1)"
    assert actual(dropFieldIfAllNull="true").keys() == {"a", "b", "c", "f"}


@pytest.mark.parametrize(
    ("options", "schema"),
    [
        ({"allowComments": "true"}, None),
        ({"mode": "PERMISSIVE"}, None),
        ({"timestampFormat": "yyyy"}, "a BIGINT, t TIMESTAMP"),
        ({}, "a BIGINT, m INTERVAL DAY TO SECOND"),
    ],
)
def test_what_is_left_to_spark_is_said_once(spark, write, options, schema, caplog):
    path = write("a.json", '{"a":1,"t":"2024"}\n')
    assert len(rows(spark, stream("json", path, options=options, schema=schema))) == 1
    lines = [line for line in caplog.messages if "Spark's own reader" in line]
    assert {line.partition(", for ")[0] for line in lines} == {
        "stream 's': Spark's own reader reads the JSON"
    }
    assert any(name in lines[0] for name in (*options, "m"))


@METHODS
def test_json_in_folders(spark, write, tmp_path, method):
    write("t/day=2024-01-01/n=x%3Dy/a.json", f'{{"a":{LONG}}}\n{{"a":1}}\n')
    write("t/day=2024-01-02/n=__HIVE_DEFAULT_PARTITION__/b.json.gz", gzip.compress(b'{"a":2}\n'))
    config = stream("json", str(tmp_path / "t"), replication_method=method)
    expected = [
        {"a": Decimal(LONG), "day": date(2024, 1, 1), "n": "x=y"},
        {"a": 1, "day": date(2024, 1, 1), "n": "x=y"},
        {"a": 2, "day": date(2024, 1, 2), "n": None},
    ]
    actual = sorted(rows(spark, config), key=lambda row: -row["a"])
    assert actual == sorted(expected, key=lambda row: -row["a"])
    assert len(rows(spark, config, deselect=["a"])) == 3
    by_key = stream("json", str(tmp_path / "t"), replication_key="a", schema="a INT, n STRING")
    text = failure(lambda: rows(spark, by_key))
    assert "(line 1)" in text
    write("t/day=2024-01-01/n=x%3Dy/a.json", '{"a":0}\n{"a":1}{"a":2}\n')
    text = failure(lambda: rows(spark, config))
    assert "(line 2)" in text
    assert "a.json" in text


def test_json_files_that_an_option_chooses(spark, write, tmp_path):
    write("t/a.json", f'{{"a":{LONG}}}\n')
    write("t/b.txt", "no JSON\n")
    config = stream("json", str(tmp_path / "t"), options={"pathGlobFilter": "*.json"})
    assert rows(spark, config) == [{"a": Decimal(LONG)}]
