"""The reference: a plain Spark script that creates or merges a table."""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

FORMATS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.plain": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.plain.type": "hadoop",
    },
}


def rows(spark: SparkSession, first: int, count: int, step: int = 1) -> DataFrame:
    """Return rows of ten columns with keys from `first` on, every `step` numbers."""
    number = F.col("id")
    return spark.range(first, first + count * step, step, 4).select(
        number,
        F.concat(F.lit("name "), F.md5(number.cast("string"))).alias("name"),
        (number % 1000).alias("code"),
        (number / 7).alias("rate"),
        (number % 3 == 0).alias("active"),
        F.timestamp_seconds(number + 1_600_000_000).alias("at"),
        F.sha1(number.cast("string")).alias("digest"),
        (number * 7919).alias("big"),
        F.repeat(F.lit("note "), (number % 8).cast("int")).alias("note"),
        F.lit(first).cast("bigint").alias("round"),
    )


def merge(spark: SparkSession, path: str, table: str, newest: bool) -> None:
    """Upsert the files of a folder; with `newest`, the last row of each key wins."""
    source = spark.read.parquet(path)
    if newest:
        # Iceberg rejects a source by `monotonically_increasing_id`, as that may change.
        place = F.struct("_metadata.file_path", "_metadata.row_index")
        order = Window.partitionBy("id").orderBy(F.desc(place))
        source = source.withColumn("n", F.row_number().over(order)).where("n = 1").drop("n")
    source.createOrReplaceTempView("source")
    spark.sql(
        f"MERGE INTO {table} t USING source s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def main() -> None:
    settings = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[*]").appName("plain")
    conf = {
        "spark.jars.packages": settings["package"],
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        **FORMATS[settings["format"]],
        **settings.get("conf", {}),
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if "make" in settings:
        for place in settings["make"]:
            frame = rows(spark, place["first"], place["count"], place.get("step", 1))
            if "path" in place:
                frame.write.parquet(place["path"])
            else:
                frame.writeTo(place["table"]).using(settings["format"]).create()
    else:
        merge(spark, settings["path"], settings["table"], settings["newest"])
    spark.stop()


if __name__ == "__main__":
    main()
