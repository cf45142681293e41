"""Engines of tests: over a session that is there, or without any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import pytest

from shared.engine.engine import Engine, EngineSettings, engine_of
from shared.spark.conf import SparkSettings


class NoSpark:
    """Stands for the start of Spark, which must not happen."""

    conf: Mapping[str, str] = {}

    def start(self) -> None:
        pytest.fail("Spark was started")

    get = context = start

    def running(self) -> None:
        return None

    def stop(self) -> None:
        """Do nothing."""


class IdleSpark(NoSpark):
    """Stands for a Spark that is never up, and not waited for."""

    def start(self) -> None:
        """Do nothing."""


def threads(starter: Any = None) -> Engine:
    """Return an engine that fails a test that starts Spark, or has a starter of its own."""
    return Engine(starter or NoSpark())


def engine_without_spark(settings: EngineSettings, spark: SparkSettings, **_: bool) -> Engine:
    """Return the engine of settings that fails a test that starts Spark; see `engine_of`."""
    own = engine_of(settings, spark)
    return Engine(NoSpark(), own.choice, own.limit, own.threads.count, may_read=own.may_read)


def jars_of(spark: Any) -> list[str]:
    """Return the names of the jar files of a session: on Java's classpath, or added by Spark."""
    paths = spark._jvm.java.lang.System.getProperty("java.class.path").split(":")
    paths += (spark.conf.get("spark.jars", "") or "").split(",")
    return [PurePosixPath(path).name for path in paths]
