"""Whole maps beside the SDK's mapper: which records leave, under which names, with what in them.

Results of expressions are compared in tests/shared/maps/expressions.
"""

from __future__ import annotations

from typing import Any

import pytest
from map_cases import ORDERS, by_sdk, flat, mapped, plain, planned
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDS: list[dict[str, Any]] = [
    {
        "id": 1,
        "name": "Ann",
        "email": "ann@x.org",
        "price": 2.5,
        "customer": {"email": "c@x", "address": {"city": "Bonn", "zip": 53111}},
        "tags": ["a", None, 'quo"te'],
    },
    {"id": 2, "name": "", "email": None, "price": 0.0, "customer": None, "tags": []},
    {
        "id": 3,
        "name": "Çelik \U0001f600",
        "email": "X@Y",
        "price": -1e300,
        "customer": {"email": "", "address": {"city": None, "zip": None}},
        "tags": None,
    },
]
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "drops": ({"orders": {"name": None, "tags": "__NULL__"}}, {}),
    "copies": ({"orders": {"who": "name", "name": "email", "mine": "customer"}}, {}),
    "self": ({"orders": {"name": "self", "email": "self.lower() if self else 'none'"}}, {}),
    "else": ({"orders": {"id": "id", "total": "price * 2", "__else__": None}}, {}),
    "keys": ({"orders": {"__key_properties__": ["name"], "id": None}}, {}),
    "filter": ({"orders": {"__filter__": "name", "label": "f'{name}: {id}'"}}, {}),
    "filter that counts": ({"orders": {"__filter__": "(tags and tags[0] == 'a') or id == 3"}}, {}),
    "nobody": ({"orders": {"__filter__": "False"}}, {}),
    "alias": ({"o*": {"__alias__": "f'{__stream_name__}_2'", "from": "__stream_name__",
                      "before": "__original_stream_name__"}}, {}),
    "split": ({"orders": {"__filter__": "price > 0"}, "rest": {"__source__": "orders",
               "__filter__": "not price > 0", "id": "id", "tag": "'rest'", "__else__": None}}, {}),
    "config": ({"orders": {"x": "config['list'][1]['y'] + str(id)"}},
               {"stream_map_config": {"list": [1, {"y": "z"}]}}),
    "whole record": ({"orders": {"all": "record", "id": "id", "__else__": None}}, {}),
    "flat": ({}, flat(1)),
    "flat, deeper": ({"orders": {"who": "customer", "customer": None}}, flat(2)),
    "flat, new objects": ({"orders": {"new": "{'a': name, 'b': {'c': id}}"}}, flat(5)),
    "short names": ({}, flat(3, flattening_max_key_length=12, flattening_separator="_")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_output_has_the_same_records(spark: SparkSession, case: str) -> None:
    stream_maps, values = CASES[case]
    ours = planned(stream_maps, **values)
    theirs = by_sdk(stream_maps, **values)
    assert [output.stream for output in ours] == [sdk.stream_alias for sdk in theirs]
    for output, sdk in zip(ours, theirs, strict=True):
        expected = [sdk.transform(record) for record in RECORDS]
        actual = mapped(spark, output, ORDERS, RECORDS)
        wanted = [plain(record) for record in expected if record is not None]
        if case == "flat, new objects":
            wanted = [without_untold(record) for record in wanted]
        assert [plain(record) for record in actual] == wanted


def without_untold(record: dict[str, Any]) -> dict[str, Any]:
    """Flatten the new object of a record, which the SDK treats as text and leaves nested."""
    new = record.pop("new", None)
    if new is not None:
        record |= {"new__a": new["a"], "new__b__c": new["b"]["c"]}
    return record
