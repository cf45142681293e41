"""The reference: a plain PySpark script that writes the same frame."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from tap_spark.sources.spark_tables import generated_frame


def main() -> None:
    rows, columns, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    spark = SparkSession.builder.master("local[*]").appName("plain").getOrCreate()
    generated_frame(spark, rows, columns).write.mode("overwrite").parquet(path)
    spark.stop()


if __name__ == "__main__":
    main()
