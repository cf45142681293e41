"""The references of `cluster_scaling`: plain PySpark on a cluster, by Spark's own files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyarrow import parquet
from pyspark.sql import SparkSession

from shared.formats.json_schema import spark_to_json_schema
from shared.spark.packages import with_baked
from shared.spark.s3a import CLASS, PACKAGE
from shared.storage.files import open_output
from tap_spark.sources.spark_tables import generated_frame


def session(master: str, conf: dict[str, str]) -> SparkSession:
    """Start Spark with S3A, as its documentation says."""
    hadoop = {
        "spark.jars.packages": PACKAGE,
        "spark.hadoop.fs.s3.impl": CLASS,
        "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_DEFAULT_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    builder = SparkSession.builder.master(master).appName("plain")
    for name, value in with_baked(conf | hadoop, os.environ).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def copy(spark: SparkSession, source: str, out: str) -> None:
    """Copy a table of Parquet files."""
    spark.read.parquet(source).write.parquet(out)


def copy_lines(spark: SparkSession, source: str, out: str) -> None:
    """Make a table of files of JSON lines."""
    one = spark.read.parquet(f"{source.replace('jsonl', 'parquet')}-source/one.parquet")
    spark.read.schema(one.schema).json(source).write.parquet(out)


def copy_streams(spark: SparkSession, count: str, out: str) -> None:
    """Make a table of each of many tiny CSV files."""
    for number in range(int(count)):
        frame = spark.read.csv(f"s3://batches/tiny/{number}.csv", header=True, inferSchema=True)
        frame.write.parquet(f"{out}/s{number}")


def make(spark: SparkSession, rows: str, columns: str, files: str, out: str) -> None:
    """Make the table that is copied."""
    frame = generated_frame(spark, int(rows), int(columns))
    frame.repartition(int(files)).write.parquet(out)


def make_small(spark: SparkSession, rows: str, columns: str, root: str, schema: str) -> None:
    """Make one small batch file of each format, and its JSON Schema."""
    frame = generated_frame(spark, int(rows), int(columns))
    Path(schema).write_text(json.dumps(spark_to_json_schema(frame.schema)))
    with open_output(f"{root}/small-parquet-source/one.parquet") as sink:
        parquet.write_table(frame.toArrow(), sink)
    with open_output(f"{root}/small-jsonl-source/one.jsonl.gz", "gzip") as sink:
        sink.write("".join(row + "\n" for row in frame.toJSON().collect()).encode())


JOBS: dict[str, Callable[..., None]] = {
    "parquet": copy, "jsonl": copy_lines, "streams": copy_streams, "make": make, "small": make_small
}  # fmt: skip


def main() -> None:
    master, conf, job, *arguments = sys.argv[1:]
    spark = session(master, json.loads(conf))
    JOBS[job](spark, *arguments)
    spark.stop()


if __name__ == "__main__":
    main()
