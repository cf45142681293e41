"""CSV, JSON, Parquet, ORC and text files, awkward ones too, read through plans as a run does."""

from __future__ import annotations

import gzip
import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_matrix import matrix
from tap_runs import failure, read_all, rows, stream, types

from shared.errors import SourceError
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.plan.run_options import RunOptions, StreamRange, as_asked
from tap_spark.sources.files.text_types import decide
from tap_spark.sources.source import source_for

pytestmark = pytest.mark.spark
METHODS = ["FULL_TABLE", "INCREMENTAL"]


INFERRED = {
    "long": (["1", "-20", "0"], "long"),
    "zeros": (["00501", "1", "2"], "string"),
    "plus": (["+1", "1", "2"], "string"),
    "underscore": (["1_000", "1", "2"], "string"),
    "spaced": ([" 1", "1", "2"], "string"),
    "minus zero": (["-0", "1", "2"], "string"),
    "edge": (["9223372036854775807", "-9223372036854775808", "1"], "long"),
    "beyond": (["9223372036854775808", "1", "2"], "decimal(38,0)"),
    "huge": (["1" * 39, "1", "2"], "string"),
    "double": (["1.5", "2", "-0.25"], "double"),
    "money": (["1.50", "10.00", "3.25"], "decimal(38,2)"),
    "ragged scale": (["1.50", "1.5", "1"], "string"),
    "exponent": (["1e5", "1", "2"], "string"),
    "nan": (["NaN", "1.5", "2.5"], "string"),
    "precise": (["0.1234567890123456789", "1.5", "2"], "string"),
    "flag": (["true", "false", "true"], "boolean"),
    "Titled": (["True", "false", "true"], "string"),
    "day": (["2024-02-29", "1999-01-01", "2024-01-01"], "date"),
    "bad day": (["2023-02-29", "1999-01-01", "2024-01-01"], "string"),
    "short day": (["2024-1-1", "1999-01-01", "2024-01-01"], "string"),
    "local": (["2024-01-01 00:00:00", "2024-01-01T00:00:00.5", ""], "timestamp_ntz"),
    "instant": (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00+02:00", ""], "timestamp"),
    "mixed time": (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00", ""], "string"),
    "None": (["None", "1", "2"], "string"),
    "holes": (["", "7", ""], "long"),
    "empty": (["", "", ""], "string"),
}  # fmt: skip


def test_csv_types_are_only_inferred_without_loss(spark, write):
    lines = [",".join(INFERRED)]
    lines += [",".join(values[n] for values, _ in INFERRED.values()) for n in range(3)]
    config = stream("csv", write("a.csv", "\n".join(lines) + "\n"))
    assert types(spark, config) == {name: kind for name, (_, kind) in INFERRED.items()}
    first = rows(spark, config)[0]
    assert first["zeros"] == "00501"
    assert first["beyond"] == Decimal(9223372036854775808)
    assert first["money"] == Decimal("1.50")
    assert first["day"] == date(2024, 2, 29)
    assert first["local"] == datetime(2024, 1, 1)
    assert (first["None"], first["holes"], first["minus zero"]) == ("None", None, "-0")


def test_a_column_without_forms_is_text():
    assert decide(None).simpleString() == "string"


def test_awkward_csv_names_work_everywhere(spark, write):
    path = write("a.csv", "Total $,b.c,`x`,a,a,,A\n1,2,3,4,5,6,7\n")
    config = stream("csv", path, replication_key="b.c", sort_by_replication_key=True)
    (row,) = rows(spark, config)
    assert list(row.values()) == [1, 2, 3, 4, 5, 6, 7]
    assert list(row)[:4] == ["Total $", "b.c", "`x`", "a"]
    assert len({name.lower() for name in row}) == 7
    position = stream("csv", path, replication_method="INCREMENTAL")
    assert rows(spark, position) == [row]


def test_selected_columns_only(spark, write):
    config = stream("csv", write("a.csv", "a,b,c\n1,2,3\n"))
    assert rows(spark, config, deselect=["b"]) == [{"a": 1, "c": 3}]


@pytest.mark.parametrize(("line", "method"), matrix(["1", "1,2,3"], METHODS))
def test_ragged_csv_is_an_error_that_names_the_file(spark, write, method, line):
    path = write("r.csv", f"a,b\n1,2\n{line}\n")
    config = stream("csv", path, schema="a INT, b INT", replication_method=method)
    text = failure(lambda: rows(spark, config, deselect=["b"]))
    assert path in text
    assert f": {line} " in text


LATER = [("1,1.50\n00x,2.50", "column 'a'"), ("1,1.505", "column 'price'")]


@pytest.mark.parametrize(("later", "method"), matrix(LATER, METHODS))
def test_a_later_value_of_another_type_names_column_and_value(spark, write, later, method):
    lines, named = later
    path = write("v.csv", "a,price\n1,1.50\n")
    config = stream("csv", path, replication_method=method)
    catalog = catalog_for(spark, stream_config(config))
    write("v.csv", f"a,price\n{lines}\n")
    text = failure(lambda: read_all(spark, config, catalog=catalog))
    assert named in text
    assert ("00x" in text) is ("00x" in lines)


def stream_config(config):
    from tap_spark.config import TapConfig

    return TapConfig(streams=(config,))


def test_csv_headers_that_differ_are_refused(spark, write, tmp_path):
    write("d/1.csv", "a,b\n1,2\n")
    write("d/2.csv", "b,a\n1,2\n")
    for method in ("FULL_TABLE", "INCREMENTAL"):
        config = stream(
            "csv", str(tmp_path / "d"), schema="a INT, b INT", replication_method=method
        )
        text = failure(lambda config=config: rows(spark, config))
        assert f"file '{tmp_path}/d/" in text
        assert "differs from that of the other files" in text


def test_csv_options_and_encodings(spark, write):
    path = write("o.csv", "x;y\n'a;b';é\n#c\nNULL;z\n".encode("latin-1"))
    options = {
        "sep": ";",
        "quote": "'",
        "encoding": "ISO-8859-1",
        "comment": "#",
        "nullValue": "NULL",
    }
    expected = [{"x": "a;b", "y": "é"}, {"x": None, "y": "z"}]
    for method in ("FULL_TABLE", "INCREMENTAL"):
        assert (
            rows(spark, stream("csv", path, options=options, replication_method=method)) == expected
        )


QUOTED = [
    (
        'id,"the ""name"""\n1,"The ""Quoted"" Co."\n2,"ends in \\"\n',
        {},
        [{"id": 1, 'the "name"': 'The "Quoted" Co.'}, {"id": 2, 'the "name"': "ends in \\"}],
    ),
    (
        'id,"the \\"name\\""\n1,"a \\"b\\""\n',
        {"Escape": "\\"},
        [{"id": 1, 'the "name"': 'a "b"'}],
    ),
    ("id,name\n1,'it''s'\n", {"quote": "'"}, [{"id": 1, "name": "it's"}]),
]


@pytest.mark.parametrize(("quoted", "method"), matrix(QUOTED, METHODS))
def test_quotes_in_csv_are_doubled_unless_the_user_says_otherwise(spark, write, quoted, method):
    text, options, expected = quoted
    config = stream("csv", write("q.csv", text), options=options, replication_method=method)
    assert rows(spark, config) == expected


def test_csv_without_header_and_multiline(spark, write):
    path = write("m.csv", '1,"a\nb"\n2,c\n')
    options = {"header": "false", "multiLine": "true"}
    expected = [{"_c0": 1, "_c1": "a\nb"}, {"_c0": 2, "_c1": "c"}]
    for method in ("FULL_TABLE", "INCREMENTAL"):
        assert (
            rows(spark, stream("csv", path, options=options, replication_method=method)) == expected
        )


def test_a_schema_names_and_types_columns(spark, write):
    path = write("s.csv", "b,a\n1,02/01/2024\n")
    options = {"dateFormat": "dd/MM/yyyy"}
    by_name = stream("csv", path, schema="a DATE, b STRING", options=options)
    assert rows(spark, by_name) == [{"a": date(2024, 1, 2), "b": "1"}]
    by_position = stream("csv", path, schema="n INT, d DATE", options=options)
    assert rows(spark, by_position) == [{"n": 1, "d": date(2024, 1, 2)}]
    assert "has 3 columns" in failure(
        lambda: rows(spark, stream("csv", path, schema="x INT, y INT, z INT"))
    )
    assert "not Spark DDL" in failure(lambda: rows(spark, stream("csv", path, schema="x NOPE")))


def test_a_missing_column_is_reported_and_new_ones_are_ignored(spark, write):
    path = write("g.csv", "a,b\n1,2\n")
    config = stream("csv", path)
    catalog = catalog_for(spark, stream_config(config))
    write("g.csv", "new,a,b\n9,1,2\n")
    assert read_all(spark, config, catalog=catalog)[0] == [{"a": 1, "b": 2}]
    write("g.csv", "a\n1\n")
    assert "no longer in the source: b" in failure(lambda: read_all(spark, config, catalog=catalog))


def test_json_keeps_exact_values(spark, write):
    lines = [
        {"id": 12345678901234567890, "t": "x", "n": None, "Cost $": {"a.b": [1]}, "d": 0.1},
        {"id": 1, "t": 300, "n": None, "d": 2},
    ]
    path = write("a.json", "".join(json.dumps(line) + "\n" for line in lines))
    config = stream("json", path)
    actual = types(spark, config)
    assert (actual["id"], actual["n"], actual["t"]) == ("decimal(38,0)", "string", "string")
    for method in ("FULL_TABLE", "INCREMENTAL"):
        first, second = rows(spark, stream("json", path, replication_method=method))
        assert (first["id"], second["t"]) == (Decimal(12345678901234567890), "300")
        assert first["Cost $"]["a.b"] == [1]


NUMBERS = [
    *("1.10", "-0", "-0.0", "1e2", "1E+400", "1e39", "50000.0000000000000001", "7" * 32),
    *("0.12345678901234567890", "12345678901234567890"),
]


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
def test_json_numbers_in_text_keep_their_digits(spark, write, method):
    deep = '{"a" : 1.10, "b": ["x", 2.50], "c": null}'
    lines = [*NUMBERS, '"1.10"', "true", deep, '[1.10,  "é"]', "null"]
    parts = (
        f'{{"n":{n},"t" : {t} , "s":{{"t":{t},"n":1.10}}, "l":["t", {t}]}}'
        for n, t in enumerate(lines)
    )
    path = write("t.json", "\n".join(parts) + "\n")
    schema = "n BIGINT, t STRING, s STRUCT<t: STRING, n: DOUBLE>, l ARRAY<STRING>"
    config = stream("json", path, schema=schema, replication_method=method)
    expected = [*NUMBERS, "1.10", "true", deep, '[1.10,  "é"]', None]
    actual = rows(spark, config)
    assert [row["t"] for row in actual] == expected
    assert [row["s"] for row in actual] == [{"t": text, "n": 1.1} for text in expected]
    assert [row["l"] for row in actual] == [["t", text] for text in expected]


def test_json_documents_are_noticed(spark, write):
    expected = [{"a": 1}, {"a": 2}]
    texts = ['[\n{"a":1},\n{"a":2}]', ' [{"a":1},{"a":2}]', '{"a":1}\n{"a":2}\n']
    for number, text in enumerate(texts):
        assert rows(spark, stream("json", write(f"{number}.json", text))) == expected
    assert rows(spark, stream("json", write("p.json", '{\n  "a": 1\n}\n'))) == [{"a": 1}]
    zipped = write("z.json.gz", gzip.compress(texts[0].encode()))
    assert rows(spark, stream("json", zipped, replication_method="INCREMENTAL")) == expected


def test_records_path(spark, write):
    path = write(
        "r.json", '{"meta": 1, "in": {"rows": [{"a": 1, "b": {"c": 2, "d": 3}}, {"a": 4}]}}'
    )
    config = stream("json", path, records_path="in.rows")
    assert rows(spark, config) == [{"a": 1, "b": {"c": 2, "d": 3}}, {"a": 4, "b": None}]
    wrong = stream("json", path, records_path="in.nope")
    assert "records_path 'in.nope' is not in the documents" in failure(lambda: rows(spark, wrong))
    assert "not an array of objects" in failure(
        lambda: rows(spark, stream("json", path, records_path="in"))
    )


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
def test_bad_json_is_named_in_discovery_and_reading(spark, write, method):
    path = write("b.json", '{"a":1}\nfoo bar\n')
    config = stream("json", path, replication_method=method)
    text = failure(lambda: types(spark, config))
    assert path in text
    assert "foo bar" in text
    write("b.json", '{"a":1}\n')
    catalog = catalog_for(spark, stream_config(config))
    write("b.json", '{"a":1}\n{"a":"x"}\n')
    text = failure(lambda: read_all(spark, config, catalog=catalog))
    assert path in text
    assert '{"a":"x"}' in text


def test_parquet_reads_selected_columns_and_pushes_the_bound(spark, tmp_path, capfd):
    path = str(tmp_path / "p")
    spark.sql(
        "select id, timestamp_seconds(id) at, named_struct('x', id, 'y', 'z') s, 'q' `b c` "
        "from range(5) union all select 9, null, null, null"
    ).write.parquet(path)
    config = stream("parquet", path, replication_key="at")
    state = {"bookmarks": {"s": {"replication_key_value": "1970-01-01T00:00:03+00:00"}}}
    actual, slices = read_all(spark, config, state=state, deselect=["b c", ("s", "y")])
    assert sorted(row["id"] for row in actual) == [3, 4, 9]
    assert actual[0]["s"] in ({"x": 3}, {"x": 4}, None)
    assert not slices[0].ordered
    slices[0].frame.explain()
    plan = capfd.readouterr().out
    assert "ReadSchema: struct<id:bigint,at:timestamp,s:struct<x:bigint>>" in plan
    assert "GreaterThanOrEqual(at" in plan


def test_parquet_files_that_evolve_and_orc(spark, tmp_path):
    path = tmp_path / "p"
    spark.range(1).write.parquet(str(path / "k=1"))
    spark.sql("select 7L id, 'x' extra").write.parquet(str(path / "k=2"))
    config = stream("parquet", str(path), replication_method="INCREMENTAL")
    actual, slices = read_all(spark, config)
    assert sorted(map(str, actual)) == sorted(
        map(str, [{"id": 0, "extra": None, "k": 1}, {"id": 7, "extra": "x", "k": 2}])
    )
    state = {"bookmarks": {"s": slices[-1].bookmark}}
    assert read_all(spark, config, state=state) == ([], [])
    spark.sql("select 8L id, 'new' extra").write.parquet(str(path / "k=3"))
    assert read_all(spark, config, state=state)[0] == [{"id": 8, "extra": "new", "k": 3}]
    orc = str(tmp_path / "o")
    spark.sql("select 1 a, struct(2 b, 3 c) s").write.orc(orc)
    assert rows(spark, stream("orc", orc), deselect=[("s", "b")]) == [{"a": 1, "s": {"c": 3}}]


@pytest.mark.parametrize(
    ("before", "start", "expected"),
    [
        ("a", "b", ["b", "c", None]),
        (Decimal("1.0000"), "1.0001", [Decimal("1.0001"), Decimal("2.0000"), None]),
        (date(2024, 1, 1), "2024-01-02", [date(2024, 1, 2), date(2024, 1, 3), None]),
    ],
)
def test_bounds_keep_ties_and_nulls(spark, tmp_path, before, start, expected):
    path = str(tmp_path / "p.parquet")
    pq.write_table(pa.table({"k": [*reversed(expected), before]}), path)
    config = stream("parquet", path, replication_key="k", sort_by_replication_key=True)
    state = {"bookmarks": {"s": {"replication_key_value": start}}}
    actual, slices = read_all(spark, config, state=state)
    assert [row["k"] for row in actual] == [None, *expected[:-1]]
    assert slices[0].ordered


def ids_from(spark, config, start, catalog=None):
    catalog = catalog or catalog_for(spark, stream_config(config))
    state = {"bookmarks": {"s": {"replication_key_value": start}}}
    (plan,) = plan_streams(stream_config(config), catalog, state, 1)
    (piece,) = source_for(config).slices(spark, plan)
    return sorted(row[0] for row in piece.frame.select("id").collect())


YEAR_KINDS = ["date", "timestamp", "timestamp_ntz"]


@pytest.fixture(scope="module")
def all_years(spark, tmp_path_factory):
    """A file with moments of all years, in a column for each type."""
    path = str(tmp_path_factory.mktemp("years") / "p")
    columns = ", ".join(f"cast(k as {kind}) `{kind}`" for kind in YEAR_KINDS)
    spark.sql(
        f"select id, {columns} from values (1, '-4712-01-01'), (2, '-0043-03-15'), "
        "(3, '2026-01-01'), (4, '9999-12-31'), (5, '+20000-02-29'), (6, null) as t(id, k)"
    ).coalesce(1).write.parquet(path)
    return path


@pytest.mark.parametrize("kind", YEAR_KINDS)
def test_bounds_of_all_years(spark, all_years, kind):
    config = stream("parquet", all_years, replication_key=kind)
    catalog = catalog_for(spark, stream_config(config))
    assert ids_from(spark, config, "-4712-01-01", catalog) == [1, 2, 3, 4, 5, 6]
    assert ids_from(spark, config, "-0043-03-15", catalog) == [2, 3, 4, 5, 6]
    assert ids_from(spark, config, "+20000-02-29", catalog) == [5, 6]
    assert ids_from(spark, config, "9999-12-31", catalog) == [1, 2, 3, 4, 5, 6]


def test_a_bound_that_the_column_does_not_hold_leaves_out_nothing(spark, tmp_path):
    path = str(tmp_path / "p")
    spark.sql("select cast(id as byte) id from range(3)").write.parquet(path)
    config = stream("parquet", path, replication_key="id")
    assert ids_from(spark, config, 300) == [0, 1, 2]
    assert ids_from(spark, config, 2) == [2]


@pytest.mark.parametrize(
    ("kind", "end", "expected"),
    [
        ("string", "b", ["a", None]),
        ("decimal(20,4)", 1.5, [Decimal("1.0000"), None]),
        ("date", "2024-01-02", [date(2024, 1, 1), None]),
        ("timestamp_ntz", "2024-01-02T00:00:00Z", [datetime(2024, 1, 1), None]),
    ],
)
def test_the_end_date_is_exclusive_and_keeps_nulls(spark, tmp_path, kind, end, expected):
    path = str(tmp_path / "p")
    values = [*(str(value) for value in expected[:-1]), str(end)]
    selects = " union all ".join(f"select cast('{value}' as {kind}) k" for value in values)
    spark.sql(f"{selects} union all select null k").coalesce(1).write.parquet(path)
    config = stream("parquet", path, replication_key="k", end_date=end)
    actual, (piece,) = read_all(spark, config)
    assert [row["k"] for row in actual] == expected
    executed = piece.frame._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [Or(LessThan(k," in executed


@pytest.mark.parametrize(
    ("key", "others"), [("id", ""), ("cast(id as string)", " union all values '2026-01-01', 'abc'")]
)
def test_a_backfill_reads_neither_nulls_nor_the_end(spark, tmp_path, key, others):
    path = str(tmp_path / "p")
    texts = f"select {key} k from range(11) union all select null{others}"
    spark.sql(texts).coalesce(1).write.parquet(path)
    config = stream("parquet", path, replication_key="k")
    tap = stream_config(config)
    (plan,) = plan_streams(tap, catalog_for(spark, tap), None, 1)
    plan = as_asked(plan, RunOptions(backfill=StreamRange("s", "2", "4")))
    (piece,) = source_for(config).slices(spark, plan)
    assert sorted(int(row.k) for row in piece.frame.collect()) == [2, 3]


def test_missing_paths_are_named_without_spark(tmp_path):
    for path in ("none.csv", "no/*.csv"):
        with pytest.raises(SourceError, match="stream 's'") as caught:
            source_for(stream("csv", str(tmp_path / path)))
        assert path in str(caught.value)


def test_all_failing_streams_are_named(spark, tmp_path, write):
    from tap_spark.config import TapConfig
    from tap_spark.stream_config import StreamConfig

    empty = write("empty.csv", "")
    streams = (
        StreamConfig(name="one", format="csv", path=empty),
        StreamConfig(name="two", format="json", path=empty),
        StreamConfig(name="three", format="parquet", path=empty),
    )
    with pytest.raises(SourceError) as caught:
        catalog_for(spark, TapConfig(streams=streams))
    for name in ("one", "two", "three"):
        assert f"stream '{name}'" in str(caught.value)


def test_globs_lists_and_literal_names(spark, tmp_path, write):
    write("g/a1.txt", "1\n")
    write("g/b1.txt", "2\r\n\n3")
    write("g/x[1].txt", "4\n")
    write("g/.hidden", "no\n")
    folder = tmp_path / "g"
    for path, expected in {
        f"{folder}/{{a,b}}1.txt": ["1", "2", "", "3"],
        f"{folder}/x[1].txt": ["4"],
        str(folder): ["1", "2", "", "3", "4"],
    }.items():
        for method in ("FULL_TABLE", "INCREMENTAL"):
            config = stream("text", path, replication_method=method, read_unterminated_line=True)
            actual = rows(spark, config)
            assert sorted(row["value"] for row in actual) == sorted(expected), (path, method)
    both = stream("text", (f"{folder}/a1.txt", f"file://{folder}/b*"))
    assert len(rows(spark, both)) == 4


def test_rows_are_deterministic_and_mixed(spark):
    config = stream("rows", row_count=200, column_count=20)
    first = rows(spark, config)
    assert first == rows(spark, config)
    assert [row["id"] for row in first] == list(range(200))
    actual = types(spark, config)
    assert len(actual) == 20
    assert len(set(actual.values())) >= 7
    nulls = {name for row in first for name, value in row.items() if value is None}
    assert nulls
    assert not nulls & {"id", "updated_at"}
    assert rows(spark, config, deselect=["updated_at"])[0].keys() == set(actual) - {"updated_at"}
    assert rows(spark, stream("rows", row_count=0, column_count=2)) == []


def test_rows_end_before_the_end_date(spark):
    config = stream("rows", row_count=10, column_count=3, replication_key="id", end_date=3)
    assert [row["id"] for row in rows(spark, config)] == [0, 1, 2]


def test_rows_resume_by_id(spark):
    config = stream("rows", row_count=10, column_count=3, replication_key="id")
    state = {"bookmarks": {"s": {"replication_key_value": 7}}}
    actual, slices = read_all(spark, config, state=state)
    assert [row["id"] for row in actual] == [7, 8, 9]
    assert slices[0].ordered
