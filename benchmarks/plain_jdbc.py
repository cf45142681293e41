"""The reference: a plain script that reads a table into Parquet, or loads Parquet."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    settings = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[*]")
        .appName("plain")
        .config("spark.jars.packages", settings["package"])
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    if "read" in settings:
        writer = spark.read.parquet(settings["read"]).write.format("jdbc").mode("append")
        writer.options(**settings["options"]).save()
    else:
        reader = spark.read.format("jdbc").options(**settings["options"])
        reader.load().write.mode("overwrite").parquet(settings["path"])
    spark.stop()


if __name__ == "__main__":
    main()
