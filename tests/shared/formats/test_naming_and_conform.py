"""Folder names, tables brought to a schema, and record metadata."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.formats.arrow_types import conform
from shared.maps.record_metadata import (
    COLUMNS,
    RecordMetadata,
    record_schema,
    stored_columns,
)
from target_spark.destinations.folders.table_folder import MAX_BYTES, case_collisions, folder_name


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders", "orders"),
        ("public-orders", "public-orders"),
        ("a b.c", "a b.c"),
        ("a/b\\c", "a%2Fb%5Cc"),
        ("..", "%2E%2E"),
        (".hidden", "%2Ehidden"),
        ("_x", "%5Fx"),
        ("end.", "end%2E"),
        ("", "%"),
        ("%", "%25"),
        ("con", "%63on"),
        ("x=1", "x=1"),
        ("ü", "ü"),
    ],
)
def test_folder_names(name: str, folder: str) -> None:
    assert folder_name(name) == folder


@given(st.text(max_size=300))
def test_folder_names_are_safe(name: str) -> None:
    folder = folder_name(name)
    assert folder
    assert folder[0] not in "._"
    assert "/" not in folder
    assert "\0" not in folder
    assert len(folder.encode("utf-8", "surrogatepass")) <= MAX_BYTES


@given(st.text(max_size=6), st.text(max_size=6))
def test_different_names_differ(one: str, other: str) -> None:
    assert (folder_name(one) == folder_name(other)) == (one == other)


def test_long_names_differ() -> None:
    assert folder_name("a" * 500) != folder_name("a" * 501)


def test_case_collisions() -> None:
    assert case_collisions(["a", "B", "A", "a", "c"]) == (("a", "A"),)
    assert case_collisions([]) == ()


def test_conform_at_any_depth() -> None:
    table = pa.table(
        {
            "a": pa.array([{"x": 1, "l": [{"p": 1}, None]}, None, {"x": 3, "l": None}]),
            "m": pa.array(
                [[("k", {"q": 1})], None, []],
                pa.map_(pa.string(), pa.struct([("q", pa.int64())])),
            ),
            "gone": [1, 2, 3],
        }
    )
    schema = pa.schema(
        [
            ("m", pa.map_(pa.string(), pa.struct([("q", pa.float64()), ("r", pa.string())]))),
            (
                "a",
                pa.struct(
                    [
                        ("y", pa.string()),
                        ("x", pa.float64()),
                        ("l", pa.list_(pa.struct([("p", pa.decimal128(38, 2))]))),
                    ]
                ),
            ),
            ("n", pa.int32()),
        ]
    )
    whole = conform(table, schema)
    whole.validate(full=True)
    assert str(whole.to_pylist()[0]) == (
        "{'m': [('k', {'q': 1.0, 'r': None})], 'a': {'y': None, 'x': 1.0, "
        "'l': [{'p': Decimal('1.00')}, None]}, 'n': None}"
    )
    for start in range(4):
        sliced = conform(table.slice(start), schema)
        sliced.validate(full=True)
        assert sliced.to_pylist() == whole.to_pylist()[start:]
    assert conform(whole, schema).schema.equals(schema)


def test_values_that_do_not_fit() -> None:
    with pytest.raises(pa.ArrowInvalid):
        conform(pa.table({"a": ["x"]}), pa.schema([("a", pa.int64())]))


SCHEMA = {
    "properties": {"id": {"type": "integer"}, "_sdc_sequence": {}},
    "required": ["id", "_sdc_sequence"],
}


def test_schema_of_records() -> None:
    assert list(record_schema(SCHEMA, True)["properties"]) == ["id", "_sdc_deleted_at"]
    assert record_schema(SCHEMA, False) == {
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
    }
    assert record_schema({"type": "object"}, True) == {"type": "object"}


def test_columns_that_are_stored() -> None:
    assert stored_columns(SCHEMA, False).names == ["id"]
    assert stored_columns(SCHEMA, True).names == ["id", *COLUMNS]
    assert stored_columns({"type": "object"}, True).names[-7:] == list(COLUMNS)
    only = {"type": "object", "properties": {"_sdc_sequence": {"type": "integer"}}}
    assert stored_columns(only, True).names == list(COLUMNS)


def test_values_of_metadata() -> None:
    columns = RecordMetadata(1.5, 2.25, 3.0, 9).columns(2)
    assert tuple(columns) == COLUMNS
    assert columns["_sdc_received_at"].cast(pa.int64()).to_pylist() == [1_500_000] * 2
    assert columns["_sdc_sequence"].to_pylist() == [1500] * 2
    assert columns["_sdc_table_version"].to_pylist() == [9, 9]
    assert columns["_sdc_deleted_at"].null_count == 2
    versions = pa.chunked_array([[4, None]])
    assert RecordMetadata(1, 2, 3, 9).columns(2, versions=versions)[
        "_sdc_table_version"
    ].to_pylist() == [4, None]
