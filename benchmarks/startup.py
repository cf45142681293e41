"""Start-up of Spark, as medians: a session, its first job, its first Python worker, its end.

Each round is a separate process; variants take turns, so that other load affects all alike.
Usage: python benchmarks/startup.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("session", "first job", "first Python worker", "ended", "CPU seconds")
PROGRAM = """
import json, os, resource, sys, time
began = time.monotonic()
marks = []
def mark():
    marks.append(time.monotonic() - began)
def identity(batches):
    yield from batches
conf = {"spark.driver.memory": "1g", "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": os.environ.get("JAVA_EXTRA", "")}
if os.environ.get("STOCK"):
    from pyspark.sql import SparkSession
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    def stop():
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
else:
    from shared.spark.session import SessionStarter
    from shared.spark.conf import SparkSettings
    starter = SessionStarter(SparkSettings(master="local[2]", conf=conf))
    starter.start()
    spark = starter.get()
    stop = starter.stop
mark()
spark.range(1).collect(); mark()
spark.range(100).mapInArrow(identity, "id long").collect(); mark()
stop(); mark()
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
marks.append(sum(one.ru_utime + one.ru_stime for one in used))
print(json.dumps(marks))
"""
VARIANTS: dict[str, dict[str, str]] = {
    "pyspark's own launcher": {"STOCK": "1"},
    "ours, no class archive": {"SINGER_SPARK_CLASS_ARCHIVE": "off"},
    "ours": {},
    "ours, C1 compiler only": {"JAVA_EXTRA": "-XX:TieredStopAtLevel=1"},
    "ours, G1 collector": {"JAVA_EXTRA": "-XX:+UseG1GC"},
    "ours, wheel, no archive": {"JAVA_HOME": "", "PATH": os.environ.get("NO_JAVA_PATH", "/none")},
}


def one_round(variant: dict[str, str]) -> list[float]:
    """Return seconds since the start, per stage, and the CPU time of all processes."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variant}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        sys.exit(ended.stderr)
    marks: list[float] = json.loads(ended.stdout.splitlines()[-1])
    return marks


def main(rounds: int) -> None:
    """Print one line per variant."""
    subprocess.run([sys.executable, "-m", "shared.spark.make_class_archive"], cwd=ROOT, check=False)
    results: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name, variant in VARIANTS.items():
            results[name].append(one_round(variant))
    print(f"{'median of ' + str(rounds):28}" + "".join(f"{stage:>21}" for stage in STAGES))
    for name, measured in results.items():
        medians = [statistics.median(column) for column in zip(*measured, strict=True)]
        print(f"{name:28}" + "".join(f"{value:21.2f}" for value in medians))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
