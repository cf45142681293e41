"""A slice of both programs with the other releases of Spark: one a day, by turn.

`make soak` runs more, with all of them (`test_spark_releases`).
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker
from own_environments import WheelEnvironments
from pipe_programs import SPARK
from postgres_server import PASSWORD, Database

from shared.spark.spark_release import COMPLETE, LINES, RELEASES

OTHERS = [line for line in LINES if line != COMPLETE]
VARIABLE = "SINGER_SPARK_RELEASE"


def line_of_today() -> str:
    """Return the release of the day, or the one that the environment names."""
    day = datetime.now(timezone.utc).toordinal()
    return os.environ.get(VARIABLE) or OTHERS[day % len(OTHERS)]


@pytest.mark.costly
@pytest.mark.once
@pytest.mark.pipe
@pytest.mark.server
def test_release_of_the_day(
    environments: WheelEnvironments, postgres: Database, kafka: KafkaBroker, tmp_path: Path
) -> None:
    line, topic = line_of_today(), kafka.topic()
    kafka.send(topic, [({"id": n}, {"id": n, "name": f"n{n}"}) for n in range(3)])
    given = {
        "folder": str(tmp_path),
        "spark": SPARK,
        "database": {"url": postgres.url, "user": "postgres", "password": PASSWORD},
        "kafka": kafka.connection(name="k"),
        "topic": topic,
    }
    own = environments.of("delta", "iceberg", "postgresql", spark=line)
    script = Path(__file__).with_name("release_slice.py")
    done = own.result(tmp_path, "python", str(script), json.dumps(given))
    found_line, found = json.loads(done)
    postgres.run("drop table rows")
    assert found_line == line
    full = [
        {"id": n, "part": n / 8, "list": [n], "at": "2020-02-03T04:05:06.789000+00:00"}
        for n in range(5)
    ]
    for name in ("records", "batches", "delta", "iceberg"):
        rows = [{**row, "part": float(row["part"])} for row in found.pop(name, ())]
        is_lake = name in {"delta", "iceberg"}
        if not is_lake or name in RELEASES[line].packages:
            assert rows == full[: 5 if is_lake else 3], name
    assert [float(row["part"]) for row in found.pop("database")] == [0, 0.125, 0.25]
    if "kafka" in RELEASES[line].packages:
        assert [row["name"] for row in found.pop("kafka")] == ["n0", "n1", "n2"]
    assert not found
