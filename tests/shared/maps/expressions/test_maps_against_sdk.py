"""Whole maps, records filtered and all, against the SDK's own mapper."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from comparing import Raised, as_json, framed, same, too_large
from sdk_expressions import CONFIG, STREAM
from sdk_records import DDL, handmade

from shared.formats.json_schema import spark_to_json_schema
from shared.maps.expressions.syntax import ERROR
from shared.maps.map_settings import transform_settings
from shared.maps.stream_maps import outputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAPS: dict[str, dict[str, Any]] = {
    "everything stays, some is made": {
        "label": "f'{config[\"prefix\"]}{id:05d}-{name}'",
        "name": "self.strip().lower() if self else None",
        "total": "(n or 0) % 7 + (m or 0) % 5",
        "big": "n is not None and n > 100",
        "code": None,
    },
    "only what is named": {
        "__else__": None,
        "id": "id",
        "hash": "md5(config['prefix'] + str(id))",
        "first": "name[:3] if name is not None else 'none'",
        "words": "name.split() if name else []",
        "sku": "item['sku'] if item else None",
        "half": "x / 2 if x else 0.0",
    },
    "a filter, and a map that raises for some": {
        "__filter__": "name is not None and len_of > 2",
        "number": "int(name)",
        "parts": "','.join(name.split('a'))",
    },
    "python and spark side by side": {
        "__filter__": "flag or not n",
        "shown": "f'{x:.3f}' if x is not None else ''",
        "titled": "name.title() if name else name",
        "upper": "name.upper() if name else name",
        "both": "[name, code]",
        "day": "datetime.date.fromisoformat(day) if day and day[:2] == '20' else None",
    },
}
KEYS = ["id"]


def by_sdk(stream_map: dict[str, Any], record: dict[str, Any], schema: dict[str, Any]) -> Any:
    from singer_sdk.mapper import PluginMapper

    config: Any = {"stream_maps": {STREAM: dict(stream_map)}, "stream_map_config": CONFIG}
    mapper = PluginMapper(config, logging.getLogger("sdk"))
    mapper.register_raw_stream_schema(STREAM, schema, KEYS)
    try:
        created = mapper.stream_maps[STREAM][0].transform(dict(record))
    except Exception as error:
        return Raised(repr(error))
    return None if created is None else as_json(created)


def by_this(
    frame: DataFrame, stream_map: dict[str, Any], schema: dict[str, Any]
) -> dict[int, dict[str, Any] | Raised]:
    """Return the results by `at`, a column that is kept; filtered records are missing."""
    from pyspark.sql import functions as F  # noqa: N812

    values = {"stream_maps": {STREAM: stream_map}, "stream_map_config": CONFIG}
    struct = frame.drop("at").schema
    (output,) = outputs(transform_settings(values), STREAM, schema, struct, tuple(KEYS))
    assert output.transform is not None
    created = output.transform.apply(frame, keep=["at"])
    variants = {field.name for field in created.schema if field.dataType.typeName() == "variant"}
    for name in variants:
        created = created.withColumn(name, F.to_json(F.col(name)))
    actual: dict[int, dict[str, Any] | Raised] = {}
    for row in created.toArrow().to_pylist():
        at, error = row.pop("at"), row.pop(ERROR)
        for name in variants & row.keys():
            row[name] = None if row[name] is None else json.loads(row[name])
        actual[at] = Raised(error) if error is not None else as_json(row)
    return actual


@pytest.mark.spark
@pytest.mark.parametrize("name", MAPS)
def test_maps_are_as_the_sdks(spark: SparkSession, name: str):
    from pyspark.sql import functions as F  # noqa: N812

    records = [{**record, "len_of": len(record["name"] or "")} for record in handmade()]
    frame = framed(spark, records, f"{DDL}, len_of long")
    schema = spark_to_json_schema(frame.schema)
    actual = by_this(frame.withColumn("at", F.col("id")), MAPS[name], schema)
    raised = kept = 0
    for record in records:
        expected, result = by_sdk(MAPS[name], record, schema), actual.get(record["id"])
        assert too_large(result) or same(expected, result), (record, expected, result)
        raised += isinstance(expected, Raised)
        kept += isinstance(expected, dict)
    assert kept > 5
    assert raised > 5 or "raises" not in name
