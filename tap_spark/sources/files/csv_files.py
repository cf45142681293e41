"""CSV: columns read as text, named by the header, with types that keep every value.

Why beside Arrow's CSV: options and dialects of Spark's reader, and files of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.settings.texts import quoted
from shared.storage.access import size_of
from shared.storage.urls import shown
from tap_spark.sources.files.csv_blocks import CsvReader, names_by_schema, unique_names
from tap_spark.sources.files.file_source import (
    PERMISSIVE,
    corrupt_options,
    parse_flat_ddl,
    partition_value,
)
from tap_spark.sources.files.line_reader import LineRules, Quotes
from tap_spark.sources.files.resumable_files import INSPECTION_THREADS
from tap_spark.sources.files.text_formats import OTHER_COLUMNS, TextFileSource
from tap_spark.sources.files.text_types import (
    PARSING,
    TIMES,
    exact_casts,
    infer_types,
)
from tap_spark.sources.frame_helpers import CORRUPT, FILE, col, file_of, without_corrupt
from tap_spark.sources.source_failures import source_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


RAGGED = "it has too few or too many values for its columns; check the options 'sep', 'quote', \
'escape' and 'multiLine'"
NO_FILES = "no file with content was found (names with '.' or '_' at the start do not count)"
FLOAT_WORDS = {"nanValue": "NaN", "positiveInf": "Infinity", "negativeInf": "-Infinity"}


@dataclass(frozen=True)
class CsvLayout:
    """The columns of the files.

    Attributes:
        header: The header line; None without one.
        names: Unique column names, by position.
        partitions: Columns that Spark reads from `name=value` folders.
        file: The file that they are of.
    """

    header: tuple[str, ...] | None
    names: tuple[str, ...]
    partitions: tuple[T.StructField, ...] = ()
    file: str = ""

    @property
    def columns(self) -> list[str]:
        """Return all column names."""
        return [*self.names, *(field.name for field in self.partitions)]


_OF_FILES = (
    *("header", "multiline", "inferschema", "enforceschema", "encoding", "charset", "linesep"),
    "mode",
)
"""Options that do not count for a single record."""


class CsvSource(CsvReader, TextFileSource):
    """CSV files of one layout."""

    _layout: CsvLayout | None = None

    @cached_property
    def header(self) -> bool:
        """Return whether each file starts with a header line."""
        return self.flag("header", default=True)

    def schema(self, spark: SparkSession) -> T.StructType:
        """See `Source.schema`."""
        layout = self.layout(spark)
        if self.stream.schema:
            return parse_flat_ddl(self, spark)
        if not layout.names:
            what = "the files have no lines" if self.listed(spark, self.paths) != [] else NO_FILES
            raise self.error(what, "set 'schema', or check 'path'", self.shown_path())
        if self.flag("inferSchema"):
            reader = spark.read.options(**self._options() | {"header": str(self.header).lower()})
            types = [field.dataType for field in reader.csv(self.paths).schema.fields]
        else:
            struct = T.StructType([T.StructField(name, T.StringType()) for name in layout.names])
            text = self.finished_rows(spark, self.paths, struct)
            types = [*infer_types(text, layout.names)]
            types += [field.dataType for field in layout.partitions]
        fields = zip(layout.columns, types, strict=True)
        return T.StructType([T.StructField(name, dtype) for name, dtype in fields])

    def rows_of_lines(self, lines: DataFrame, struct: T.StructType, urls: list[str]) -> DataFrame:
        spark = lines.sparkSession
        layout = self.layout(spark)
        if not layout.names:
            return spark.createDataFrame([], struct)
        fields = self._fields(layout, struct)
        mode = self.option("mode").upper()
        checked = mode in ("", "DROPMALFORMED")
        if checked:
            fields.append(T.StructField(CORRUPT, T.StringType()))
        ddl = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in fields)
        options = {k: v for k, v in self._options().items() if k.lower() not in _OF_FILES}
        options |= corrupt_options(self) if mode != "DROPMALFORMED" else PERMISSIVE
        options["multiLine"] = str(self._spans_lines).lower()
        parsed = F.from_csv("value", F.lit(ddl), options)
        folders = [partition_value(field, urls) for field in layout.partitions]
        # With an alias, Spark would parse again for the filter on unreadable rows.
        columns = (file_of(urls).alias(FILE), *folders, F.inline(F.array(parsed)))
        frame = self.text_lines(lines).select(*columns)
        if mode == "DROPMALFORMED":
            frame = frame.filter(col(CORRUPT).isNull()).drop(CORRUPT)
        elif checked:
            frame = without_corrupt(frame, RAGGED, col(FILE))
        frame = self._with_float_words(frame, struct)
        return exact_casts(frame, struct, col(FILE), by_value=self.is_typed)

    def text_rules(self) -> LineRules:
        return LineRules(
            header=self.header,
            comment=self.option("comment").encode(),
            encoding=self.text_encoding,
            quotes=self._quotes,
            line_end=self._line_end,
        )

    @property
    def _line_end(self) -> bytes:
        line_end = self.option("lineSep").encode()
        return b"" if line_end in (b"\n", b"\r\n", b"\r") else line_end

    @property
    def _spans_lines(self) -> bool:
        return self.flag("multiLine")

    @property
    def _quotes(self) -> Quotes | None:
        """Return how values are quoted; None if lines end inside of them all the same."""
        quote = self.option("quote", '"').encode()
        if not quote or (self._line_end and not self._spans_lines):
            return None
        escape = self.option("escape", quote.decode()).encode() or quote
        comment = self.option("comment").encode()
        return Quotes(self._separator.encode(), quote, escape, self._spans_lines, comment)

    @property
    def _separator(self) -> str:
        separator = self.option("sep") or self.option("delimiter") or ","
        return separator.replace("\\t", "\t")

    def present_columns(self, spark: SparkSession) -> list[str] | None:
        return self.layout(spark).columns or None

    def check_headers(self, files: Sequence[str]) -> None:
        """Raise an error if a file has another header, whose values would get the wrong names."""
        layout = self._layout or self.layout(self._spark)
        if layout.header is None:
            return
        with ThreadPoolExecutor(INSPECTION_THREADS) as pool:
            for url, header in zip(files, pool.map(self._row_of, files), strict=True):
                if header is not None and header != layout.header:
                    raise self.error(
                        f"the header {', '.join(header)} differs from that of the other files, "
                        f"such as '{shown(layout.file)}': {', '.join(layout.header)}",
                        hint=OTHER_COLUMNS,
                        file=url,
                    )

    def layout(self, spark: SparkSession) -> CsvLayout:
        """Return the columns, from the first line; none if there is no line."""
        if self._layout is None:
            self._layout = self._read_layout(spark)
        return self._layout

    def _read_layout(self, spark: SparkSession) -> CsvLayout:
        files = self.listed(spark, self.paths)
        if files is None:
            first_row = self._first_by_spark(spark)
        else:
            urls = (file.url for file in files if self.waiting([file.url]).get(file.url) != 0)
            rows = ((url, self._row_of(url)) for url in urls)
            first_row = next(((url, row) for url, row in rows if row), None)
        if first_row is None:
            return CsvLayout(None, ())
        url, first = first_row
        header = first if self.header else None
        names = unique_names(first if self.header else [None] * len(first))
        return CsvLayout(header, self._given_names(spark, names), self.partitions(spark), url)

    def _first_by_spark(self, spark: SparkSession) -> tuple[str, tuple[str, ...]] | None:
        """Return the first line that Spark finds in files that only Spark can open."""
        lines, names = self.lines_by_spark(spark, self.paths, header=False)
        for row in self.text_lines(lines).head(1):
            record = row["value"].encode()
            self.spark_header = record if self.header else b""
            return names[row["file"]], self._values(record)
        return None

    def _row_of(self, url: str) -> tuple[str, ...] | None:
        """Return the values of the first line of a file; None without one."""
        try:
            record = self.first_record(url, size_of(url))
        except RuntimeError as error:
            raise source_error(self.stream.name, error) from error
        return None if record is None else self._values(record)

    def _values(self, record: bytes) -> tuple[str, ...]:
        quotes = self._quotes or Quotes(self._separator.encode(), b"\x00", b"\x00")
        values = quotes.values(record.decode())
        if self.flag("ignoreLeadingWhiteSpace"):
            values = [value.lstrip() for value in values]
        if self.flag("ignoreTrailingWhiteSpace"):
            values = [value.rstrip() for value in values]
        return tuple(values)

    def _given_names(self, spark: SparkSession, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return names by position as in `schema`, unless the header has these names."""
        if not self.stream.schema:
            return names
        declared = parse_flat_ddl(self, spark).names
        moved = [
            name
            for place, name in enumerate(declared)
            if name.lower() in [other.lower() for other in names]
            and (place >= len(names) or names[place].lower() != name.lower())
        ]
        chosen = names_by_schema(names, declared)
        if chosen == names or (chosen and not moved):
            return chosen
        if chosen:
            raise self.error(
                f"'schema' has {', '.join(moved)} at another place than the header: "
                f"{', '.join(names)}",
                hint="name columns of the header, or give every column another name, in order",
            )
        raise self.error(
            f"'schema' has {len(declared)} columns, the files {len(names)}: {', '.join(names)}",
            hint="name columns of the header, or every column, in order",
        )

    def _options(self) -> dict[str, str]:
        return self.options(columnPruning="false", escape=self.option("quote", '"'))

    def _fields(self, layout: CsvLayout, struct: T.StructType) -> list[T.StructField]:
        """Return the data columns for Spark's parser: text, or times whose form users give."""
        has_form = any(self.option(name) for name in PARSING)
        types = {
            field.name: field.dataType
            for field in struct.fields
            if self.is_typed and has_form and isinstance(field.dataType, TIMES)
        }
        return [T.StructField(name, types.get(name, T.StringType())) for name in layout.names]

    def _with_float_words(self, frame: DataFrame, struct: T.StructType) -> DataFrame:
        """Return the frame with the words of the options for NaN and infinities as Spark's own."""
        words = {self.option(name): word for name, word in FLOAT_WORDS.items() if self.option(name)}
        floats = [
            f.name for f in struct.fields if isinstance(f.dataType, (T.DoubleType, T.FloatType))
        ]
        if not words or not floats or not self.is_typed:
            return frame
        changed = {}
        for name in floats:
            value = col(name)
            for spelling, word in words.items():
                value = F.when(col(name) == spelling, F.lit(word)).otherwise(value)
            changed[name] = value
        return frame.select(*(changed.get(name, col(name)).alias(name) for name in frame.columns))
