"""Reads of streams as in a run: discovery, planning, slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.errors import SourceError
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import metadata_of
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.sources.formats import source_format
from tap_spark.sources.frame_helpers import struct_from_text
from tap_spark.sources.source import source_for
from tap_spark.sources.source_failures import source_error
from tap_spark.state.stream_plans import Slice
from tap_spark.stream_config import StreamConfig


def failure(call: Callable[[], object]) -> str:
    """Return the one-line error that a user sees when a call fails."""
    with pytest.raises(Exception) as caught:
        call()
    error = source_error("s", caught.value)
    assert isinstance(error, SourceError)
    assert "stream 's'" in str(error)
    assert "\n" not in str(error)
    return str(error)


def stream(kind: str, path: Any = None, **settings: Any) -> StreamConfig:
    form = source_format(kind)
    own = {name: settings.pop(name) for name in (form.settings if form else ()) if name in settings}
    return StreamConfig(name="s", format=kind, path=path, own=own, **settings)


def types(spark, config: StreamConfig) -> dict[str, str]:
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    root = metadata_of(catalog["streams"][0])[()]
    fields = struct_from_text(root["spark-schema"]).fields
    return {f.name: str(f.dataType.jsonValue()) for f in fields}


def read_all(
    spark, config: StreamConfig, *, catalog=None, state=None, deselect=()
) -> tuple[list[dict], list[Slice]]:
    """Return rows and slices of one run."""
    tap = TapConfig(streams=(config,))
    catalog = catalog or catalog_for(spark, tap)
    off = [[part for name in _path(item) for part in ("properties", name)] for item in deselect]
    for item in catalog["streams"][0]["metadata"]:
        if item["breadcrumb"] in off:
            item["metadata"]["selected"] = False
    (plan,) = plan_streams(tap, catalog, state, 1)
    slices = list(source_for(config).slices(spark, plan))
    actual = [row.asDict(recursive=True) for piece in slices for row in piece.frame.collect()]
    assert all(tuple(piece.frame.columns) == plan.columns for piece in slices)
    return actual, slices


def rows(spark, config: StreamConfig, **selection: Any) -> list[dict]:
    return read_all(spark, config, **selection)[0]


def _path(item) -> tuple:
    return (item,) if isinstance(item, str) else item
