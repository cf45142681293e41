"""The reference: a plain script that reads a table into Parquet, or loads Parquet."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[*]")
        .appName("plain")
        .config("spark.jars.packages", given["package"])
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    if "read" in given:
        writer = spark.read.parquet(given["read"]).write.format("jdbc").mode("append")
        writer.options(**given["options"]).save()
    else:
        reader = spark.read.format("jdbc").options(**given["options"])
        reader.load().write.mode("overwrite").parquet(given["path"])
    spark.stop()


if __name__ == "__main__":
    main()
