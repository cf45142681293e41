"""Other formats of text: plain lines, columns of fixed width, XML."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from shared.formats.spark_types import T
from tap_spark.sources.files.file_source import (
    FileSource,
    corrupt_options,
    parse_ddl,
    parse_flat_ddl,
    partition_value,
)
from tap_spark.sources.files.line_reader import LineRules
from tap_spark.sources.files.text_source import TextFileSource
from tap_spark.sources.files.text_types import PARSING, TIMES, exact_casts, infer_types
from tap_spark.sources.formats import FixedColumn
from tap_spark.sources.frame_helpers import (
    CORRUPT,
    FILE,
    col,
    fail_job,
    file_of,
    missing_columns,
    widen_inferred,
    without_corrupt,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


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


WRONG = "it is not well-formed, or has a value of another type than 'schema'"
_SHAPED = (StructType, ArrayType, MapType, T.VariantType)


class XmlSource(FileSource):
    """XML files.

    Types of top-level values are inferred as for CSV; nested values stay text unless the setting
    `schema` or the option `inferSchema` sets their types.
    """

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        if self.stream.schema:
            return parse_ddl(self, spark)
        struct = self._reader(spark).options(**self._inference()).xml(self.paths).schema
        fields = [field for field in struct.fields if field.name != CORRUPT]
        if not fields:
            tag = self.option("rowTag")
            raise self.error(f"the files have no element <{tag}>", "check 'rowTag'")
        struct = StructType([StructField(f.name, widen_inferred(f.dataType), True) for f in fields])
        if self.flag("inferSchema"):
            return struct
        return self._typed(spark, struct)

    def rows(self, spark: SparkSession, urls: list[str], struct: StructType) -> DataFrame:
        """See `FileSource.rows`."""
        fields = [StructField(f.name, self._parsed(f.dataType), True) for f in struct.fields]
        reader = self._reader(spark)
        here = F.input_file_name()
        if self.option("mode"):
            frame = reader.schema(StructType(fields)).xml(urls)
            return exact_casts(frame, struct, here, by_value=self._is_typed)
        fields.append(StructField(CORRUPT, StringType()))
        frame = reader.schema(StructType(fields)).xml(urls)
        frame = without_corrupt(frame, WRONG)
        return exact_casts(frame, struct, here, by_value=self._is_typed)

    def _typed(self, spark: SparkSession, struct: StructType) -> StructType:
        """Return the struct with types for top-level text that keep every value as written."""
        names = [f.name for f in struct.fields if isinstance(f.dataType, StringType)]
        inferred = infer_types(self.rows(spark, self.paths, struct), names) if names else []
        types = dict(zip(names, inferred, strict=True))
        return StructType(
            [StructField(f.name, types.get(f.name, f.dataType), True) for f in struct.fields]
        )

    def _parsed(self, dtype: DataType) -> DataType:
        """Return the type for Spark's parser: text, unless it is one whose values it keeps."""
        has_form = self._is_typed and any(self.option(name) for name in PARSING)
        by_spark: tuple[type[DataType], ...] = (IntegralType, BooleanType) if self._is_typed else ()
        by_spark += TIMES if has_form else ()
        return dtype if isinstance(dtype, (*_SHAPED, *by_spark)) else StringType()

    @property
    def _is_typed(self) -> bool:
        return bool(self.stream.schema) or self.flag("inferSchema")

    def _inference(self) -> dict[str, str]:
        return {} if self.option("inferSchema") else {"inferSchema": "false"}

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.options(**self.options(**corrupt_options(self, CORRUPT)))
