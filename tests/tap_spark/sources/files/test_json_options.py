"""Options of Spark's reader of JSON that the exact reader follows, or leaves to Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.files import json_files
from tap_spark.sources.files.json_files import lax_options
from tap_spark.sources.files.json_kinds import TypeRules, json_kind, type_of
from tap_spark.sources.files.json_rows import decoded_objects
from tap_spark.sources.formats import BUILT_IN

TIMES = T.StructType().add("a", T.ArrayType(T.StructType().add("b", T.TimestampType())))


@pytest.mark.parametrize(
    ("options", "struct", "lax"),
    [
        ({"MultiLine": True, "encoding": "GBK", "fs.s3a.endpoint": "x"}, TIMES, []),
        ({"mode": "failfast", "allowComments": False, "lineSep": "\n"}, TIMES, []),
        ({"mode": "PERMISSIVE", "lineSep": ";"}, None, ["mode", "lineSep"]),
        (
            {"allowSingleQuotes": "true", "inferTimestamp": True},
            None,
            ["allowSingleQuotes", "inferTimestamp"],
        ),
        (
            {"allowNonNumericNumbers": "false", "singleVariantColumn": "v"},
            None,
            ["allowNonNumericNumbers", "singleVariantColumn"],
        ),
        ({"dateFormat": "yyyy", "timeZone": "CET"}, T.StructType().add("a", "string"), []),
        ({"dateFormat": "yyyy", "timeZone": "CET"}, TIMES, ["dateFormat", "timeZone"]),
        (
            {"dateFormat": "yyyy"},
            T.StructType().add("a", T.MapType(T.StringType(), T.DateType())),
            ["dateFormat"],
        ),
    ],
)
def test_options(options: dict[str, Any], struct: T.StructType | None, lax: list[str]) -> None:
    assert lax_options(options, struct) == lax


def test_every_rule_is_of_an_option_that_exists() -> None:
    names = {option.name.lower() for option in BUILT_IN["json"].options or ()}
    rules = {*json_files._FOLLOWED, *json_files._OF_TIMES, *json_files._VALUES}
    assert rules <= names


def test_types_by_option() -> None:
    (record,) = decoded_objects(
        b'{"a":1.5,"b":1,"c":null,"d":[{}],"e":{"f":null,"g":true},"h":1e300}'
    )
    kind = json_kind(record)

    def types(rules: TypeRules) -> str:
        return type_of(kind, rules).simpleString()

    assert types(TypeRules()) == (
        "struct<a:double,b:bigint,c:string,d:array<string>,e:struct<f:string,g:boolean>,h:double>"
    )
    assert types(TypeRules(as_text=True)) == (
        "struct<a:string,b:string,c:string,d:array<string>,e:struct<f:string,g:string>,h:string>"
    )
    assert types(TypeRules(prefers_decimal=True, without_nulls=True)) == (
        "struct<a:decimal(38,1),b:bigint,e:struct<g:boolean>,h:double>"
    )
