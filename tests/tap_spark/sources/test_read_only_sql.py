"""Which SQL texts count as one statement that reads."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError, Where
from tap_spark.sources.read_only_sql import PARSERS, as_subquery, check_reads

WHERE = Where(stream="s", setting="query")
READS = [
    ("postgresql", "select 1"),
    ("postgresql", "SELECT 1;"),
    ("postgresql", "select 1; -- the end"),
    ("postgresql", "values (1),(2)"),
    ("postgresql", "table t"),
    ("postgresql", "(select 1) union all (select 2)"),
    (
        "postgresql",
        "with recursive a as (select 1 x union all select x+1 from a where x<9) select * from a",
    ),
    ("postgresql", "select 'delete from t; drop table x' as \"insert into\""),
    ("postgresql", "select $$;delete from t$$, E'it\\'s;' from t"),
    ("postgresql", "select a -> 'b', c @> '{}', d::int[] from t where e ~* 'x'"),
    ("postgresql", "select * from t tablesample system (10)"),
    ("mysql", "select `update` from `delete` limit 1"),
    ("mysql", "select 1 /* plain */ # more"),
    ("sqlserver", "select top 3 [delete], x from t with (nolock)"),
    ("oracle", "select * from t as of scn 5"),
    ("oracle", "select level from dual connect by level < 5"),
    ("sqlite", "select * from t where x glob '*a'"),
    ("duckdb", "from t select a"),
    ("spark", "from t select a"),
    ("spark", "select * from t version as of 3"),
    ("spark", "select /*+ broadcast(t) */ a from t lateral view explode(b) as c"),
    ("somedb", "select a from b"),
]
WRITES = [
    ("postgresql", "", "no statements"),
    ("postgresql", "-- nothing", "no statements"),
    ("postgresql", ";", "no statements"),
    ("postgresql", "select 1; select 2", "2 statements"),
    ("postgresql", "select 1; drop table t", "2 statements"),
    ("postgresql", "insert into t values (1)", "changes data"),
    ("postgresql", "with a as (insert into t values(1) returning *) select * from a", "changes"),
    ("postgresql", "with a as (delete from t returning *) select * from a", "changes"),
    ("postgresql", "with a as (update t set x=1 returning *) table a", "changes"),
    ("postgresql", "select * into x from t", "INTO"),
    ("postgresql", "select * from t for update", "locks"),
    ("postgresql", "select * from (select * from t for share) x", "locks"),
    ("postgresql", "select * from t for no key update skip locked", "locks"),
    ("postgresql", "call f()", "not understood"),
    ("postgresql", "do $$begin delete from t; end$$", "not understood"),
    ("postgresql", "explain analyze delete from t", "not understood"),
    ("postgresql", "copy t to '/tmp/x'", "changes data"),
    ("postgresql", "create table x as select 1", "changes data"),
    ("postgresql", "drop table x", "changes data"),
    ("postgresql", "truncate t", "TRUNCATE"),
    ("postgresql", "begin", "TRANSACTION"),
    ("postgresql", "lock table t", "not understood"),
    ("postgresql", "prepare p as select 1", "not understood"),
    ("postgresql", "select 'it", "does not end"),
    ("postgresql", "set role x", ""),
    ("postgresql", "grant select on t to x", ""),
    ("postgresql", "selekt 1", "does not begin"),
    ("mysql", "select 1 /*! into outfile '/tmp/x' */", "executed"),
    ("mysql", "select 1 /*M!100000 into outfile '/tmp/x' */", "executed"),
    ("mysql", "select 1 into outfile '/tmp/x'", ""),
    ("mysql", "select * from t lock in share mode", "locks"),
    ("mysql", "replace into t values(1)", ""),
    ("sqlserver", "exec f", "EXECUTE"),
    ("sqlserver", "select * into x from t", "INTO"),
    ("sqlserver", "with a as (select 1 x) delete from a", "changes"),
    ("sqlserver", "select 1 exec foo", "EXEC"),
    ("sqlserver", "select 1 as x delete from t", "DELETE"),
    ("oracle", "begin delete from t; end;", ""),
    ("sqlite", "pragma foo = 1", "PRAGMA"),
    ("sqlite", "attach 'x' as y", "ATTACH"),
    ("duckdb", "copy t to 'x'", ""),
    ("duckdb", "install httpfs", ""),
    ("spark", "from t insert into x select *", ""),
    ("spark", "insert overwrite t select 1", ""),
    ("spark", "merge into a using b on a.x=b.x when matched then delete", "changes"),
    ("spark", "cache table x", "CACHE"),
    ("spark", "set x=1", "SET"),
    ("spark", "add jar 'x'", ""),
    ("spark", "refresh table t", ""),
    ("spark", "select transform(a) using 'rm -rf x' as b from t", "TRANSFORM"),
    ("spark", "create or replace temp view v as select 1", "changes"),
    ("somedb", "delete from t", "changes"),
    ("mysql", "select * from t where id = ?", "parameter"),
    ("somedb", "select ? from t", "parameter"),
]


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("select j ? 'a?' from t", "select j ?? 'a?' from t"),
        ("select j ?| x, j ?& y, j @? z", "select j ??| x, j ??& y, j @?? z"),
        ("select j ?? 'a'", "select j ?? 'a'"),
        ('select a?b, "x?", $$ ? $$ /* ? */; -- ?', 'select a??b, "x?", $$ ? $$ /* ? */'),
        ("select E'?', U&'?' -- ?", "select E'?', U&'?' -- ?"),
    ],
)
def test_operators_of_postgresql_are_no_parameters(sql: str, written: str) -> None:
    check_reads(sql, "postgresql", WHERE)
    assert as_subquery(sql, "postgresql") == f"({written}\n)"
    # As COPY takes it: JDBC's own spelling is one operator, too.
    assert as_subquery(sql, "postgresql", "?") == f"({written.replace('??', '?')}\n)"


@pytest.mark.parametrize(("dialect", "sql"), READS)
def test_reads_pass(dialect: str, sql: str) -> None:
    check_reads(sql, dialect, WHERE)


@pytest.mark.parametrize(("dialect", "sql", "said"), WRITES)
def test_everything_else_is_refused_in_one_line(dialect: str, sql: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_reads(sql, dialect, WHERE)
    text = str(caught.value)
    assert text.startswith("stream 's', setting 'query': the query is not a read: ")
    assert said in text
    assert "\n" not in text


@pytest.mark.parametrize("dialect", PARSERS)
@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN b INT",
        "CREATE TABLE u (a INT)",
    ],
)
def test_no_dialect_lets_a_change_through(dialect: str, change: str) -> None:
    for sql in (change, f"SELECT 1; {change}", f"{change}; SELECT 1", f"/* x */ {change};"):
        with pytest.raises(SettingsError):
            check_reads(sql, dialect, WHERE)


def test_what_the_parser_does_not_know_is_judged_by_its_words() -> None:
    odd = "select a from t match_anything (b) !@ 'insert' \"delete\""
    check_reads(odd, "postgresql", WHERE)
    check_reads(odd + ";", "postgresql", WHERE)
    for more in ("; select 1", " insert", " FOR x INTO y"):
        with pytest.raises(SettingsError):
            check_reads(odd + more, "postgresql", WHERE)


@given(st.text(max_size=40), st.sampled_from([*PARSERS, "other"]))
def test_any_text_passes_or_is_refused_as_a_setting(text: str, dialect: str) -> None:
    try:
        check_reads(text, dialect, WHERE)
    except SettingsError as error:
        assert "not a read" in str(error)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    with pytest.raises(SettingsError):
        check_reads("select " + "(" * 100_000 + "1" + ")" * 100_000, "spark", WHERE)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select 1", "(select 1\n)"),
        ("select 1;", "(select 1\n)"),
        ("select ';' -- x", "(select ';' -- x\n)"),
        ("select 1 ; -- x", "(select 1 \n)"),
    ],
)
def test_a_subquery_has_no_semicolon_and_ends_its_comments(sql: str, text: str) -> None:
    assert as_subquery(sql, "postgresql") == text


def test_the_parser_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, tap_spark.sources.read_only_sql; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
