"""Topics read over Spark Connect, in a separate process without the JVM."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from topic_reads import DELETED, TopicReads

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import json, sys
from pathlib import Path
from dataclasses import replace
from shared.spark.session import SessionStarter
from tap_spark.plan.discovery import catalog_for
from tap_spark.config import tap_config
from topic_reads import TopicReads, last_state, offsets, records

settings = json.loads(sys.argv[1])
config = tap_config(settings)
starter = SessionStarter(config.spark)
starter.start()
try:
    spark = starter.get()
    reads = TopicReads(None, spark, Path())
    entries = catalog_for(spark, config)["streams"]
    first = reads.run(config)
    again = reads.run(config, last_state(first))
    answer = {
        "connect": "connect" in type(spark).__module__,
        "streams": [entry["tap_stream_id"] for entry in entries],
        "first": records(first),
        "again": records(again),
        "offsets": offsets(again),
    }
finally:
    starter.stop()
print("ANSWER" + json.dumps(answer, default=str))
"""


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs the extra 'connect'")
def test_topics_over_spark_connect(reads: TopicReads, tmp_path: Path) -> None:
    topic = reads.broker.topic(2)
    reads.broker.send(topic, [({"id": n}, {"id": n}) for n in range(3)])
    reads.broker.send(topic, [({"id": 1}, None)], 1)
    reads.broker.expire(topic, {0: 1})
    stream = {"name": "s", "format": "kafka", "topic": topic, "key_format": "json"}
    connection = reads.broker.connection(include=[topic])
    settings = {
        "connections": [connection],
        "streams": [stream],
        "spark": {"remote": "local[2]", "conf": {"spark.driver.memory": "700m"}},
    }
    folders = [ROOT, Path(__file__).parent, ROOT / "tests" / "helpers"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "ANSWER" in done.stdout, done.stdout + done.stderr
    assert json.loads(done.stdout.partition("ANSWER")[2]) == {
        "connect": True,
        "streams": ["s", topic],
        "first": [{"id": n, DELETED: gone} for n, gone in ((1, False), (2, False), (1, True))],
        "again": [],
        "offsets": {"0": 3, "1": 1},
    }
