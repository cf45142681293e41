"""When PostgreSQL is read by COPY, as what, and what its failures become: no server."""

from __future__ import annotations

import json
import pickle
from typing import Any, cast

import pyarrow as pa
import pytest

from shared.engine.engine import Engine, Work
from shared.errors import Where
from tap_spark.sources.jdbc.copy_driver import (
    CopyRead,
    copied_rows,
    copy_login,
    why_jdbc,
    why_spark,
)
from tap_spark.sources.jdbc.copy_reader import CopyError, CopySession, copy_error, in_types
from tap_spark.sources.jdbc.dialects.dialect import ColumnInfo, TableInfo
from tap_spark.sources.jdbc.dialects.postgresql import PostgreSqlDialect
from tap_spark.sources.jdbc.jdbc_query import JdbcQuery
from tap_spark.sources.source_failures import TransientSourceError, database_error
from tap_spark.state.stream_plans import RowForm, StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig

URL = "jdbc:postgresql://db.example.com/shop"


def connection(url: str = URL, **settings: Any) -> ConnectionConfig:
    return ConnectionConfig("pg", url=url, **{"user": "reader", "password": "p", **settings})


def test_the_login_is_that_of_the_url() -> None:
    created = copy_login(
        connection(
            "jdbc:postgresql://[::1]:6000/a%20b?sslmode=verify-full",
            user="us er",
            password="a/b @c",
            properties={"connectTimeout": "1", "ApplicationName": "my tap"},
        )
    )
    assert created.uri == (
        "postgresql://us%20er:a%2Fb%20%40c@[::1]:6000/a%20b?client_encoding=UTF8&options="
        "&application_name=my%20tap&connect_timeout=2&sslmode=verify-full"
    )
    assert "@c" not in repr(created)


@pytest.mark.parametrize(
    ("url", "settings", "said"),
    [
        (URL, {}, ""),
        (URL + "?tcpKeepAlive=true&sslrootcert=/ca.pem", {}, ""),
        ("jdbc:mysql://h/d", {}, "no PostgreSQL"),
        ("jdbc:postgresql://a,b/d", {}, "form of the url"),
        ("jdbc:postgresql:d", {}, "form of the url"),
        (URL, {"user": None}, "no user"),
        (URL, {"driver": "com.example.Driver"}, "com.example.Driver"),
        (URL + "?ssl=true", {}, "'ssl'"),
        (URL, {"properties": {"sslkey": "key.pk8"}}, "'sslkey'"),
        (URL, {"properties": {"currentSchema": "x"}}, "'currentschema'"),
        (URL, {"properties": {"gssEncMode": "require"}}, "'gssencmode'"),
    ],
)
def test_jdbc_reads_what_libpq_may_not_do_alike(url: str, settings: Any, said: str) -> None:
    actual = why_jdbc(connection(url, **settings))
    assert said in actual
    assert bool(actual) == bool(said)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"table": "t"}, ""),
        ({"query": "select 1"}, "query"),
        ({"table": "t", "options": {"QueryTimeout": "5"}}, "queryTimeout"),
        ({"table": "t", "options": {"fetchsize": "5"}}, ""),
        ({"table": "t", "database": connection(count_rows=True)}, "count_rows"),
        ({"table": "t", "database": connection("jdbc:sqlite:x.db")}, "no PostgreSQL"),
    ],
)
def test_streams_that_threads_may_read(settings: dict[str, Any], said: str) -> None:
    actual = why_spark(StreamConfig("s", "jdbc", **{"database": connection(), **settings}))
    assert said in actual
    assert bool(actual) == bool(said)


def test_without_the_package_jdbc_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tap_spark.sources.jdbc.copy_driver.MODULE", "no_such_module")
    assert "singer-spark[postgresql]" in why_jdbc(connection())


@pytest.mark.parametrize(
    ("text", "message", "state", "passes"),
    [
        (
            'IO: [libpq] Failed to connect: connection to server at "h", port 1 failed: '
            'FATAL:  password authentication failed for user "u"\n',
            'FATAL: password authentication failed for user "u"',
            "28P01",
            False,
        ),
        (
            'IO: [libpq] Failed to connect: connection to server at "h", port 1 failed: '
            "Connection refused\n\tIs the server running on that host?\n",
            'connection to server at "h", port 1 failed: Connection refused',
            "08001",
            True,
        ),
        (
            "IO: [libpq] Execution error [PGRES_FATAL_ERROR]: FATAL:  terminating connection due "
            "to administrator command\n. SQLSTATE: 57P01",
            "FATAL: terminating connection due to administrator command",
            "57P01",
            True,
        ),
        (
            'NOT_FOUND: Failed to prepare query: ERROR:  column "x" does not exist\nLINE 1: …'
            "\n\nQuery was: select 'ERROR: no'. SQLSTATE: 42703",
            'ERROR: column "x" does not exist',
            "42703",
            False,
        ),
        ("server closed the connection unexpectedly\n", "server closed the connection", "08006", 1),
    ],
)
def test_failures_are_the_servers_words(text: str, message: str, state: str, passes: bool) -> None:
    created = copy_error(OSError(text))
    # As an executor's failure arrives: inside a text of Spark.
    wrapped = RuntimeError(
        f"PythonException: Traceback\n{pickle.loads(pickle.dumps(created))}\n  at"
    )
    error = database_error(wrapped, Where(stream="s"))
    assert message in str(error)
    assert f"[{state}]" in str(error)
    assert isinstance(error, TransientSourceError) == bool(passes)


def test_numerics_keep_every_digit() -> None:
    texts = pa.array(["12.5", "-0.0001", None, "99999999999999.9999"])
    actual = in_types(
        pa.RecordBatch.from_arrays([texts], names=["amount"]),
        pa.schema([("c0", pa.decimal128(18, 4))]),
    )
    assert list(map(str, actual.column(0).to_pylist())) == [
        *("12.5000", "-0.0001", "None", "99999999999999.9999")
    ]


def test_a_text_that_is_not_utf_8_is_an_error() -> None:
    bad = pa.array([b"ok", b"\xff"]).view(pa.string())
    with pytest.raises(CopyError, match="not UTF-8"):
        in_types(pa.RecordBatch.from_arrays([bad], names=["t"]), pa.schema([("c0", pa.string())]))


class PlannedSession:
    """Answers EXPLAIN as a server does."""

    def rows(self, query: str, *, copy: bool = True) -> list[dict[str, Any]]:
        assert query.startswith("EXPLAIN (FORMAT JSON) SELECT")
        assert not copy
        return [{"QUERY PLAN": json.dumps([{"Plan": {"Plan Rows": 1000, "Plan Width": 8}}])}]


@pytest.mark.parametrize(("form", "size"), [(RowForm.RECORDS, 8000), (RowForm.BLOCKS, 1000)])
def test_rows_into_files_are_half_the_work_of_columnar_files(form: RowForm, size: float) -> None:
    seen: list[Work] = []

    class Busy(Engine):
        def takes(self, work: Work) -> bool:
            seen.append(work)
            return False

    column = ColumnInfo("id", "bigint", "bigint", False, '"id"')
    table = TableInfo(None, "t", "table", (column,))
    schema = {"type": "object", "properties": {"id": {"type": ["integer", "null"]}}}
    plan = StreamPlan("s", "s", StreamConfig("s", "jdbc", table="t"), schema, ("id",))
    query = JdbcQuery(PostgreSqlDialect(), "t", (column,), {})
    session = cast("CopySession", PlannedSession())
    read = CopyRead(session, plan, query, table)
    assert copied_rows(read, form, Busy.of(lambda: cast("Any", None))) is None
    assert [(work.size, work.needs_spark) for work in seen] == [(size, "")]
