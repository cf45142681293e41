"""The suites for sources and encodings over the examples: `pytest test_examples.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import calendar_source
import stream_encoding

from shared.testing import EncodingSuite
from tap_spark.testing import Bad, Sample, SourceSuite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestCalendar(SourceSuite):
    form = calendar_source.SOURCE

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        days = {"first_day": "2025-12-31", "last_day": "2026-01-01"}
        rows = [
            {"day": "2025-12-31", "year": 2025, "weekday": 3},
            {"day": "2026-01-01", "year": 2026, "weekday": 4},
        ]
        types = {"day": {"type": "string", "format": "date"}}
        wrong = [
            Bad({**days, "last_day": "2025-01-01"}, "must not be before 'first_day'"),
            Bad({**days, "last_day": "2026-02-31"}, "2026-02-31"),
        ]
        return Sample(days, rows, types, replication_key="day", bad=wrong)


class TestStream(EncodingSuite):
    form = stream_encoding.ENCODING
