"""Flushes as destinations get them."""

from __future__ import annotations

from typing import Any

import pytest

from target_spark.config import target_config
from target_spark.convert.stream_tables import StreamTables
from target_spark.core.load_plans import Batch, Making, Reached, StreamSchema, TableRequest
from target_spark.destinations.destination import Destination, Flush, TableWrite
from target_spark.destinations.lakes.lake_destination import PARTS

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
STATE = b'{"bookmarks":{"src":1,"s":2}}'


class NoDestination(Destination):
    """Holds no tables."""

    def prepare(self, request: TableRequest) -> TableWrite:
        return TableWrite("nowhere", PARTS, request.struct)

    def commit(self, flush: Flush) -> None:
        raise NotImplementedError


def flush(method: str, keys: tuple[str, ...] = ("id",), **batch: Any) -> Flush:
    config = target_config({"path": "out", "format": "delta", "load_method": method})
    stream = StreamSchema("s", SCHEMA, keys)
    return StreamTables(config, NoDestination()).flush(Batch(stream, (), "r-1", **batch), [])


@pytest.mark.parametrize(
    ("method", "keys", "is_exact", "is_stored"),
    [
        ("append-only", ("id",), False, False),
        ("append-only", ("id",), True, True),
        ("upsert", ("id",), False, True),
        ("overwrite", (), False, True),
    ],
)
def test_a_flush_has_the_state_from_which_no_row_comes_twice(
    method: str, keys: tuple[str, ...], is_exact: bool, is_stored: bool
) -> None:
    actual = flush(method, keys, reached=Reached(STATE, 1, is_exact))
    assert (actual.source, actual.state) == (None, '{"bookmarks":{"s":2}}' if is_stored else None)


def test_a_mapped_flush_has_the_bookmark_of_its_source() -> None:
    not_run: Any = None
    making = Making("src", SCHEMA, ("id",), transform=not_run)
    actual = flush("append-only", making=making, reached=Reached(STATE, 1, is_exact=True))
    assert (actual.stream, actual.source, actual.state) == ("s", "src", '{"bookmarks":{"src":1}}')


@pytest.mark.parametrize(("add", "done"), [(True, "replaced"), (False, "ignored")])
def test_values_under_names_of_record_metadata_are_named_once(
    caplog: pytest.LogCaptureFixture, add: bool, done: str
) -> None:
    config = target_config({"path": "out", "format": "delta", "add_record_metadata": add})
    tables, node = StreamTables(config, NoDestination()), {"type": "string"}
    names = ("id", "_sdc_batched_at", "_sdc_deleted_at", "_sdc_own")
    for more in ({}, {"x": node}):
        schema = {"type": "object", "properties": {**dict.fromkeys(names, node), **more}}
        tables.request(StreamSchema("s", schema, ("id",)))
    (text,) = caplog.messages
    assert text.startswith(f"stream 's': values of '_sdc_batched_at' are {done}: ")
