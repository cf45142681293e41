"""SQL in maps: what is refused by its text, what by Spark, and the types of the rest."""

from __future__ import annotations

import datetime
import os
from typing import Any

import pytest
from map_cases import ORDERS, settings
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError, Where
from shared.json_schema import json_schema_to_spark
from shared.settings_check import InvalidSettingsError
from shared.transforms.sql import _known_functions, sql_expression, sql_made
from shared.transforms.stream_maps import StreamOutput, outputs

HERE = Where(setting="stream_maps.orders.x")
REFUSED = "setting 'stream_maps.orders.x': the SQL expression is refused: "


def refused(text: str) -> str:
    with pytest.raises(SettingsError) as failed:
        sql_expression(text, HERE)
    return str(failed.value)


class TestText:
    @pytest.mark.parametrize(
        "text",
        [
            "java_method('java.lang.System', 'exit', 1)",
            "JAVA_METHOD ('a', 'b')",
            "`java_method`('a', 'b')",
            "`reflect` ('a', 'b')",
            "try_reflect('a', 'b')",
            "upper(reflect('java.lang.System', 'getenv', 'HOME'))",
            "transform(tags, x -> reflect('a', x))",
            "case when reflect('a', 'b') = 'c' then 1 end",
            "'a' || reflect\n('a', 'b')",
            "{fn reflect('a', 'b')}",
            "input_file_name()",
            "input_file_block_start()",
            "current_user()",
            "session_user()",
            "current_database()",
            "current_catalog()",
            "version()",
            "spark_partition_id()",
            "monotonically_increasing_id()",
            "raise_error('x')",
            "from_protobuf(name, 'm', '/etc/passwd')",
        ],
    )
    def test_functions_that_reach_out(self, text: str) -> None:
        assert refused(text).startswith(REFUSED)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("system.builtin.reflect('x')", "the function 'reflect' is not allowed"),
            ("system.builtin.upper('x')", "functions are called by their bare name"),
            ("my_catalog.db.f(name)", "functions are called by their bare name"),
            ("`db`.`f`(name)", "functions are called by their bare name"),
            ("(select 1)", "it asks a table"),
            ("id in (select id from other)", "it asks a table"),
            ("exists(select 1 from other)", "it asks a table"),
            ("(with a as (select 1) select * from a)", "it asks a table"),
            ("row_number() over (order by id)", "it looks at other rows"),
            ("sum(price) over ()", "it looks at other rows"),
            ("count(1)", "it counts over rows"),
            ("max(price)", "it counts over rows"),
            ("struct(*)", "'*' stands for all columns; name them"),
            ("*", "'*' stands for all columns; name them"),
            (":p", "it has a parameter"),
            ("?", "it has a parameter"),
            ("current_user", "it asks the session"),
            ("'${env:HOME}'", "Spark would put a variable in place of '${'"),
            ("id -- comment", "it holds a comment"),
            ("id /* comment */ + 1", "it holds a comment"),
            ("1 as one, 2", "it is not one expression"),
            ("1, 2", "it is not one expression"),
            ("x" * 70_000, "it is longer than 65536 characters"),
        ],
    )
    def test_what_else_is_refused(self, text: str, reason: str) -> None:
        said = refused(text)
        assert said.startswith(REFUSED) or "is not understood" in said
        assert reason in said or "is not understood" in said

    @pytest.mark.parametrize(
        "text",
        ["a +", "1) from t", "a; b", "'open", "upper(", "", "a b c", "f(x"],
    )
    def test_what_is_not_understood(self, text: str) -> None:
        assert "is not understood" in refused(text) or "is refused" in refused(text)

    def test_a_bracket_that_closes_ours(self) -> None:
        for text in ("1) from range(3", "1), (2", "1) from t where (x", "1) union select (2"):
            assert refused(text)

    def test_the_position_is_told(self) -> None:
        assert refused("upper(id) + reflect('a', 'b')").startswith(f"{REFUSED}at column 13: ")
        assert "at column 13" in refused("upper(id) b c")

    def test_names_with_their_places(self) -> None:
        found = sql_expression("customer.name || `a b` || id || transform(xs, x -> x + id)", HERE)
        assert found.names == (("customer", 0), ("a b", 17), ("id", 26), ("xs", 42))
        assert found.functions == (("transform", 32),)

    def test_known_functions_are_those_of_spark(self) -> None:
        known = _known_functions()
        assert {"upper", "element_at", "try_divide", "regexp_replace", "if", "nvl"} <= known
        assert not {"reflect", "java_method", "my_function", "udf", "expr"} & known


def made(spark: SparkSession, text: str, own: str | None = None) -> Any:
    struct = json_schema_to_spark(ORDERS)
    return sql_made(sql_expression(text, HERE), struct, own, HERE, lambda: spark)


def output(spark: SparkSession, rule: dict[str, Any]) -> StreamOutput:
    struct = json_schema_to_spark(ORDERS)
    [found] = outputs(settings({"orders": rule}), "orders", ORDERS, struct, ["id"], lambda: spark)
    return found


@pytest.mark.spark
class TestTypes:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("id + 1", T.LongType()),
            ("upper(name)", T.StringType()),
            ("customer.address.zip", T.LongType()),
            ("price > 3 and name is not null", T.BooleanType()),
            ("cast(price as decimal(10,2))", T.DecimalType(10, 2)),
            ("date '2026-01-01'", T.DateType()),
            ("to_timestamp(name)", T.TimestampType()),
            ("split(name, ' ')", T.ArrayType(T.StringType(), False)),
            ("exists(tags, x -> x = 'a')", T.BooleanType()),
            ("transform(tags, (x, i) -> concat(x, i))", T.ArrayType(T.StringType(), True)),
            ("null", T.StringType()),
            ("NAME", T.StringType()),
            ("case when (price) > 3 then 'a' else 'b' end", T.StringType()),
            ("name like any ('a%', 'b%')", T.BooleanType()),
            ("name in ('a', 'b')", T.BooleanType()),
            ("extract(year from (date '2026-01-01'))", T.IntegerType()),
            ("id div (3)", T.LongType()),
            ("tags[0]", T.StringType()),
            ("price::int", T.IntegerType()),
            ("trim(both ' ' from name)", T.StringType()),
            ("named_struct('a', id)", T.StructType([T.StructField("a", T.LongType(), False)])),
            ("parse_json(name)", T.VariantType()),
            ("coalesce(email, name)", T.StringType()),
            ("left(name, 3)", T.StringType()),
            ("if(price > 3, 'a', 'b')", T.StringType()),
            ("nvl(name, '')", T.StringType()),
            ("sha2(name, 256)", T.StringType()),
        ],
    )
    def test_are_told_by_spark(self, spark: SparkSession, text: str, kind: T.DataType) -> None:
        assert made(spark, text).data_type == kind

    def test_only_what_is_named_is_read(self, spark: SparkSession) -> None:
        assert made(spark, "upper(NAME) || customer.email").reads == {"name", "customer"}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("nmae || 'x'", "at column 1: unknown column 'nmae' (nearest: 'name')"),
            ("1 + `reflekt`", "at column 5: unknown column 'reflekt'"),
            ("uper(name)", "at column 1: Spark has no function 'uper' (nearest: 'upper')"),
            ("self", "unknown column 'self'"),
            ("session.x", "unknown column 'session'"),
            ("explode(tags)", "UNSUPPORTED_GENERATOR"),
            ("posexplode(tags)", "UNSUPPORTED_GENERATOR"),
            ("bit_and(id)", ""),
            ("element_at(name)", "at column"),
            ("customer.nme", "FIELD_NOT_FOUND"),
        ],
    )
    def test_what_does_not_fit(self, spark: SparkSession, text: str, reason: str) -> None:
        with pytest.raises(SettingsError) as failed:
            made(spark, text)
        assert str(failed.value).startswith("setting 'stream_maps.orders.x': ")
        assert reason in str(failed.value)

    def test_self_is_the_property(self, spark: SparkSession) -> None:
        found = output(
            spark, {"name": {"sql": "upper(self) || 'self' || SELF"}, "*mail": {"sql": "self"}}
        )
        frame = spark.createDataFrame([(1, "a", "b")], "id long, name string, email string")
        assert found.transform is not None
        full = spark.createDataFrame([(1, "a", "b", 2.0, None, None)], json_schema_to_spark(ORDERS))
        row = found.transform.apply(full).first()
        assert (row.name, row.email) == ("Aselfa", "b")
        assert frame.count() == 1

    def test_a_filter_has_to_be_a_boolean(self, spark: SparkSession) -> None:
        with pytest.raises(InvalidSettingsError, match="must be a boolean, not string"):
            output(spark, {"__filter__": {"sql": "name"}})

    def test_rows(self, spark: SparkSession) -> None:
        rule = {
            "total": {"sql": "price * 2"},
            "first": {"sql": "tags[0]"},
            "day": {"sql": "date '2026-01-02'"},
            "__filter__": {"sql": "price > 1"},
            "__else__": None,
        }
        found = output(spark, rule)
        rows = [(1, "a", "b", 2.0, None, ["x"]), (2, "a", "b", 1.0, None, None), (3, *[None] * 5)]
        frame = spark.createDataFrame(rows, json_schema_to_spark(ORDERS))
        assert found.transform is not None
        result = found.transform.apply(frame.select(*found.transform.reads))
        assert [tuple(row) for row in result.collect()] == [
            (1, 4.0, "x", datetime.date(2026, 1, 2), None)
        ]
        assert json_schema_to_spark(found.schema) == found.transform.struct()

    def test_the_environment_is_out_of_reach(self, spark: SparkSession) -> None:
        os.environ["MAPS_TEST_SECRET"] = "do-not-tell"
        for text in ("'${env:MAPS_TEST_SECRET}'", "'${system:user.name}'"):
            with pytest.raises(SettingsError):
                made(spark, text)


def test_the_session_is_not_asked_for_where_there_is_no_sql() -> None:
    def no_session() -> SparkSession:
        raise AssertionError

    struct = json_schema_to_spark(ORDERS)
    assert outputs(settings({"*": {"a": "id"}}), "orders", ORDERS, struct, ["id"], no_session)
