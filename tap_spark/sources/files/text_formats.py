"""Formats of text, read as lines by the same rules for each method: plain, of fixed width, XML."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.spark_types import T
from shared.singer.platform import arrow_in_task
from tap_spark.sources.files import paths
from tap_spark.sources.files.file_source import (
    FileSource,
    corrupt_fields,
    corrupt_options,
    parse_ddl,
    parse_flat_ddl,
    partition_value,
)
from tap_spark.sources.files.line_reader import (
    LINES_SCHEMA,
    LineRules,
    decoded_lines,
    first_record,
    without_header,
)
from tap_spark.sources.files.resumable_files import part_ranges
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
from tap_spark.sources.source_declaration import FILES
from tap_spark.sources.source_failures import row_failure
from tap_spark.state.stream_plans import StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


HEAD_LINES = 64 * 1024
OTHER_COLUMNS = "read files with other columns as a stream of their own"


class TextFileSource(FileSource):
    """Files of text.

    Attributes:
        spark_header: The header of files that only Spark can open.
    """

    spark_header: bytes = b""

    @abstractmethod
    def text_rules(self) -> LineRules:
        """Return how the text of a whole file is split."""

    def line_rules(self) -> LineRules | None:
        rules = self.text_rules()
        return rules if rules.in_parts else None

    def rows(self, spark: SparkSession, urls: list[str], struct: T.StructType) -> DataFrame:
        return self.finished_rows(spark, urls, struct)

    def finished_rows(
        self,
        spark: SparkSession,
        urls: list[str],
        struct: T.StructType,
        plan: StreamPlan | None = None,
    ) -> DataFrame:
        files = self.listed(spark, urls)
        if files is None:
            lines, names = self.lines_by_spark(spark, urls, header=self.text_rules().header)
            return self.rows_of_lines(lines, struct, names)
        ends = self.waiting([file.url for file in files], plan)
        parts = [(f.url, 0, end) for f in files if (end := ends.get(f.url, f.size))]
        present = [url for url, _, _ in parts]
        kinds = self.kinds(present)
        self.check_headers(present)
        return self.rows_of_parts(spark, parts, self.text_rules(), struct, kinds)

    def first_record(self, url: str, size: int) -> bytes | None:
        """Return the first record of a file that is neither blank nor a comment, as UTF-8."""
        rules = replace(self.text_rules(), header=False)
        for limit in sorted({min(HEAD_LINES, size), size} - {0}):
            (whole,) = part_ranges(0, (url, 0, size), rules, self.kind_of(url))[:1]
            record = first_record(replace(whole, stop=limit))
            if record is not None:
                return record
        return None

    def lines_by_spark(
        self, spark: SparkSession, urls: Iterable[str], *, header: bool
    ) -> tuple[DataFrame, list[str]]:
        """Return the lines of files that only Spark can open, and the files."""
        names = {option.name.lower() for option in FILES} | {"linesep"}
        options = {k: v for k, v in self.options().items() if k.lower() in names}
        frame = spark.read.options(**options).text(list(urls))
        files = [paths.from_spark(url) for url in frame.inputFiles()]
        rules = replace(self.text_rules(), header=header)
        if not rules.in_parts and not rules.line_end:
            raise self.error(
                "values with line ends, and text in UTF-16 or UTF-32, are read by Python, which "
                "cannot open the files",
                "install the fsspec package of their storage, with credentials in the environment",
                self.shown_path(),
            )
        # mapInArrow takes names for expressions, dots and all.
        selected = frame.select(
            F.col("value").cast("binary").alias("value"),
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.file_block_start").cast("long").alias("start"),
        )
        numbers = {file: number for number, file in enumerate(files)}
        lines = selected.mapInArrow(_numbered(numbers, rules, self.spark_header), LINES_SCHEMA)
        return lines, files


def _check_header(actual: bytes, expected: bytes, file: str) -> None:
    if actual != expected:
        header, other = (text.decode(errors="replace") for text in (actual, expected))
        problem = f"the header {header} differs from that of the other files: {other}"
        raise RuntimeError(row_failure(problem=problem, file=file, hint=OTHER_COLUMNS))


def _numbered(
    numbers: Mapping[str, int], rules: LineRules, expected: bytes
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return a function for `mapInArrow`: lines of Spark with their files in, without headers out.

    Spark reads each part of a file in its order. A header must be the expected one, if any.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        last, header = ("", -1), False
        for batch in batches:
            start = 0
            while start < len(batch):
                place = (batch.column(1)[start].as_py(), batch.column(2)[start].as_py())
                rest = batch.slice(start)
                same = pc.and_(
                    pc.equal(rest.column(1), place[0]), pc.equal(rest.column(2), place[1])
                )
                count = pc.index(same, False).as_py()
                count = len(rest) if count < 0 else count
                header = rules.header and not place[1] if place != last else header
                last = place
                lines = decoded_lines(rest.column(0).slice(0, count), place[0], rules)
                kept, still = without_header(lines, rules.comment, header=header)
                if header and not still and expected:
                    first = lines[len(lines) - len(kept) - 1].as_py()
                    _check_header(first, expected, place[0])
                header = still
                number = pa.scalar(numbers[paths.from_spark(place[0])], pa.int32())
                yield pa.RecordBatch.from_arrays(
                    [kept, pa.repeat(number, len(kept))], ["value", "file"]
                )
                start += count

    return read


VALUE = "value"


class TextSource(TextFileSource):
    """Text files, one column `value` with a line each, or with a file each."""

    def schema(self, spark: SparkSession) -> T.StructType:
        """See `Source.schema`."""
        return T.StructType([T.StructField(VALUE, T.StringType()), *self.partitions(spark)])

    def rows_of_lines(self, lines: DataFrame, struct: T.StructType, urls: list[str]) -> DataFrame:
        folders = [partition_value(f, urls) for f in struct.fields if f.name != VALUE]
        return lines.select(col(VALUE).cast("string").alias(VALUE), *folders)

    def text_rules(self) -> LineRules:
        # No text holds this byte, so that a whole file is one line.
        end = b"\xff" if self.flag("wholetext") else self.option("lineSep").encode()
        return LineRules(encoding=self.text_encoding, line_end=end)


SHORT = "a line ends before its last column begins"
SHORT_HINT = "correct 'columns', or set the option 'mode' to PERMISSIVE to read nulls there"


class FixedWidthSource(TextFileSource):
    """Lines split by the setting `columns`; values are trimmed, and empty values are null."""

    @cached_property
    def columns(self) -> tuple[FixedColumn, ...]:
        """Return the positions of the columns."""
        columns: tuple[FixedColumn, ...] = self.stream.own["columns"]
        return columns

    def schema(self, spark: SparkSession) -> T.StructType:
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
        text = T.StructType([T.StructField(name, T.StringType()) for name in names])
        types = infer_types(self.finished_rows(spark, self.paths, text), names)
        return T.StructType([T.StructField(n, t) for n, t in zip(names, types, strict=True)])

    def partitions(self, spark: SparkSession) -> tuple[T.StructField, ...]:  # noqa: ARG002
        """Return none: all columns are parts of lines."""
        return ()

    def rows_of_lines(self, lines: DataFrame, struct: T.StructType, urls: list[str]) -> DataFrame:
        lines = self.text_lines(lines).select(VALUE, file_of(urls).alias(FILE))
        if self.option("mode").upper() != "PERMISSIVE":
            last = max(column.start for column in self.columns)
            failure = fail_job(SHORT, value=col(VALUE), file=col(FILE), hint=SHORT_HINT)
            whole = F.length(VALUE) >= last
            lines = lines.filter(F.when(whole, F.lit(True)).otherwise(failure.cast("boolean")))
        places = {column.name: column for column in self.columns}
        values = []
        for field in struct.fields:
            place = places[field.name]
            text = F.trim(F.substring(VALUE, place.start, place.length))
            values.append(F.when(text != "", text).alias(field.name))
        cut = lines.select(col(FILE), *values)
        return exact_casts(cut, struct, col(FILE), by_value=bool(self.stream.schema))

    def text_rules(self) -> LineRules:
        return LineRules(
            header=self.flag("header"),
            comment=self.option("comment").encode(),
            encoding=self.text_encoding,
            line_end=self.option("lineSep").encode(),
        )

    def present_columns(self, spark: SparkSession) -> list[str] | None:  # noqa: ARG002
        return [column.name for column in self.columns]


WRONG = "it is not well-formed, or has a value of another type than 'schema'"
_SHAPED = (T.StructType, T.ArrayType, T.MapType, T.VariantType)


class XmlSource(FileSource):
    """XML files.

    Types of top-level values are inferred as for CSV; nested values stay text unless the setting
    `schema` or the option `inferSchema` sets their types.
    """

    def schema(self, spark: SparkSession) -> T.StructType:
        """See `Source.schema`."""
        if self.stream.schema:
            return parse_ddl(self, spark)
        untyped = {} if self.option("inferSchema") else {"inferSchema": "false"}
        struct = self._reader(spark).options(**untyped).xml(self.paths).schema
        in_folders = {field.name: field for field in self.partitions(spark)}
        fields = [in_folders.get(f.name, f) for f in struct.fields if f.name != CORRUPT]
        if not fields:
            tag = self.option("rowTag")
            raise self.error(f"the files have no element <{tag}>", "check 'rowTag'")
        widened: T.StructType = widen_inferred(T.StructType(fields))
        return widened if self.flag("inferSchema") else self._typed(spark, widened)

    def rows(self, spark: SparkSession, urls: list[str], struct: T.StructType) -> DataFrame:
        fields = (T.StructField(f.name, self._parsed(f.dataType), True) for f in struct.fields)
        kind = corrupt_fields(self, fields)
        frame = without_corrupt(self._reader(spark).schema(kind).xml(urls), WRONG)
        return exact_casts(frame, struct, F.input_file_name(), by_value=self.is_typed)

    def _typed(self, spark: SparkSession, struct: T.StructType) -> T.StructType:
        """Return the struct with types for top-level text that keep every value as written."""
        in_folders = {field.name for field in self.partitions(spark)}
        texts = (f.name for f in struct.fields if isinstance(f.dataType, T.StringType))
        names = [name for name in texts if name not in in_folders]
        inferred = infer_types(self.rows(spark, self.paths, struct), names) if names else []
        types = dict(zip(names, inferred, strict=True))
        return T.StructType(
            [T.StructField(f.name, types.get(f.name, f.dataType), True) for f in struct.fields]
        )

    def _parsed(self, dtype: T.DataType) -> T.DataType:
        """Return the type for Spark's parser: text, unless it is one whose values it keeps."""
        has_form = self.is_typed and any(self.option(name) for name in PARSING)
        by_spark: tuple[type[T.DataType], ...] = (
            (T.IntegralType, T.BooleanType) if self.is_typed else ()
        )
        by_spark += TIMES if has_form else ()
        return dtype if isinstance(dtype, (*_SHAPED, *by_spark)) else T.StringType()

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.options(**self.options(**corrupt_options(self)))
