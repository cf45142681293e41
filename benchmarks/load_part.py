"""The loader alone: batch files to Parquet, compared with Spark's own reader and writer.

Run as `python -m benchmarks.load_part [--rows N] [--columns N] [--runs N]`. One warm session and
the same files for both; the result is the median of the ratios.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shared.engine.engine import Engine
from shared.formats.file_formats import Encoding
from shared.formats.json_schema import spark_to_json_schema
from shared.spark.conf import SparkSettings
from shared.spark.session import start_session
from tap_spark.sources.spark_tables import generated_frame
from target_spark.config import target_config
from target_spark.core.load_plans import Batch, InputFile, StreamSchema
from target_spark.load.loader import Loader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 10


def seconds(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def load(spark: SparkSession, frame: DataFrame, folder: Path, format_: str, token: str) -> None:
    schema = StreamSchema("rows", spark_to_json_schema(frame.schema))
    paths = sorted(path for path in (folder / format_).iterdir() if path.name.startswith("part-"))
    encoding = Encoding("jsonl" if format_ == "json" else format_)
    batch = Batch(schema, tuple(InputFile(str(path), encoding) for path in paths), token)
    loader = Loader(target_config({"path": str(folder / "ours")}), Engine.of(lambda: spark))
    loader.commit(batch, [loader.convert(batch)])


def by_spark(spark: SparkSession, frame: DataFrame, folder: Path, format_: str) -> None:
    reader = spark.read.schema(frame.schema).format(format_)
    reader.load(str(folder / format_)).write.mode("overwrite").parquet(str(folder / "theirs"))


def compare(spark: SparkSession, folder: Path, rows: int, columns: int, runs: int) -> None:
    frame = generated_frame(spark, rows, columns)
    stamps = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx"}
    for format_ in ("json", "parquet"):
        frame.repartition(FILES).write.options(**stamps).format(format_).save(str(folder / format_))
        ratios = []
        for number in range(runs + 1):
            shutil.rmtree(folder / "ours", ignore_errors=True)
            ours = seconds(lambda f=format_, n=number: load(spark, frame, folder, f, f"run{n}"))
            theirs = seconds(lambda f=format_: by_spark(spark, frame, folder, f))
            note = "warm-up " if number == 0 else ""
            print(f"  {format_}: {note}ours {ours:.1f} s, Spark {theirs:.1f} s", flush=True)
            ratios += [ours / theirs] if number else []
        print(f"{format_} to Parquet: median ratio ours / Spark {statistics.median(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=150)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-load-"))
    spark = start_session(SparkSettings(app_name="load-part"))
    try:
        compare(spark, folder, chosen.rows, chosen.columns, chosen.runs)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
