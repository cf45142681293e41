"""A slice of both programs with each other release of Spark: all of it in one session.

`SINGER_SPARK_OTHER_RELEASES` names the releases, separated by spaces: `.ci/run` takes two of them
each day. `make soak` runs more (`test_spark_releases`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker
from own_environments import WheelEnvironments
from pipe_programs import SPARK
from postgres_server import PASSWORD, Database

from shared.spark.spark_release import COMPLETE, LINES, RELEASES

CHOSEN = os.environ.get("SINGER_SPARK_OTHER_RELEASES", " ".join(LINES)).split()


def test_chosen_releases_are_supported() -> None:
    assert set(CHOSEN) <= set(LINES)


@pytest.mark.costly
@pytest.mark.once
@pytest.mark.pipe
@pytest.mark.server
@pytest.mark.parametrize("line", [line for line in CHOSEN if line != COMPLETE])
def test_other_release(
    environments: WheelEnvironments,
    postgres: Database,
    kafka: KafkaBroker,
    tmp_path: Path,
    line: str,
) -> None:
    topic = kafka.topic()
    kafka.send(topic, [({"id": n}, {"id": n, "name": f"n{n}"}) for n in range(3)])
    supplied = {
        "folder": str(tmp_path),
        "spark": SPARK,
        "database": {"url": postgres.url, "user": "postgres", "password": PASSWORD},
        "kafka": kafka.connection(name="k"),
        "topic": topic,
    }
    own = environments.of("delta", "iceberg", "postgresql", spark=line)
    script = Path(__file__).with_name("release_slice.py")
    done = own.result(tmp_path, "python", str(script), json.dumps(supplied))
    found_line, actual = json.loads(done)
    postgres.run("drop table rows")
    assert found_line == line
    full = [
        {"id": n, "part": n / 8, "list": [n], "at": "2020-02-03T04:05:06.789000+00:00"}
        for n in range(5)
    ]
    for name in ("records", "batches", "delta", "iceberg"):
        rows = [{**row, "part": float(row["part"])} for row in actual.pop(name, ())]
        is_lake = name in {"delta", "iceberg"}
        if not is_lake or name in RELEASES[line].packages:
            assert rows == full[: 5 if is_lake else 3], name
    assert [float(row["part"]) for row in actual.pop("database")] == [0, 0.125, 0.25]
    if "kafka" in RELEASES[line].packages:
        assert [row["name"] for row in actual.pop("kafka")] == ["n0", "n1", "n2"]
    assert not actual
