"""Sessions and SELECT statements of a stream, without a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from shared.errors import SettingsError
from tap_spark.sources.jdbc import jdbc_query, read_slices
from tap_spark.sources.jdbc.dialects.dialect import (
    ColumnInfo,
    TableInfo,
    database_name,
    dialect_for,
)
from tap_spark.sources.jdbc.jdbc_query import (
    DatabaseSnapshot,
    JdbcOptions,
    JdbcQuery,
    jdbc_options,
    session_options,
)
from tap_spark.sources.jdbc.jdbc_source import JdbcSource
from tap_spark.sources.jdbc.metadata import (
    PROPERTIES,
    init_statement,
    reader_options,
    session_properties,
)
from tap_spark.sources.jdbc.part_plan import TableStatistics
from tap_spark.state.stream_plans import Slice
from tap_spark.stream_config import ConnectionConfig, StreamConfig

PG = "jdbc:postgresql://h/d"
ID = ColumnInfo('i"d', "bigint", "bigint", False, '"i""d"')
TAGS = ColumnInfo("tags", "text[]", "array<string>", True, 'array_to_json("tags")::text')
NAME = ColumnInfo("name", "text", "string", True, '"name"')


def reading(*columns: ColumnInfo, key: ColumnInfo | None = None) -> JdbcQuery:
    dialect = dialect_for(PG)
    return JdbcQuery(dialect, dialect.table(("s", "t")), columns, {"url": PG}, key)


def test_columns_are_named_by_number() -> None:
    assert reading(ID, TAGS).subquery() == (
        '(SELECT "i""d" AS "c0", array_to_json("tags")::text AS "c1" FROM "s"."t") tap_spark_rows'
    )


def test_a_bookmark_is_the_databases_work() -> None:
    sql = reading(ID, key=ID).since(5).subquery()
    assert sql.endswith('FROM "s"."t" WHERE "i""d" >= 5) tap_spark_rows')
    sql = reading(NAME, key=NAME).since("x' OR 1=1; --").subquery()
    assert 'COLLATE "C" >= E\'x\'\' OR 1=1; --\' OR ("name") COLLATE "C" IS NULL' in sql
    both = reading(ID, key=ID).since(5).up_to(9).subquery()
    assert ' WHERE "i""d" >= 5 AND ("i""d" <= 9 OR "i""d" IS NULL)' in both


def test_the_end_of_a_range_is_the_databases_work() -> None:
    sql = reading(ID, key=ID).before(5).with_keys().subquery()
    assert ' WHERE ("i""d" < 5 OR "i""d" IS NULL) AND "i""d" IS NOT NULL)' in sql


@pytest.mark.parametrize(
    ("url", "table"),
    [
        ("jdbc:sqlserver://h;databaseName=shop", "archive.dbo.orders"),
        (PG, '"shop"."s"."t"'),
        ("jdbc:x:h", "a.b.c"),
        ("jdbc:sqlserver://archive;databaseName=shop;user=archive", "archive.dbo.orders"),
        ("jdbc:postgresql://shop/d", "shop.public.t"),
        ("jdbc:sqlite:/shop.db", "aux.t"),
    ],
)
def test_a_table_of_another_database_is_refused(url: str, table: str) -> None:
    database = ConnectionConfig("c", url=url)
    with pytest.raises(SettingsError, match="names a database, and the tap looks"):
        JdbcSource(StreamConfig("s", "jdbc", database=database, table=table))


def test_names_with_dots_and_the_schema_of_sqlite() -> None:
    for url, table in (
        (PG, '"a.b".c'),
        (PG, "D.public.t"),
        ("jdbc:sqlserver://h:1433;databaseName=shop;encrypt=true", "shop.dbo.t"),
        ("jdbc:sqlite:/shop.db", "Main.t"),
    ):
        database = ConnectionConfig("c", url=url)
        assert JdbcSource(StreamConfig("s", "jdbc", database=database, table=table)).parts


def split_query(
    monkeypatch: pytest.MonkeyPatch, url: str, key: ColumnInfo, ends: tuple[Any, Any], **more: Any
) -> JdbcQuery:
    """Return the query whose ranges are the parts of a table, without a database."""
    database = ConnectionConfig("c", url=url, count_rows=False, **more)
    stream = StreamConfig("s", "jdbc", database=database, table="t", replication_key=key.name)
    plan = Mock(config=stream, start_value=None, end_value=None, tap_stream_id="s")
    dialect, queries = dialect_for(url), list[JdbcQuery]()
    query = JdbcQuery(dialect, dialect.table(("t",)), (key,), {"url": url}, key)
    monkeypatch.setattr(read_slices, "_statistics", lambda *_: TableStatistics(rows=10))
    monkeypatch.setattr(read_slices, "_key_bounds", lambda *_: ends)
    snapshot = DatabaseSnapshot(as_of=" AS OF SCN 5")
    monkeypatch.setattr(jdbc_query, "_scn", lambda *_: snapshot)
    monkeypatch.setattr(
        JdbcQuery, "in_ranges", lambda self, *_: queries.append(self) or Slice(Mock())
    )
    table = TableInfo(None, "t", "table", (key,))
    options = JdbcOptions(partitions=2)
    read = read_slices.JdbcRead(Mock(), database, plan, options, query, table)
    assert len(list(read_slices.read_slices(read))) == 1
    return queries[0]


AT = ColumnInfo("at", "datetime2", "timestamp_ntz", False, "[at]")
SQL_SERVER = "jdbc:sqlserver://h;databaseName=d"


@pytest.mark.parametrize(
    ("greatest", "condition"),
    [
        (
            "2024-01-01T10:00:00.123456",
            "[at] <= CONVERT(datetime2(7), '2024-01-01 10:00:00.123457'",
        ),
        (
            "2024-12-31T23:59:59.999999",
            "[at] <= CONVERT(datetime2(7), '2025-01-01 00:00:00.000000'",
        ),
        ("9999-12-31T23:59:59.999999", None),
    ],
)
def test_parts_have_the_newest_row_of_a_finer_time(
    monkeypatch: pytest.MonkeyPatch, greatest: str, condition: str | None
) -> None:
    query = split_query(monkeypatch, SQL_SERVER, AT, ("2024-01-01T00:00:00.000000", greatest))
    assert len(query.conditions) == bool(condition)
    assert condition is None or condition in query.conditions[0]


@pytest.mark.parametrize(("snapshot", "as_of"), [(True, " AS OF SCN 5"), (False, "")])
def test_parts_of_oracle_see_one_moment(
    monkeypatch: pytest.MonkeyPatch, snapshot: bool, as_of: str
) -> None:
    url, key = "jdbc:oracle:thin:@h:1521/x", replace(ID, name="id")
    assert split_query(monkeypatch, url, key, (1, 9), snapshot=snapshot).source == f'"t"{as_of}'


@pytest.mark.parametrize("value", ["x", None, True, "1; drop table t", float("nan")])
def test_a_bookmark_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        reading(ID, key=ID).since(value)


def test_sessions_read_only() -> None:
    actual = session_properties(PG)
    assert (actual["readOnly"], actual["readOnlyMode"]) == ("true", "always")
    assert "READ ONLY" in str(init_statement(PG))
    assert "extra_float_digits = 3" in str(init_statement(PG))
    assert init_statement("jdbc:sqlite:x.db") == "PRAGMA query_only = 1"
    assert session_properties("jdbc:duckdb:x.db") == {"duckdb.read_only": "true"}
    # A database in memory cannot be opened to read alone.
    assert session_properties("jdbc:duckdb:") == {}
    assert "read_only" in session_properties("jdbc:mysql://h/d")["sessionVariables"]
    assert session_properties("jdbc:unknown:x") == {}
    assert init_statement("jdbc:unknown:x") is None


@pytest.mark.parametrize(
    "url", [PG, "jdbc:mysql://h/d", "jdbc:mariadb://h/d", "jdbc:sqlserver://h"]
)
def test_reaching_a_database_has_a_limit(url: str) -> None:
    assert {"connectTimeout", "loginTimeout"} & set(session_properties(url))
    assert any(url.startswith(start) for start in PROPERTIES)


def test_what_the_user_sets_wins() -> None:
    assert "connectTimeout" not in session_properties(PG + "?connectTimeout=3")
    connection = ConnectionConfig(
        "pg", url=PG, properties={"CONNECTTIMEOUT": "3", "readOnly": "false"}
    )
    options = reader_options(connection)
    assert options["CONNECTTIMEOUT"] == "3"
    assert "connectTimeout" not in options
    assert options["readOnly"] == "false"


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    ("query", "properties", "joined", "rest"),
    [
        ("", {"SessionVariables": "a=1, b='x';"}, "a=1, b='x',", ""),
        ("?x=1&sessionVariables=a%3D1&y=2", {}, "a=1,", "?x=1&y=2"),
        ("?SESSIONVARIABLES=a=1", {"sessionVariables": "b=2"}, "a=1,b=2,", ""),
        ("?x=1", {}, "", "?x=1"),
        ("?password=p?", {"sessionVariables": "a=1"}, "a=1,", "?password=p?"),
        ("?x=1&sessionVariables=", {}, "", "?x=1"),
        ("", {"sessionVariables": "SQL_BIG_SELECTS = 1"}, "SQL_BIG_SELECTS = 1,", ""),
    ],
)
def test_variables_of_the_user_join_ours(
    kind: str, query: str, properties: dict[str, str], joined: str, rest: str
) -> None:
    url = f"jdbc:{kind}://h/d"
    options = reader_options(ConnectionConfig("m", url=url + query, properties=properties))
    ours = session_properties(url)["sessionVariables"]
    assert {n: v for n, v in options.items() if n.lower() == "sessionvariables"} == {
        "sessionVariables": joined + ours
    }
    assert options["url"] == url + rest


def test_servers_have_two_names_of_a_variable() -> None:
    properties = {"sessionVariables": "tx_read_only=1"}
    options = reader_options(ConnectionConfig("m", url="jdbc:mysql://h/d", properties=properties))
    assert options["sessionVariables"].startswith("tx_read_only=1,sql_select_limit=")


@pytest.mark.parametrize(
    ("url", "properties", "message"),
    [
        ("mysql://h/d?sessionVariables=a=1,TRANSACTION_READ_ONLY=0", {}, r"\['url'\].*READ_ONLY"),
        ("mariadb://h/d", {"sessionVariables": "@@sql_mode=''"}, r"\['sessionVar.*'sql_mode'"),
        ("mysql://(host=h,sessionVariables=a=1)/d", {}, "must be in 'properties'"),
    ],
)
def test_variables_of_the_user_do_not_replace_ours(
    url: str, properties: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=f"(?i)connections.*{message}"):
        reader_options(ConnectionConfig("m", url=f"jdbc:{url}", properties=properties))


def test_a_snapshot_begins_the_transaction() -> None:
    text = str(init_statement(PG, "0003-1'; x"))
    first, second, *_ = text.split("; ")
    assert first == "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
    assert second.startswith("SET TRANSACTION SNAPSHOT '0003-1''")


def test_the_users_own_statement_comes_last() -> None:
    own = {"sessionInitStatement": "SET work_mem = '1GB'", "queryTimeout": "5"}
    connection = ConnectionConfig("pg", url=PG, fetch_size=10)
    actual = session_options(connection, own, DatabaseSnapshot(name="1-1"))
    assert actual["sessionInitStatement"].endswith("; SET work_mem = '1GB'")
    assert actual["sessionInitStatement"].startswith("SET TRANSACTION")
    assert (actual["queryTimeout"], actual["fetchsize"]) == ("5", "10")
    assert "sessionInitStatement" not in session_options(ConnectionConfig("x", url="jdbc:x:y"), {})


def test_names_of_databases() -> None:
    assert database_name(PG) == "postgresql"
    assert database_name("jdbc:mariadb://h/d") == "mysql"
    assert database_name("jdbc:unknown:x") == "other"


def options(connection: int | None = None, **supplied: str) -> JdbcOptions:
    database = ConnectionConfig("pg", url=PG, partitions=connection)
    return jdbc_options(StreamConfig("s", "jdbc", table="t", options=supplied, database=database))


def test_options_in_any_case() -> None:
    assert options(FETCHSIZE="5").reader == {"fetchsize": "5"}
    assert options(numpartitions="5").partitions == 5
    assert options(connection=3).partitions == 3
    assert options(connection=3, numPartitions="5").partitions == 5
    actual = options(partitionColumn="a.b", lowerBound="0", upperBound="9", numPartitions="2")
    assert actual.split_column == "a.b"
    assert actual.split == {"lowerBound": "0", "upperBound": "9", "numPartitions": "2"}
    assert actual.reader == {}


@pytest.mark.parametrize(
    "name", ["url", "dbtable", "query", "prepareQuery", "password", "batchsize"]
)
def test_options_that_are_not_the_streams(name: str) -> None:
    with pytest.raises(SettingsError, match="is not an option"):
        options(**{name: "x"})
