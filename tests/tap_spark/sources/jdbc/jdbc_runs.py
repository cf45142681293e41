"""Reads of database streams as in a run: discovery, planning, slices."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shared.engine.engine import SPARK, Engine
from shared.singer.stdout import MessageOutput
from tap_spark.config import TapConfig, tap_config
from tap_spark.plan.catalog import metadata_of
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.send import sync
from tap_spark.sources.source import source_for
from tap_spark.state.stream_plans import Slice
from tap_spark.stream_config import StreamConfig


def table_stream(database: Any, table: str, **settings: Any) -> StreamConfig:
    """Return a stream over a table; `partitions`, `snapshot` and the like are the connection's."""
    names = [
        "partitions",
        "snapshot",
        "url",
        "password",
        "user",
        "retries",
        "properties",
        "count_rows",
    ]
    own = {name: settings.pop(name) for name in names if name in settings}
    settings.setdefault("database", database.connection(**own))
    place = {} if "query" in settings else {"table": table}
    return StreamConfig(name="s", format="jdbc", **place, **settings)


def catalog_of(spark: Any, stream: StreamConfig) -> dict[str, Any]:
    return catalog_for(spark, TapConfig(streams=(stream,)))


def slices_of(spark, stream, state=None, catalog=None, deselect=()) -> list[Slice]:
    catalog = catalog or catalog_of(spark, stream)
    for item in catalog["streams"][0]["metadata"]:
        if item["breadcrumb"] in [["properties", name] for name in deselect]:
            item["metadata"]["selected"] = False
    (plan,) = plan_streams(TapConfig(streams=(stream,)), catalog, state, 1)
    return source_for(stream).slices(spark, plan)


def rows_of(spark, stream, **run: Any) -> list[tuple]:
    actual = []
    for piece in slices_of(spark, stream, **run):
        actual += [tuple(row) for row in piece.frame.collect()]
    return actual


def bookmark(value: Any, key: str) -> dict[str, Any]:
    mark = {"replication_key": key, "replication_key_value": value}
    return {"bookmarks": {"s": mark}}


def properties_of(catalog: dict[str, Any]) -> dict[str, Any]:
    return catalog["streams"][0]["schema"]["properties"]


def root_of(catalog: dict[str, Any]) -> dict[str, Any]:
    return metadata_of(catalog["streams"][0])[()]


def engine_with(spark: Any, choice: str = SPARK) -> Engine:
    """Return an engine over the session of the tests, by the setting `engine`."""
    engine = Engine.of(lambda: spark)
    engine.choice = choice
    return engine


def run_tap(
    spark: Any,
    settings: Mapping[str, Any],
    state: Any = None,
    *,
    catalog: Any = None,
    engine: str = SPARK,
    **decode: Any,
) -> list[dict[str, Any]]:
    """Return the messages of a run, in the session of the tests.

    Args:
        spark: The session.
        settings: The tap's settings; of their connections no other table is read.
        state: Where the last run ended.
        catalog: The streams to read; those of the settings without it.
        engine: The setting of this name.
        decode: How to decode JSON.
    """
    connections = [{**item, "exclude": ["*"]} for item in settings["connections"]]
    config = tap_config({**settings, "connections": connections})
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync, "engine_of", lambda *_, **__: engine_with(spark, engine))
        path = Path(folder) / "out.jsonl"
        with path.open("wb") as file:
            output = MessageOutput(os.dup(file.fileno()))
            try:
                sync.run_sync(config, catalog, state, output)
            finally:
                output.close()
        return [json.loads(line, **decode) for line in path.read_text().split("\n")[:-1]]
