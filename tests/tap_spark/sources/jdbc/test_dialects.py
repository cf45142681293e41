"""Quotes, values and types of each database, without a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from shared.spark.packages import DRIVERS
from tap_spark.sources.jdbc.dialects.dialect import (
    MODULES,
    ColumnInfo,
    TableInfo,
    decimal,
    dialect_for,
    moment,
    number,
)
from tap_spark.sources.jdbc.dialects.duckdb import column_type as duckdb_type
from tap_spark.sources.jdbc.dialects.mysql import column_type as mysql_type
from tap_spark.sources.jdbc.dialects.oracle import column_type as oracle_type
from tap_spark.sources.jdbc.dialects.sqlite import declared_type
from tap_spark.sources.jdbc.jdbc_query import custom_schema, spark_type, struct_of

URLS = {driver.database: driver.prefix for driver in DRIVERS} | {"other": "jdbc:x:"}
AT = "2024-03-31T02:30:00.123456+00:00"


def column(spark_type: str, sql_type: str = "x") -> ColumnInfo:
    return ColumnInfo("c", sql_type, spark_type, True, '"c"')


@pytest.mark.parametrize("database", sorted(MODULES))
def test_every_database_has_a_dialect(database: str) -> None:
    assert dialect_for(URLS[database]).name == database


@pytest.mark.parametrize("database", sorted(MODULES))
@given(name=st.text(min_size=1, max_size=20))
def test_quotes_never_end_early(database: str, name: str) -> None:
    dialect = dialect_for(URLS[database])
    first, *inside, last = dialect.quote(name)
    body = "".join(inside)
    assert body.replace(last * 2, "").count(last) == 0
    assert body.replace(last * 2, last) == name
    assert first == {"mysql": "`", "sqlserver": "["}.get(database, '"')


@pytest.mark.parametrize("database", ["sqlserver", "oracle", "sqlite", "duckdb", "other"])
@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20))
def test_texts_never_end_early(database: str, value: str) -> None:
    written = dialect_for(URLS[database]).literal(value, column("string"))
    body = written.removeprefix("N")[1:-1]
    assert body.replace("''", "").count("'") == 0
    assert body.replace("''", "'") == value


@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20))
def test_texts_of_postgresql_and_mysql(value: str) -> None:
    written = dialect_for(URLS["postgresql"]).literal(value, column("string"))
    assert written[:2] == "E'"
    body = written[2:-1].replace("\\\\", "").replace("''", "")
    assert "'" not in body
    assert "\\" not in body
    text = dialect_for(URLS["mysql"]).literal(value, column("string"))
    assert text == (f"CONVERT(X'{value.encode().hex()}' USING utf8mb4)" if value else "''")


@pytest.mark.parametrize("database", sorted(MODULES))
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1; DROP TABLE x", "int"),
        ("NaN", "double"),
        ("Infinity", "decimal(5,2)"),
        (True, "int"),
        (None, "bigint"),
        ("2024-01-01'; DROP", "date"),
        ("2024-01-01T00:00:00'--", "timestamp"),
        (5, "timestamp_ntz"),
        (5, "string"),
        ("a\0b", "string"),
    ],
)
def test_wrong_values_are_refused(database: str, value: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=r"is no|NUL"):
        dialect_for(URLS[database]).literal(value, column(kind))


@pytest.mark.parametrize(
    ("database", "kind", "written"),
    [
        ("postgresql", "timestamp", "TIMESTAMPTZ '2024-03-31 02:30:00.123456+00:00'"),
        ("postgresql", "timestamp_ntz", "TIMESTAMP '2024-03-31 02:30:00.123456'"),
        ("postgresql", "date", "DATE '2024-03-31'"),
        ("mysql", "timestamp", "FROM_UNIXTIME(1711852200.123456)"),
        ("mysql", "timestamp_ntz", "TIMESTAMP '2024-03-31 02:30:00.123456'"),
        (
            "sqlserver",
            "timestamp",
            "CONVERT(datetimeoffset(7), '2024-03-31 02:30:00.123456 +00:00', 121)",
        ),
        ("sqlserver", "timestamp_ntz", "CONVERT(datetime2(7), '2024-03-31 02:30:00.123456', 121)"),
        ("sqlserver", "date", "CONVERT(date, '2024-03-31', 120)"),
        ("oracle", "timestamp", "TIMESTAMP '2024-03-31 02:30:00.123456 +00:00'"),
        ("oracle", "timestamp_ntz", "TIMESTAMP '2024-03-31 02:30:00.123456'"),
    ],
)
def test_moments(database: str, kind: str, written: str) -> None:
    assert dialect_for(URLS[database]).literal(AT, column(kind)) == written


@pytest.mark.parametrize(
    ("day", "postgresql", "duckdb"),
    [
        ("-4712-01-01", "4713-01-01 BC", "4713-01-01 (BC)"),
        ("0000-06-01", "0001-06-01 BC", "0001-06-01 (BC)"),
        ("+20000-02-29", "20000-02-29", "20000-02-29"),
    ],
)
def test_years_before_1_and_after_9999(day: str, postgresql: str, duckdb: str) -> None:
    for database, written in (("postgresql", postgresql), ("duckdb", duckdb)):
        assert dialect_for(URLS[database]).literal(day, column("date")) == f"DATE '{written}'"
    for database in ("oracle", "sqlserver", "mysql", "other"):
        if not day.startswith("0"):
            with pytest.raises(ValueError, match=r"the year of .* is not supported"):
                dialect_for(URLS[database]).literal(day, column("date"))


@pytest.mark.parametrize("end", ["2038-01-18T12:00:00+00:00", "9999-12-31"])
def test_far_moments_of_mysql_are_compared_as_numbers_alone(end: str) -> None:
    near, far = (
        dialect_for(URLS["mysql"]).compared(column("timestamp"), "<", moment)
        for moment in ("2038-01-01", end)
    )
    assert "FROM_UNIXTIME" in near
    # Null beyond the type's last second, and with it the condition.
    assert "FROM_UNIXTIME" not in far
    assert far.startswith("UNIX_TIMESTAMP(`c`) < ")


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("varchar", "a-c", "[c] >= CAST(N'a-c' AS varchar(8000))"),
        ("char", "a'c", "[c] >= CAST(N'a''c' AS varchar(8000))"),
        # The database's own code page may lack it.
        ("varchar", "ж", "[c] >= N'ж'"),
        ("nvarchar", "a-c", "[c] >= N'a-c'"),
    ],
)
def test_texts_of_sqlserver_keep_the_order_of_their_type(
    kind: str, value: str, written: str
) -> None:
    key = column("string", kind)
    assert dialect_for(URLS["sqlserver"]).compared(key, ">=", value) == written


def test_dates_of_oracle_and_uuids_of_postgresql() -> None:
    oracle, postgresql = dialect_for(URLS["oracle"]), dialect_for(URLS["postgresql"])
    assert oracle.literal(AT, column("timestamp_ntz", "DATE")).startswith("TO_DATE('2024-03-31 02")
    assert postgresql.literal("a", column("string", "uuid")) == "E'a'::uuid"
    assert postgresql.key(column("string", "uuid")) == '"c"'
    assert postgresql.key(column("string", "text")) == '("c") COLLATE "C"'
    assert postgresql.key(column("timestamp", "timestamp with time zone")) == '"c"'


@pytest.mark.parametrize(
    ("value", "written"),
    [(5, "5"), ("1.10", "1.10"), (1e300, "1E+300"), (-0.5, "-0.5"), ("1e3", "1000")],
)
def test_numbers(value: Any, written: str) -> None:
    assert number(value) == written


def test_moments_are_split() -> None:
    assert moment("2024-01-02") == ("2024-01-02", "00:00:00", "+00:00")
    assert moment("2024-01-02 03:04:05Z") == ("2024-01-02", "03:04:05", "+00:00")
    assert moment("2024-01-02T03:04:05-0330")[2] == "-03:30"
    assert moment("2024-01-02T03:04:05+05")[2] == "+05:00"


@pytest.mark.parametrize(
    ("precision", "scale", "wanted"),
    [
        (38, 10, "decimal(38,10)"),
        (38, None, "decimal(38,0)"),
        (39, 0, "string"),
        (5, -2, "decimal(7,0)"),
        (37, -2, "string"),
        (3, 5, "decimal(5,5)"),
        (None, None, "string"),
    ],
)
def test_decimals(precision: int | None, scale: int | None, wanted: str) -> None:
    assert decimal(precision, scale) == wanted


def test_types_of_spark() -> None:
    items = [column("array<array<int>>"), column("timestamp_ntz"), column("decimal(38,10)")]
    assert [f.dataType.simpleString() for f in struct_of(items)] == [
        item.spark_type for item in items
    ]
    with pytest.raises(ValueError, match="not a Spark type"):
        spark_type("nonsense")
    assert custom_schema([ColumnInfo("a`b", "x", "int", True, "x", "bigint")]) == "`a``b` bigint"
    assert custom_schema(items) is None


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("INTEGER", "bigint"),
        ("unsigned big int", "bigint"),
        ("VARCHAR(10)", "string"),
        ("DECIMAL(10, 2)", "decimal(10,2)"),
        ("numeric(40,2)", "string"),
        ("DOUBLE PRECISION", "double"),
        ("blob", "binary"),
        ("BOOLEAN", "boolean"),
        ("DATETIME", "string"),
        ("", "string"),
    ],
)
def test_types_of_sqlite(words: str, wanted: str) -> None:
    assert declared_type(words) == wanted


def test_types_of_duckdb() -> None:
    assert duckdb_type("DECIMAL(38,10)")[0] == "decimal(38,10)"
    assert duckdb_type("INTEGER[]")[0] == "array<int>"
    assert duckdb_type("INTEGER[][]")[0] == "string"
    assert duckdb_type("STRUCT(a INTEGER)") == ("string", "to_json({})::VARCHAR", "string")
    assert duckdb_type("HUGEINT") == ("string", "{}::VARCHAR", "string")


def mysql(name: str, words: str = "", digits: int | None = None, scale: int | None = None) -> str:
    row = {"type": name, "words": words or name, "digits": digits, "scale": scale}
    return mysql_type(row)[0]


def test_types_of_mysql() -> None:
    assert mysql("bigint", "bigint(20) unsigned zerofill") == "decimal(20,0)"
    assert mysql("int", "int unsigned") == "bigint"
    assert mysql("tinyint", "tinyint(1)") == "tinyint"
    assert mysql("decimal", digits=65, scale=30) == "string"
    assert mysql("bit", digits=1) == "boolean"
    assert mysql("bit", digits=64) == "decimal(20,0)"
    assert mysql("json") == "string"


def oracle(words: str, digits: int | None = None, scale: int | None = None) -> str | None:
    actual = oracle_type({"words": words, "digits": digits, "scale": scale})
    return actual and actual[0]


def test_types_of_oracle() -> None:
    assert oracle("NUMBER", 10, 2) == "decimal(10,2)"
    assert oracle("NUMBER") == "string"
    assert oracle("NUMBER", None, 0) == "decimal(38,0)"
    assert oracle("TIMESTAMP(6)") == "timestamp_ntz"
    assert oracle("TIMESTAMP(6) WITH TIME ZONE") == "timestamp"
    assert oracle("INTERVAL DAY(2) TO SECOND(6)") == "string"
    assert oracle("SDO_GEOMETRY") is None


class Canned:
    """Answers in the order of the questions, and keeps these."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, query: str, texts: Any = ()) -> list[dict[str, Any]]:
        self.asked.append(query)
        return self.answers.pop(0)

    def struct(self, query: str) -> StructType:
        self.asked.append(query)
        return _AB


_AB = StructType().add("a", "integer").add("b", "string", False)
_T = {"schema": "s", "name": "t"}


def one_table(database: str, columns: list[dict[str, Any]]) -> tuple[TableInfo, Canned]:
    tables = [{**_T, "kind": "table", "row_count": 7, "size_bytes": None}]
    keys = [{**_T, "column": "b", "place": 2}, {**_T, "column": "a", "place": 1}]
    ask = Canned(tables, keys, [{**_T, **item} for item in columns])
    (actual,) = dialect_for(URLS[database]).tables(ask, ("s", "t'x"))
    return actual, ask


def test_tables_of_sqlserver() -> None:
    base = {"digits": 0, "scale": 0, "length": 8, "nullable": 1}
    actual, ask = one_table(
        "sqlserver",
        [
            {**base, "column": "b", "place": 2, "type": "bigint", "words": "bigint"},
            {**base, "column": "a", "place": 1, "type": "decimal", "words": "decimal"}
            | {"digits": 38, "scale": 10, "nullable": 0},
            {**base, "column": "c]", "place": 3, "type": "datetime2", "words": "datetime2"},
            {**base, "column": "d", "place": 4, "type": "nvarchar", "words": "Phone"},
        ],
    )
    assert actual.primary_key == ("a", "b")
    assert [c.spark_type for c in actual.columns] == [
        *("decimal(38,10)", "bigint", "timestamp_ntz", "string")
    ]
    assert [c.sql_type for c in actual.columns] == [
        "decimal(38,10)",
        "bigint",
        "datetime2",
        "Phone",
    ]
    assert [c.nullable for c in actual.columns] == [False, True, True, True]
    assert "[c]]]" in actual.columns[2].expression
    assert actual.replication_keys == ("a", "b", "c]")
    assert (actual.row_count, actual.size_bytes) == (7, None)
    assert all("s.name = N's' AND o.name = N't''x'" in query for query in ask.asked)
    assert all("ORDER BY" not in query for query in ask.asked)  # not allowed inside of a subquery


def test_tables_of_oracle() -> None:
    base = {"digits": None, "scale": None, "nullable": "Y"}
    actual, ask = one_table(
        "oracle",
        [
            {**base, "column": "b", "place": 2, "words": "DATE"},
            {**base, "column": "a", "place": 1, "words": "NUMBER", "digits": 10, "scale": 2},
            {**base, "column": "shape", "place": 3, "words": "SDO_GEOMETRY"},
        ],
    )
    assert [c.name for c in actual.columns] == ["a", "b"]
    assert [c.sql_type for c in actual.columns] == ["NUMBER(10,2)", "DATE"]
    assert custom_schema(actual.columns) == "`a` decimal(10,2), `b` timestamp_ntz"
    assert all("o.OWNER = 's' AND o.OBJECT_NAME = 't''x'" in query for query in ask.asked)


def test_tables_of_an_unknown_database() -> None:
    rows = [{"t_schema": "S", "t_name": 'T"x', "t_type": "BASE TABLE"}]
    ask = Canned([*rows, {"t_schema": "S", "t_name": "V", "t_type": "VIEW"}])
    table, view = dialect_for("jdbc:x:").tables(ask)
    assert ask.asked[1:] == ['SELECT * FROM "S"."T""x"', 'SELECT * FROM "S"."V"']
    assert [(c.name, c.spark_type, c.nullable) for c in table.columns] == [
        ("a", "int", True),
        ("b", "string", False),
    ]
    assert (table.is_view, view.is_view) == (False, True)
    assert table.replication_keys == ("a",)
    (one,) = dialect_for("jdbc:x:").tables(Canned(), (None, "t"))
    assert (one.schema, one.name) == (None, "t")


def test_columns_of_a_sqlite_key_take_null_unless_they_are_its_row_number() -> None:
    base = sqlite3.connect(":memory:")
    base.row_factory = sqlite3.Row
    base.executescript("""create table one (a integer primary key, b text);
        create table two (a integer, b text, primary key (a, b));
        insert into two values (null, 'x')""")

    def ask(query: str, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
        rows = map(dict, base.execute(query))
        return [{k: v if v is None else str(v) for k, v in row.items()} for row in rows]

    tables = dialect_for("jdbc:sqlite:a.db").tables(cast("Any", ask))
    assert [(t.name, t.columns[0].nullable) for t in tables] == [("one", False), ("two", True)]
    base.close()
