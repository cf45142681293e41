"""A broker, a session and a folder for the tests of topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from topic_reads import TopicReads

if TYPE_CHECKING:
    from kafka_broker import KafkaBroker
    from pyspark.sql import SparkSession


@pytest.fixture
def reads(kafka: KafkaBroker, lake_spark: SparkSession, tmp_path: Path) -> TopicReads:
    """Return what reads topics of the broker."""
    return TopicReads(kafka, lake_spark, tmp_path)
