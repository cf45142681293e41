"""Columns that a map only copies: separated from the others, sent ahead, joined again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from shared.maps.map_settings import transform_settings
from shared.maps.stream_maps import outputs
from target_spark.convert import mapped_rows
from target_spark.convert.mapped_rows import (
    CopiedColumnJoiner,
    Copy,
    packed,
    select_copies,
    source_columns,
    without_copies,
)
from target_spark.destinations.destination import ROW_ORIGIN

PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "at": {"type": ["string", "null"], "format": "date-time"},
    "tags": {"type": ["array", "null"], "items": {"type": "string"}},
    "deep": {"type": ["object", "null"], "properties": {"a": {"type": ["integer", "null"]}}},
    "any": {},
}
SCHEMA = {"type": "object", "properties": PROPERTIES}
DEFAULTS = {"flattening_separator": "__", "flattening_max_key_length": 255}
FLAT = {"flattening_enabled": True, "flattening_max_depth": 2}
VALUES = st.none() | st.integers(-9, 9)
ROWS = st.lists(st.tuples(VALUES, st.none() | st.fixed_dictionaries({"a": VALUES}), st.booleans()))


def divided(
    settings: dict[str, Any], changed: dict[str, T.DataType] | None = None
) -> tuple[list[str], list[str]]:
    """Return the columns that a map still makes, and those that it copies, with their paths."""
    actual = transform_settings({**DEFAULTS, **settings})
    [output] = outputs(actual, "s", SCHEMA, source_columns(SCHEMA), ["id"])
    assert output.transform is not None
    table = T.StructType(
        [
            T.StructField(f.name, (changed or {}).get(f.name, f.dataType))
            for f in (*output.transform.struct(), T.StructField("_sdc_sequence", T.LongType()))
        ]
    )
    transform, copies = without_copies(output.transform, table, metadata=False)
    assert [c.name for c in without_copies(output.transform, table, metadata=True)[1]] == [
        *(copy.name for copy in copies),
        "_sdc_sequence",
    ]
    assert transform.computed == output.transform.computed
    return transform.struct().names, [f"{c.name}={'.'.join(c.path)}" for c in copies]


@pytest.mark.parametrize(
    ("settings", "created", "copies"),
    [
        (
            {"stream_maps": {"s": {"tags": None}}},
            [],
            ["id=id", "at=at", "deep=deep", "any=any"],
        ),
        (FLAT, ["tags"], ["id=id", "at=at", "deep__a=deep.a", "any=any"]),
        (
            {"stream_maps": {"s": {"id": "id + 1", "n": "id", "__else__": None}}},
            ["id"],
            ["n=id"],
        ),
    ],
)
def test_what_is_only_copied_is_told_from_the_rest(
    settings: dict[str, Any], created: list[str], copies: list[str]
) -> None:
    assert divided(settings) == (created, copies)


def test_a_column_of_another_type_in_the_table_is_no_copy() -> None:
    settings = {"stream_maps": {"s": {"__else__": None, "id": "id", "at": "at"}}}
    assert divided(settings) == ([], ["id=id", "at=at"])
    assert divided(settings, {"id": T.DoubleType()}) == (["id"], ["at=at"])


def table_of(rows: list[Any], first: int = 0) -> pa.Table:
    """Return records with places from a number on."""
    columns = [
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.struct([("a", pa.int64())])),
        pa.array(range(first, first + len(rows)), pa.int64()),
    ]
    return pa.table(columns, names=["id", "deep", ROW_ORIGIN])


COPIES = (Copy("n", ("id",)), Copy("deep", ("deep",)), Copy("deep__a", ("deep", "a")))


def test_fields_of_null_objects_are_null() -> None:
    actual = select_copies(
        COPIES, table_of([(1, {"a": 2}), (2, {"a": None}), (None, None)]).slice(1)
    )
    assert actual.to_pydict() == {
        "n": [2, None],
        "deep": [{"a": None}, None],
        "deep__a": [None] * 2,
    }


@given(st.lists(ROWS, max_size=4), st.integers(1, 5), st.sampled_from([1, 40, 1 << 20]))
def test_copies_come_beside_the_rows_that_are_left(
    tables: list[Any], batch_rows: int, stream_bytes: int
) -> None:
    """As Spark hands them on: streams ahead of their rows, cut into batches anywhere."""
    rows: list[tuple[bytes | None, int | None]] = []
    expected, first = [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapped_rows, "_STREAM_BYTES", stream_bytes)
        for given_rows in tables:
            for stream, part in packed(COPIES, table_of(given_rows, first)):
                rows.append((stream, None))
                rows += [
                    (None, n) for n in part[ROW_ORIGIN].to_pylist() if given_rows[n - first][2]
                ]
            kept = [row for row in given_rows if row[2]]
            expected += [(*row[:2], row[1] and row[1]["a"]) for row in kept]
            first += len(given_rows)
    beside, actual = CopiedColumnJoiner(), []
    for start in range(0, len(rows), batch_rows):
        batch = rows[start : start + batch_rows]
        streams = [stream for stream, _ in batch if stream is not None]
        assert all(beside.takes(pa.py_buffer(stream)) for stream in streams)
        places = pa.array([place for _, place in batch if place is not None], pa.int64())
        joined = beside.joined(pa.table({"made": places}), places)
        assert joined["made"].equals(pa.chunked_array([places]))
        actual += zip(*(joined[copy.name].to_pylist() for copy in COPIES), strict=True)
        assert len(beside._streams) <= 1
    assert actual == expected


def test_what_tasks_tell_is_no_stream() -> None:
    assert not CopiedColumnJoiner().takes(pa.py_buffer(b'{"kind": "rejected"}'))
