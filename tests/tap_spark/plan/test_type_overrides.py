"""Types of the catalog other than the source's: records follow them, or the catalog is refused."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import StructType

from shared.errors import SourceError
from shared.formats.json_schema import spark_to_json_schema
from tap_spark.plan.replication import typed_columns

FIELDS = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
    {"name": "day", "type": "date", "nullable": True, "metadata": {}},
    {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    {
        "name": "inner",
        "type": {
            "type": "struct",
            "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}],
        },
        "nullable": True,
        "metadata": {},
    },
]
STRUCT = StructType.fromJson({"type": "struct", "fields": FIELDS})
TEXT = json.dumps(STRUCT.jsonValue())


def typed(form="parquet", key=None, **changes):
    schema = spark_to_json_schema(STRUCT)
    for name, change in changes.items():
        schema["properties"][name] = {**schema["properties"][name], **change}
    return typed_columns("s", form, schema, TEXT, key)


STRING = {"type": ["string", "null"]}


def test_the_types_of_the_source_change_nothing():
    actual = typed()
    assert (actual.source_schema, actual.as_text) == (TEXT, ())
    assert actual.schema == spark_to_json_schema(STRUCT)
    wider = typed(
        id={"type": ["number", "null"]},
        name={"maxLength": 3},
        price={"type": ["null", "number", "string"]},
    )
    assert wider.as_text == ()


@pytest.mark.parametrize("name", ["id", "price", "inner"])
def test_text_is_read_as_text_or_made_text(name):
    actual = typed(**{name: STRING})
    assert actual.as_text == (name,)
    assert actual.schema["properties"][name] == STRING
    read = typed("csv", **{name: STRING})
    assert read.as_text == ()
    assert (
        StructType.fromJson(json.loads(read.source_schema))[name].dataType.simpleString()
        == "string"
    )


def test_a_date_becomes_text_without_a_format():
    schema = spark_to_json_schema(STRUCT)
    schema["properties"]["day"] = STRING
    assert typed_columns("s", "parquet", schema, TEXT, None).as_text == ("day",)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": {"type": ["integer", "null"]}},
        {"price": {"type": ["integer", "null"]}},
        {"name": {"type": "string", "format": "date-time"}},
        {"day": {"format": "date-time"}},
        {"id": {"type": "boolean"}},
        {"inner": {"properties": {"n": STRING}}},
    ],
)
def test_other_types_are_refused(changes):
    with pytest.raises(SourceError, match=r"the catalog gives '.*only text can be chosen"):
        typed(**changes)


def test_a_replication_key_keeps_its_type():
    with pytest.raises(SourceError, match="replication key keeps its type"):
        typed(key="id", id=STRING)
