"""The whole target over Spark Connect, in a process of its own; the server is in the session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lake_story
import pytest
from lake_loads import DeltaLoad, struct

from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("grpc")
pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]

ROOT = Path(__file__).parents[4]
STREAMS = (("kept", "fresh"), ("kept", "merged"))
"""Of Delta, and of Iceberg: what a method does over Connect, one format shows."""


@pytest.fixture
def connect_url(lake_spark: SparkSession) -> Iterator[str]:
    """A Connect server in the Java process of the session, on loopback."""
    session: Any = lake_spark
    java = session._jvm
    conf = java.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", "0")
    package = java.org.apache.spark.sql.connect.service
    service = getattr(getattr(package, "SparkConnectService$"), "MODULE$")
    service.start(session.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    nothing = java.scala.Option.empty()
    service.stop(nothing, nothing)


def test_loads_of_every_method(connect_url: str, lake_spark: SparkSession, tmp_path: Path) -> None:
    schema = f"connect_{uuid.uuid4().hex[:8]}"
    spark = {"remote": connect_url}
    staging = {"root": str(tmp_path / "staging")}
    (tmp_path / "staging").mkdir()
    places: list[dict[str, Any]] = [
        {"format": "delta", "path": str(tmp_path / "delta")},
        {"format": "iceberg", "catalog": "ice", "default_target_schema": schema},
    ]
    listed = [
        lake_story.settings(streams, **place, spark=spark, staging=staging)
        for streams, place in zip(STREAMS, places, strict=True)
    ]
    (tmp_path / "settings.json").write_text(json.dumps(listed))
    done = subprocess.run(
        [sys.executable, lake_story.__file__, str(tmp_path / "settings.json"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for stream in STREAMS[0]:
        load = DeltaLoad(lake_spark, TargetConfig(**places[0]), struct("id long"), table=stream)
        assert lake_story.actual(load.other_reader().rows) == lake_story.EXPECTED[stream], stream
    for stream in STREAMS[1]:
        table = lake_spark.table(f"ice.{schema}.{stream}").collect()
        rows = [row.asDict(recursive=True) for row in table]
        assert lake_story.actual(rows) == lake_story.EXPECTED[stream], stream
