"""Catalog entries: standard metadata, keys, the exact schema, and catalogs that are wrong."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as t

from shared.errors import SourceError
from tap_spark.plan.catalog import (
    SPARK_SCHEMA,
    build_entry,
    check_catalog,
    load_catalog,
    metadata_of,
    stream_selected,
)
from tap_spark.sources.frame_helpers import struct_from_text

STRUCT = t.StructType(
    [
        t.StructField("id", t.LongType()),
        t.StructField("Cost Total $", t.DecimalType(10, 2)),
        t.StructField("seen", t.TimestampType()),
        t.StructField(
            "place",
            t.StructType(
                [
                    t.StructField("lat.lon", t.ArrayType(t.DoubleType())),
                    t.StructField("n", t.StringType()),
                ]
            ),
        ),
        t.StructField("parts", t.ArrayType(t.StructType([t.StructField("size", t.IntegerType())]))),
        t.StructField("blob", t.BinaryType()),
    ]
)


def test_keys_are_automatic_and_the_rest_available():
    metadata = metadata_of(build_entry("s", STRUCT, key_properties=["id"], replication_key="seen"))
    inclusion = {path: m["inclusion"] for path, m in metadata.items()}
    assert inclusion["properties", "id"] == inclusion["properties", "seen"] == "automatic"
    assert inclusion["properties", "Cost Total $"] == "available"
    assert all(m["selected-by-default"] for m in metadata.values())


def test_nested_properties_have_breadcrumbs_unless_they_are_in_arrays():
    paths = set(metadata_of(build_entry("s", STRUCT)))
    assert ("properties", "place", "properties", "lat.lon") in paths
    # Meltano deselects what its patterns do not reach: `select: s.parts` left `parts` out.
    assert ("properties", "parts") in paths
    assert not any("items" in path for path in paths)


def test_a_nested_property_named_like_a_key_is_not_automatic():
    nested = t.StructType([t.StructField("id", t.LongType())])
    struct = t.StructType([t.StructField("id", t.LongType()), t.StructField("x", nested)])
    metadata = metadata_of(build_entry("s", struct, key_properties=["id"]))
    assert metadata["properties", "x", "properties", "id"]["inclusion"] == "available"


def test_root_metadata():
    root = metadata_of(build_entry("s", STRUCT, key_properties=["id"], replication_key="seen"))[()]
    assert root["valid-replication-keys"] == ["id", "Cost Total $", "seen"]
    assert root["table-key-properties"] == ["id"]
    assert root["replication-method"] == "INCREMENTAL"
    assert root["replication-key"] == "seen"
    assert root["inclusion"] == "available"


def test_the_exact_schema_survives_json():
    entry = json.loads(json.dumps(build_entry("s", STRUCT)))
    assert struct_from_text(metadata_of(entry)[()][SPARK_SCHEMA]) == STRUCT


@pytest.mark.parametrize(
    ("key", "method", "expected"),
    [
        (None, None, "FULL_TABLE"),
        ("seen", None, "INCREMENTAL"),
        (None, "INCREMENTAL", "INCREMENTAL"),
        ("seen", "FULL_TABLE", "FULL_TABLE"),
    ],
)
def test_replication_method(key, method, expected):
    entry = build_entry("s", STRUCT, replication_key=key, replication_method=method)
    assert entry["replication_method"] == expected
    assert entry.get("replication_key") == key


@pytest.mark.parametrize(
    ("keys", "replication_key", "text"),
    [
        (["nope"], None, "key property 'nope' is not a column"),
        (["id"], "nope", "replication key 'nope' is not a column"),
        (["id"], "place", "replication key 'place' is not a number"),
        (["no", "nor"], "blob", "'nor' is not a column; replication key 'blob'"),
    ],
)
def test_wrong_keys_are_all_named(keys, replication_key, text):
    with pytest.raises(SourceError, match="stream 's'") as caught:
        build_entry("s", STRUCT, key_properties=keys, replication_key=replication_key)
    assert text in str(caught.value)


def words(*breadcrumb, **metadata):
    """Return changes of an entry: one item of metadata."""
    return {"metadata": [{"breadcrumb": list(breadcrumb), "metadata": metadata}]}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (words(selected="false"), "'selected' 'false' in the metadata of '', which is neither"),
        (words("properties", "x", **{"selected-by-default": 0}), "metadata of 'properties/x'"),
        (words(inclusion="Unsupported"), "none of available, automatic, unsupported"),
        (words(**{"table-key-properties": "id"}), "'table-key-properties' in the metadata of '' "),
        (words(**{"table-key-properties": 5}), "is not a list of names"),
        (words(**{"replication-key": ["at"]}), "that is not a text"),
        (words(**{"spark-schema": {}}), "that is not a text"),
        (words(["properties", "id"]), "metadata item without breadcrumb and metadata"),
        ({"metadata": [{}]}, "metadata item without breadcrumb and metadata"),
        ({"selected": "false"}, "'selected' 'false', which is neither true nor false"),
        ({"key_properties": [1]}, "'key_properties' that is not a list of names"),
        ({"stream": 5}, "'stream' that is not a text"),
        *(
            ({"schema": {"properties": {"a": node}}}, text)
            for node, text in (
                (True, "of 'a' that is not an object"),
                (None, "of 'a' that is not an object"),
                ([1], "of 'a' that is not an object"),
                ({"type": 5}, "of 'a' whose 'type'"),
                ({"type": [["string"]]}, "of 'a' whose 'type'"),
                ({"properties": [1]}, "of 'a' whose 'type' or 'properties' is invalid"),
                ({"properties": {"b": 1}}, "of 'b' that is not an object"),
                ({"items": {"type": 5}}, "of the items of 'a' whose 'type'"),
            )
        ),
    ],
)
def test_what_a_catalog_cannot_mean_is_refused(change, text):
    entry = {"tap_stream_id": "s", "schema": {"properties": {"a": {}}}} | change
    with pytest.raises(SourceError, match="stream 's' has ") as caught:
        check_catalog({"streams": [entry]})
    assert text in str(caught.value)


def test_null_is_as_if_it_was_missing():
    odd = words(selected=None, inclusion=None, **{"table-key-properties": None})
    schema = {"type": None, "properties": {"a": {"items": True, "type": ["null", "array"]}}}
    entry = {"tap_stream_id": "s", "stream": None, "key_properties": None, "schema": schema, **odd}
    check_catalog({"streams": [entry, {**build_entry("t", STRUCT), "metadata": None}]})


@pytest.mark.parametrize(
    ("catalog", "text"),
    [
        ([], "no list 'streams'"),
        ({"streams": {}}, "no list 'streams'"),
        ({"streams": [{}]}, "streams[0] has no 'tap_stream_id'"),
        ({"streams": [{"tap_stream_id": "a"}]}, "stream 'a' has no schema with properties"),
        (
            {"streams": [{"tap_stream_id": "a", "schema": {"properties": {}}}] * 2},
            "stream 'a' is listed twice",
        ),
        (
            {"streams": [{"tap_stream_id": "a", "schema": {"properties": {}}, "metadata": [1]}]},
            "metadata item without breadcrumb",
        ),
        (
            {"streams": [{"tap_stream_id": "a", "schema": {"properties": {}}, "metadata": "x"}]},
            "metadata that is not a list",
        ),
    ],
)
def test_a_wrong_catalog_is_refused(catalog, text):
    with pytest.raises(SourceError) as caught:
        check_catalog(catalog)
    assert text in str(caught.value)
    assert caught.value.exit_code == 3


def test_all_problems_of_a_catalog_are_named_at_once():
    with pytest.raises(SourceError) as caught:
        check_catalog({"streams": [{"tap_stream_id": "a"}, {"tap_stream_id": "b"}, {}]})
    for part in ("'a'", "'b'", "streams[2]"):
        assert part in str(caught.value)


def test_load_catalog(tmp_path):
    good = tmp_path / "catalog.json"
    good.write_text('{"streams": []}')
    assert load_catalog(str(good)) == {"streams": []}
    good.write_text("{")
    with pytest.raises(SourceError, match="not JSON"):
        load_catalog(str(good))
    with pytest.raises(SourceError, match="cannot read the catalog"):
        load_catalog(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, True),
        ({"metadata": []}, True),
        ({"metadata": [{"breadcrumb": [], "metadata": {"selected": False}}]}, False),
        ({"metadata": [{"breadcrumb": [], "metadata": {"selected-by-default": True}}]}, True),
        ({"metadata": [{"breadcrumb": [], "metadata": {"inclusion": "available"}}]}, False),
        ({"selected": True, "metadata": [{"breadcrumb": [], "metadata": {}}]}, True),
        (
            {"selected": True, "metadata": [{"breadcrumb": [], "metadata": {"selected": False}}]},
            False,
        ),
        (
            {
                "metadata": [
                    {"breadcrumb": [], "metadata": {"selected": False, "selected-by-default": True}}
                ]
            },
            False,
        ),
    ],
)
def test_whether_a_stream_is_selected(entry, expected):
    assert stream_selected(entry) is expected
