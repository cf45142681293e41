"""Databases that reject, change or stop while streams are read: a real PostgreSQL."""

from __future__ import annotations

import pytest
from jdbc_runs import catalog_of, rows_of, slices_of, table_stream
from postgres_server import PASSWORD, free_port

from shared.errors import SettingsError, SourceError
from tap_spark.sources.source_failures import source_error

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture(scope="module", autouse=True)
def tables(postgres):
    postgres.run(
        """
        create table t (id int primary key, v text, n int);
        insert into t select i, 'v', i from generate_series(1, 5000) i;
        create table secret (id int); create sequence numbers;
        create role narrow_reader login password 'reads only';
        grant select on t to narrow_reader;
        create view dying as select id, pg_terminate_backend(pg_backend_pid()) as gone
          from t where id = 4000;
        """
    )


def failure(spark, stream, **run) -> str:
    with pytest.raises((SourceError, SettingsError)) as caught:
        rows_of(spark, stream, **run)
    text = str(caught.value)
    assert "\n" not in text
    assert PASSWORD not in text
    return text


def test_a_wrong_password(lake_spark, postgres):
    text = failure(lake_spark, table_stream(postgres, "t", password="hunter2 wrong"))
    assert "password authentication failed" in text
    assert "hunter2" not in text


def test_a_server_that_is_not_there(lake_spark, postgres):
    url = f"jdbc:postgresql://127.0.0.1:{free_port()}/x"
    text = failure(lake_spark, table_stream(postgres, "t", url=url, retries=1))
    assert "refused" in text
    assert "tried 2 times" in text


def test_a_host_that_does_not_exist(lake_spark, postgres):
    url = "jdbc:postgresql://no-such-host.invalid/x"
    assert "no-such-host.invalid" in failure(lake_spark, table_stream(postgres, "t", url=url))


def test_a_database_that_does_not_exist(lake_spark, postgres):
    url = postgres.url + "_not"
    assert "'url'" in failure(lake_spark, table_stream(postgres, "t", url=url))


def test_a_missing_permission(lake_spark, postgres):
    stream = table_stream(postgres, "secret", user="narrow_reader", password="reads only")
    text = failure(lake_spark, stream)
    assert "permission denied" in text
    assert "grant SELECT" in text


def test_a_table_that_does_not_exist(lake_spark, postgres):
    assert "table or view 'public.nope' does not exist" in failure(
        lake_spark, table_stream(postgres, "public.nope")
    )


def test_a_table_dropped_since_discovery(lake_spark, postgres):
    postgres.run("create table brief (id int)")
    stream = table_stream(postgres, "brief")
    catalog = catalog_of(lake_spark, stream)
    postgres.run("drop table brief")
    text = failure(lake_spark, stream, catalog=catalog)
    assert "'brief'" in text and "--discover" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("drop column v", "column 'v' does not exist any more"),
        ("rename column v to w", "column 'v' does not exist any more"),
        ("alter column n type bigint", "column 'n' is now bigint"),
        ("alter column v type int using 1", "column 'v' is now integer"),
    ],
)
def test_a_column_changed_since_discovery(lake_spark, postgres, change, said):
    postgres.run("create table changing (id int, v text, n int)")
    stream = table_stream(postgres, "changing")
    catalog = catalog_of(lake_spark, stream)
    postgres.run(f"alter table changing {change}")
    text = failure(lake_spark, stream, catalog=catalog)
    postgres.run("drop table changing")
    assert said in text and "--discover" in text


def test_columns_that_are_not_selected_may_change(lake_spark, postgres):
    postgres.run("create table widening (id int, v text); insert into widening values (1, 'x')")
    stream = table_stream(postgres, "widening")
    catalog = catalog_of(lake_spark, stream)
    postgres.run("alter table widening drop column v, add column w int")
    assert rows_of(lake_spark, stream, catalog=catalog, deselect=["v"]) == [(1,)]


def test_a_connection_killed_in_the_middle(lake_spark, postgres):
    for piece in slices_of(lake_spark, table_stream(postgres, "dying")):
        with pytest.raises(Exception) as caught:
            piece.frame.collect()
        error = source_error("s", caught.value)
        assert error.retryable
        assert "57P01" in str(error)


def test_the_snapshots_connection_killed(lake_spark, postgres):
    stream = table_stream(postgres, "t", partitions=2)
    for piece in slices_of(lake_spark, stream):
        postgres.run(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'tap-spark'"
        )
        with pytest.raises(Exception) as caught:
            piece.frame.collect()
        error = source_error("s", caught.value)
        assert error.retryable
        assert "snapshot" in str(error)


@pytest.mark.parametrize(
    "query",
    [
        "delete from t",
        "with d as (delete from t returning id) select * from d",
        "select 1; drop table t",
        "select id into copy from t",
        "select id from t for update",
        "call x()",
    ],
)
def test_queries_that_do_not_read(lake_spark, postgres, query):
    text = failure(lake_spark, table_stream(postgres, "", query=query))
    assert "not a read" in text
    assert "setting 'query'" in text


def test_functions_that_write_meet_a_read_only_session(lake_spark, postgres):
    stream = table_stream(postgres, "", query="select nextval('numbers') as n")
    for piece in slices_of(lake_spark, stream):
        with pytest.raises(Exception) as caught:
            piece.frame.collect()
        assert "read-only transaction" in str(source_error("s", caught.value))
    assert postgres.value("select is_called from numbers") == "f"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fetchsise": "5"}, "did you mean 'fetchsize'?"),
        ({"fetchsize": "many"}, "must be an integer"),
        ({"fetchsize": "0"}, "must be at least 1"),
        ({"numPartitions": "0"}, "must be at least 1"),
        ({"partitionColumn": "id"}, "also needs lowerBound, upperBound, numPartitions"),
        ({"user": "x"}, "is not an option"),
        ({"dbtable": "x"}, "is not an option"),
        ({"customSchema": "id int"}, "applies only to a 'query'"),
    ],
)
def test_options_are_checked(postgres, options, said):
    from tap_spark.sources.source import source_for

    with pytest.raises(SettingsError) as caught:
        source_for(table_stream(postgres, "t", options=options))
    assert said in str(caught.value)
    assert "options['" in str(caught.value)


def test_a_partition_column_that_is_not_there(lake_spark, postgres):
    options = {"partitionColumn": "x", "lowerBound": "0", "upperBound": "1", "numPartitions": "2"}
    assert "column 'x' does not exist" in failure(
        lake_spark, table_stream(postgres, "t", options=options)
    )


def test_a_partition_column_without_ranges(lake_spark, postgres):
    options = {"partitionColumn": "v", "lowerBound": "0", "upperBound": "1", "numPartitions": "2"}
    text = failure(lake_spark, table_stream(postgres, "t", options=options))
    assert "column 'v' has the type text" in text
    assert "columns: id, n" in text


def test_a_table_name_that_is_none(postgres):
    from tap_spark.sources.source import source_for

    with pytest.raises(SettingsError, match="not a table name"):
        source_for(table_stream(postgres, 'a."b'))
