"""SQL in maps: what is rejected by its text, what by Spark, and the types of the rest."""

from __future__ import annotations

import datetime
import os
from typing import Any

import pytest
from map_cases import ORDERS, settings
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from shared.errors import InvalidSettingsError, SettingsError, Where
from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.sql_expressions import _spark_functions, plan_sql, sql_expression
from shared.maps.stream_maps import StreamOutput, outputs
from shared.maps.transform import ERROR

HERE = Where(setting="stream_maps.orders.x")
FAILING = [
    "10 / price",
    "cast(price as bigint) + 1",
    "cast(email as date)",
    # Types that have no hash.
    "map(coalesce(tags[0], '-'), cast(name as int))",
    "variant_get(to_variant_object(named_struct('a', cast(name as int))), '$.a', 'int')",
]
REFUSED = "setting 'stream_maps.orders.x': the SQL expression is rejected: "


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
            ("system.builtin.upper('x')", "call functions by their plain names"),
            ("my_catalog.db.f(name)", "call functions by their plain names"),
            ("`db`.`f`(name)", "call functions by their plain names"),
            ("(select 1)", "it reads a table"),
            ("id in (select id from other)", "it reads a table"),
            ("exists(select 1 from other)", "it reads a table"),
            ("(with a as (select 1) select * from a)", "it reads a table"),
            ("row_number() over (order by id)", "it reads other rows"),
            ("sum(price) over ()", "it reads other rows"),
            ("count(1)", "it aggregates rows"),
            ("max(price)", "it aggregates rows"),
            ("struct(*)", "'*' is not allowed; name the columns"),
            ("*", "'*' is not allowed; name the columns"),
            (":p", "it has a parameter marker"),
            ("?", "it has a parameter marker"),
            ("current_user", "it reads the session"),
            ("'${env:HOME}'", "Spark would substitute a variable for '${'"),
            ("id -- comment", "it contains a comment"),
            ("id /* comment */ + 1", "it contains a comment"),
            ("1 as one, 2", "it is not a single expression"),
            ("1, 2", "it is not a single expression"),
            ("x" * 70_000, "it is longer than 65536 characters"),
        ],
    )
    def test_what_else_is_refused(self, text: str, reason: str) -> None:
        said = refused(text)
        assert said.startswith(REFUSED) or "is invalid" in said
        assert reason in said or "is invalid" in said

    @pytest.mark.parametrize(
        "text",
        ["a +", "1) from t", "a; b", "'open", "upper(", "", "a b c", "f(x"],
    )
    def test_what_is_not_understood(self, text: str) -> None:
        assert "is invalid" in refused(text) or "is rejected" in refused(text)

    def test_a_bracket_that_closes_ours(self) -> None:
        for text in ("1) from range(3", "1), (2", "1) from t where (x", "1) union select (2"):
            assert refused(text)

    def test_the_position_is_told(self) -> None:
        assert refused("upper(id) + reflect('a', 'b')").startswith(f"{REFUSED}at column 13: ")
        assert "at column 13" in refused("upper(id) b c")

    def test_names_with_their_places(self) -> None:
        actual = sql_expression("customer.name || `a b` || id || transform(xs, x -> x + id)", HERE)
        assert actual.names == (("customer", 0), ("a b", 17), ("id", 26), ("xs", 42))
        assert actual.functions == (("transform", 32),)

    def test_known_functions_are_those_of_spark(self) -> None:
        existing = _spark_functions()
        assert {"upper", "element_at", "try_divide", "regexp_replace", "if", "nvl"} <= existing
        assert not {"reflect", "java_method", "my_function", "udf", "expr"} & existing


def created(spark: SparkSession, text: str, own: str | None = None) -> Any:
    struct = json_schema_to_spark(ORDERS)
    return plan_sql(sql_expression(text, HERE), struct, own, HERE, lambda: spark)


def output(spark: SparkSession, rule: dict[str, Any]) -> StreamOutput:
    struct = json_schema_to_spark(ORDERS)
    [actual] = outputs(settings({"orders": rule}), "orders", ORDERS, struct, ["id"], lambda: spark)
    return actual


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
        assert created(spark, text).data_type == kind

    def test_only_what_is_named_is_read(self, spark: SparkSession) -> None:
        assert {*created(spark, "upper(NAME) || customer.email").reads} == {"name", "customer"}

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
            created(spark, text)
        assert str(failed.value).startswith("setting 'stream_maps.orders.x': ")
        assert reason in str(failed.value)

    def test_self_is_the_property(self, spark: SparkSession) -> None:
        actual = output(
            spark, {"name": {"sql": "upper(self) || 'self' || SELF"}, "*mail": {"sql": "self"}}
        )
        frame = spark.createDataFrame([(1, "a", "b")], "id long, name string, email string")
        assert actual.transform is not None
        full = spark.createDataFrame([(1, "a", "b", 2.0, None, None)], json_schema_to_spark(ORDERS))
        row = actual.transform.apply(full).first()
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
        actual = output(spark, rule)
        rows = [(1, "a", "b", 2.0, None, ["x"]), (2, "a", "b", 1.0, None, None), (3, *[None] * 5)]
        frame = spark.createDataFrame(rows, json_schema_to_spark(ORDERS))
        assert actual.transform is not None
        result = actual.transform.apply(frame.select(*actual.transform.reads))
        assert [tuple(row) for row in result.collect()] == [
            (1, 4.0, "x", datetime.date(2026, 1, 2), None)
        ]
        assert json_schema_to_spark(actual.schema) == actual.transform.struct()

    def test_records_for_which_it_fails_are_told_from_others(self, spark: SparkSession) -> None:
        lines = {f"x{number}": {"sql": text} for number, text in enumerate(FAILING)}
        rule = {**lines, "__filter__": {"sql": "cast(name as int) > 0"}, "__else__": None}
        actual = output(spark, rule).transform
        assert actual is not None
        rows = [(1, "7", "2026-01-02", 2.0), (2, "x", None, None), (3, "-1", None, None)]
        rows += [(4, "1", "nope", 0.0), (5, None, None, None), (6, "1", None, 1e300)]
        struct = json_schema_to_spark(ORDERS)
        full = [(*row, None, ["1", None] if row[0] == 6 else None) for row in rows]
        result = actual.apply(spark.createDataFrame(full, struct), keep=["id"]).collect()
        errors = {row[-1]: row[ERROR] for row in result}
        text = "SqlError: Spark cannot compute it from this record: "
        assert errors == {
            1: None,
            2: f"filter: {text}cast(name as int) > 0",
            4: f"property 'x0': {text}10 / price",
            6: f"property 'x1': {text}cast(price as bigint) + 1",
        }
        values = {row[-1]: row.asDict() for row in result}
        assert [values[1][f"x{n}"] for n in range(3)] == [5.0, 3, datetime.date(2026, 1, 2)]
        # Each property has its own reason; values that can be computed are there.
        assert [values[4][f"x{n}"] for n in range(3)] == [None, 1, None]
        assert values[6]["x0"] == 1e-299
        assert (values[6]["x3"], values[6]["x4"]) == ({"1": 1}, 1)

    @pytest.mark.parametrize("text", ["1 / 0", "cast('x' as int) + id", "rand() + 1 / 0"])
    def test_what_fails_for_every_record_is_told_of_each(
        self, spark: SparkSession, text: str
    ) -> None:
        tried = created(spark, text)
        frame = spark.range(2).select(tried.value().alias("v"), tried.error().alias("e"))
        assert [(row.v, row.e[:8]) for row in frame.collect()] == [(None, "SqlError")] * 2

    def test_a_long_expression_is_cut_in_the_reason(self, spark: SparkSession) -> None:
        tried = created(spark, "concat(" + ", ".join(["name"] * 100) + ")")
        reason = str(tried.error())
        assert "name, name" in reason
        assert "…" in reason

    def test_the_environment_is_out_of_reach(self, spark: SparkSession) -> None:
        os.environ["MAPS_TEST_SECRET"] = "do-not-tell"
        for text in ("'${env:MAPS_TEST_SECRET}'", "'${system:user.name}'"):
            with pytest.raises(SettingsError):
                created(spark, text)


def test_the_session_is_not_asked_for_where_there_is_no_sql() -> None:
    def no_session() -> SparkSession:
        raise AssertionError

    struct = json_schema_to_spark(ORDERS)
    assert outputs(settings({"*": {"a": "id"}}), "orders", ORDERS, struct, ["id"], no_session)
