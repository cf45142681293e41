"""Fixed-width files: each column has the same characters of every line."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from tap_spark.sources.declared.fixed_width import FixedColumn
from tap_spark.sources.files.file_source import parse_flat_ddl
from tap_spark.sources.files.inference import exact_casts, infer_types
from tap_spark.sources.files.line_reader import LineRules
from tap_spark.sources.files.text_source import TextFileSource
from tap_spark.sources.frame_helpers import FILE, col, fail_job, file_of, missing_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHORT = "a line ends before its last column begins"
SHORT_HINT = "correct 'columns', or set the option 'mode' to PERMISSIVE to read nulls there"
LINE = "value"


class FixedWidthSource(TextFileSource):
    """Lines split by the setting `columns`; values are trimmed, and empty values are null."""

    @cached_property
    def columns(self) -> tuple[FixedColumn, ...]:
        """Return the positions of the columns."""
        columns: tuple[FixedColumn, ...] = self.stream.own["columns"]
        return columns

    @cached_property
    def header(self) -> bool:
        """Return whether each file starts with a header line."""
        return self.flag("header")

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        names = [column.name for column in self.columns]
        if self.stream.schema:
            struct = parse_flat_ddl(self, spark)
            unknown = missing_columns(struct.names, names)
            if unknown:
                raise self.error(
                    f"'schema' has columns that 'columns' does not have: {', '.join(unknown)}"
                )
            return struct
        text = StructType([StructField(name, StringType()) for name in names])
        types = infer_types(self.finished_rows(spark, self.paths, text), names)
        return StructType([StructField(n, t) for n, t in zip(names, types, strict=True)])

    def rows_of_lines(self, lines: DataFrame, struct: StructType, urls: list[str]) -> DataFrame:
        """See `FileSource.rows_of_lines`."""
        lines = lines.select(col("value").cast("string").alias(LINE), file_of(urls).alias(FILE))
        comment = self.option("comment")
        if comment:
            lines = lines.filter(~col(LINE).startswith(comment))
        return self._cut(lines, struct)

    def text_rules(self) -> LineRules:
        """See `TextFileSource.text_rules`."""
        return LineRules(
            header=self.header,
            comment=self.option("comment").encode(),
            encoding=self.text_encoding,
            line_end=self.option("lineSep").encode(),
        )

    def present_columns(self, spark: SparkSession) -> list[str] | None:  # noqa: ARG002
        """See `FileSource.present_columns`."""
        return [column.name for column in self.columns]

    def _cut(self, lines: DataFrame, struct: StructType) -> DataFrame:
        lines = lines.filter(F.trim(LINE) != "")
        if self.option("mode").upper() != "PERMISSIVE":
            last = max(column.start for column in self.columns)
            failure = fail_job(SHORT, value=col(LINE), file=col(FILE), hint=SHORT_HINT)
            whole = F.length(LINE) >= last
            lines = lines.filter(F.when(whole, F.lit(True)).otherwise(failure.cast("boolean")))
        places = {column.name: column for column in self.columns}
        values = []
        for field in struct.fields:
            place = places[field.name]
            text = F.trim(F.substring(LINE, place.start, place.length))
            values.append(F.when(text != "", text).alias(field.name))
        cut = lines.select(col(FILE), *values)
        return exact_casts(cut, struct, col(FILE), by_value=bool(self.stream.schema))
