"""Files of plain text: one column `value` with a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StringType, StructField, StructType

from tap_spark.sources.files.folder_columns import partition_value
from tap_spark.sources.files.line_reader import LineRules
from tap_spark.sources.files.text_source import TextFileSource
from tap_spark.sources.frame_helpers import col

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE = "value"


class TextSource(TextFileSource):
    """Text files, one column `value` with a line each, or with a file each."""

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        return StructType([StructField(VALUE, StringType()), *self.partitions(spark)])

    def rows_of_lines(self, lines: DataFrame, struct: StructType, urls: list[str]) -> DataFrame:
        """See `FileSource.rows_of_lines`."""
        folders = [partition_value(f, urls) for f in struct.fields if f.name != VALUE]
        return lines.select(col(VALUE).cast("string").alias(VALUE), *folders)

    def text_rules(self) -> LineRules:
        """See `TextFileSource.text_rules`."""
        # No text holds this byte, so that a whole file is one line.
        end = b"\xff" if self.flag("wholetext") else self.option("lineSep").encode()
        return LineRules(encoding=self.text_encoding, line_end=end)
