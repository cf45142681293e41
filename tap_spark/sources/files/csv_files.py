"""CSV: columns read as text, named by the header, with types that keep every value."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, StructField, StructType

from shared.storage.files import open_random
from shared.storage.urls import local_path
from shared.types.arrow_types import struct_to_arrow
from tap_spark.sources.files import paths
from tap_spark.sources.files.csv_blocks import HELD_BYTES, LARGE_BYTES, CsvBlocks, csv_blocks
from tap_spark.sources.files.file_inspector import StorageFileInspector
from tap_spark.sources.files.file_source import (
    SMALL_BYTES,
    UTF8,
    FileSource,
    corrupt_options,
    parse_ddl,
)
from tap_spark.sources.files.inference import decide, exact_casts, infer_types
from tap_spark.sources.files.line_reader import LineRange
from tap_spark.sources.files.plain_csv import (
    HEADER_BYTES,
    PlainCsv,
    plain_csv,
)
from tap_spark.sources.files.resumable_files import LineRules, NewData
from tap_spark.sources.files.simple_ddl import simple_ddl
from tap_spark.sources.files.text_records import records_of
from tap_spark.sources.files.typed_columns import typed_column
from tap_spark.sources.frame_helpers import (
    CORRUPT,
    FILE,
    col,
    file_of,
    quoted,
    without_corrupt,
)
from tap_spark.state.stream_plans import DriverBlocks, RowForm, StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

RAGGED = "it has too few or too many columns, or a value of another type; check the options \
'quote', 'escape' and 'multiLine'"
HEAD_BYTES = 1024 * 1024


@dataclass(frozen=True)
class CsvLayout:
    """The columns of the files.

    Attributes:
        header: The header line; None without one.
        names: Unique column names, by position.
        partitions: Columns that Spark reads from `name=value` folders.
    """

    header: tuple[str, ...] | None
    names: tuple[str, ...]
    partitions: tuple[StructField, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Return all column names."""
        return [*self.names, *(field.name for field in self.partitions)]


def unique_names(header: Sequence[str | None]) -> tuple[str, ...]:
    """Return the columns of a header: empty names become `_cN`, repeated ones get a number.

    Names that differ only by case count as repeated: they are the same to Spark.
    """
    taken = {name.lower() for name in header if name}
    names: list[str] = []
    seen: set[str] = set()
    for position, title in enumerate(header):
        name = title or f"_c{position}"
        base, number = name, 2
        while name.lower() in seen or (name != base and name.lower() in taken):
            name, number = f"{base}_{number}", number + 1
        seen.add(name.lower())
        names.append(name)
    return tuple(names)


def named_as_given(names: tuple[str, ...], given: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of columns if `schema` has `given`; None if the two do not fit."""
    if set(given) <= set(names):
        return names
    return tuple(given) if len(given) == len(names) else None


def _names(
    header: tuple[str, ...] | None, count: int, given: StructType | None
) -> tuple[str, ...] | None:
    names = tuple(f"_c{n}" for n in range(count)) if header is None else unique_names(header)
    return names if given is None else named_as_given(names, given.names)


def _typed_block(
    blocks: CsvBlocks,
    block: LineRange,
    places: Sequence[int],
    types: Sequence[DataType],
    schema: pa.Schema,
) -> pa.RecordBatch | None:
    """Read columns of a block in their types; None if Spark must read it."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        columns = blocks.columns(block)
    except OSError:
        return None
    if columns is None:
        return None
    typed = []
    for place, dtype in zip(places, types, strict=True):
        values = typed_column(columns[place], dtype)
        if values is None:
            return None
        typed.append(values)
    return pa.record_batch(typed, schema=schema)


class CsvSource(FileSource):
    """CSV files of one layout."""

    _layout: CsvLayout | None = None

    @cached_property
    def header(self) -> bool:
        """Return whether each file starts with a header line."""
        return self.flag("header", default=True)

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        layout = self.layout(spark)
        if self.stream.schema:
            return parse_ddl(self, spark)
        if not layout.names:
            raise self.error("the files have no lines", "set 'schema'", self.shown_path())
        if self.flag("inferSchema"):
            frame = self._reader(spark, layout).csv(self.paths)
            types = [field.dataType for field in frame.schema.fields]
        else:
            types = [*infer_types(self._text(spark, layout), layout.names)]
            types += [field.dataType for field in layout.partitions]
        fields = zip(layout.columns, types, strict=True)
        return StructType([StructField(name, dtype) for name, dtype in fields])

    @cached_property
    def _plain(self) -> PlainCsv | None:
        return plain_csv(self.stream.options, header=self.header)

    def driver_bytes(self, form: RowForm) -> int:
        """See `FileSource.driver_bytes`."""
        if self._plain is None:
            return 0
        return self._most(HELD_BYTES if form is RowForm.RECORDS else LARGE_BYTES)

    def _most(self, local_bytes: int) -> int:
        """Return the bytes that the driver may read: fewer of remote files."""
        is_here = all(local_path(path) is not None for path in self.paths)
        return local_bytes if is_here else SMALL_BYTES

    def schema_on_driver(self) -> StructType | None:
        """See `DriverSource.schema_on_driver`."""
        given = simple_ddl(self.stream.schema) if self.stream.schema else None
        if self.stream.schema and given is None:
            return None
        files = self.plain_files()
        # With `schema`, only the header counts.
        sizes = [min(size, HEADER_BYTES) if given else size for _, size in files]
        if self._plain is None or sum(sizes) > (SMALL_BYTES if given else self._most(LARGE_BYTES)):
            return None
        blocks = csv_blocks(
            self._plain, [(url, 0, self._finished(url, size)) for url, size in files]
        )
        names = None if blocks is None else _names(blocks.header, blocks.width, given)
        if blocks is None or given is not None or names is None:
            return given if names else None
        forms = blocks.forms()
        if forms is None:
            return None
        return StructType([StructField(n, decide(b)) for n, b in zip(names, forms, strict=True)])

    def records_on_driver(
        self, plan: StreamPlan, new: NewData | None
    ) -> Iterator[pa.StringArray] | None:
        """See `FileSource.records_on_driver`.

        A file is read by its own header, if that names the catalog's columns.
        """
        found = self._planned_blocks(plan, new, RowForm.RECORDS)
        if found is None:
            return None
        blocks, places, fields = found
        types = {field.name: field.dataType for field in fields}

        def records(columns: list[pa.StringArray]) -> Iterator[pa.StringArray] | None:
            texts = {name: columns[at] for name, at in zip(plan.columns, places, strict=True)}
            return records_of(texts, types)

        try:
            known = blocks.each(records)
        except OSError:
            return None
        return None if known is None else chain.from_iterable(known)

    def blocks_on_driver(self, plan: StreamPlan, new: NewData | None) -> DriverBlocks | None:
        """See `FileSource.blocks_on_driver`."""
        found = self._planned_blocks(plan, new, RowForm.BLOCKS)
        if found is None:
            return None
        blocks, places, fields = found
        schema = struct_to_arrow(StructType(fields))
        types = [field.dataType for field in fields]
        readers = [
            partial(_typed_block, blocks, block, places, types, schema) for block in blocks.ranges
        ]
        return DriverBlocks(schema, readers)

    def _planned_blocks(
        self, plan: StreamPlan, new: NewData | None, form: RowForm
    ) -> tuple[CsvBlocks, list[int], list[StructField]] | None:
        """Return blocks, and where they have which columns; None if Spark must read them."""
        found = self.planned_parts(plan, new)
        if found is None or self._plain is None:
            return None
        struct, parts = found
        if sum(end - start for _, start, end in parts) > self.driver_bytes(form):
            return None
        blocks = csv_blocks(self._plain, parts)
        if blocks is None:
            return None
        places = self._places(blocks.header, blocks.width, plan, struct)
        if places is None:
            return None
        kinds = {field.name: field for field in struct.fields}
        return blocks, places, [kinds[name] for name in plan.columns]

    def _places(
        self, header: tuple[str, ...] | None, width: int, plan: StreamPlan, struct: StructType
    ) -> list[int] | None:
        """Return where a file has the plan's columns; None if its names do not fit."""
        given = struct if self.stream.schema else None
        names = _names(header, width, given)
        if names is None or (given is None and list(names) != struct.names):
            return None
        # Names by position say nothing about the header of another file.
        if given is not None and header is not None and names != unique_names(header):
            return None
        if not {*plan.columns} <= {*names} & {*struct.names}:
            return None
        return [names.index(name) for name in plan.columns]

    def _finished(self, url: str, size: int) -> int:
        """Return the end of the lines that may be read, without a last line that waits."""
        if not self._incremental or self.stream.read_unterminated_line:
            return size
        start = StorageFileInspector().unfinished_line(url, 0, size)
        return size if start is None else start

    def rows(self, spark: SparkSession, urls: list[str], struct: StructType) -> DataFrame:
        """See `FileSource.rows`."""
        layout = self.layout(spark)
        if not layout.names:
            return spark.createDataFrame([], struct)
        fields = [*self._fields(layout, struct), *layout.partitions]
        reader = self._reader(spark, layout)
        here = F.input_file_name()
        if self.option("mode"):
            return exact_casts(reader.schema(StructType(fields)).csv(urls), struct, here)
        fields.append(StructField(CORRUPT, StringType()))
        frame = reader.schema(StructType(fields)).csv(urls)
        return exact_casts(without_corrupt(frame, RAGGED), struct, here)

    def rows_of_lines(self, lines: DataFrame, struct: StructType, urls: list[str]) -> DataFrame:
        """See `FileSource.rows_of_lines`."""
        text = col("value").cast("string")
        if self.encoding not in UTF8:
            text = F.decode(col("value"), self.encoding)
        lines = lines.select(text.alias("value"), "file").filter(F.trim("value") != "")
        comment = self.option("comment")
        if comment:
            lines = lines.filter(~col("value").startswith(comment))
        layout = self.layout(lines.sparkSession)
        if not layout.names:
            return lines.sparkSession.createDataFrame([], struct)
        fields = self._fields(layout, struct)
        checked = not self.option("mode")
        if checked:
            fields.append(StructField(CORRUPT, StringType()))
        ddl = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in fields)
        skipped = ("header", "multiline", "inferschema", "enforceschema", "encoding", "charset")
        options = {k: v for k, v in self._options().items() if k.lower() not in skipped}
        parsed = F.from_csv("value", F.lit(ddl), options)
        # With an alias, Spark would parse again for the filter on unreadable rows.
        frame = lines.select(file_of(urls).alias(FILE), F.inline(F.array(parsed)))
        frame = without_corrupt(frame, RAGGED, col(FILE)) if checked else frame
        return exact_casts(frame, struct, col(FILE))

    def line_rules(self) -> LineRules | None:
        """See `FileSource.line_rules`."""
        if self.is_wide or self.flag("multiLine") or self.option("lineSep"):
            return None
        return LineRules(header=self.header, comment=self.option("comment").encode())

    def present_columns(self, spark: SparkSession) -> list[str] | None:
        """See `FileSource.present_columns`."""
        return self.layout(spark).columns or None

    def check_file(self, url: str) -> None:
        """Raise an error if a file has another header, whose values would get the wrong names."""
        layout = self._layout or self.layout(self._spark)
        if layout.header is None:
            return
        found = self._header_of(url)
        if found is not None and found != layout.header:
            raise self.error(
                f"the header {', '.join(found)} differs from that of the other files: "
                f"{', '.join(layout.header)}",
                hint="read files with other columns as a stream of their own",
                file=url,
            )

    def layout(self, spark: SparkSession) -> CsvLayout:
        """Return the columns, from the first line; none if there is no line."""
        if self._layout is None:
            self._layout = self._read_layout(spark)
        return self._layout

    def _read_layout(self, spark: SparkSession) -> CsvLayout:
        options = self._options() | {"header": "false", "inferSchema": "false"}
        options = {k: v for k, v in options.items() if k.lower() != "enforceschema"}
        frame, data, first = self._first_row(spark.read.options(**options), self.paths)
        if not first:
            return CsvLayout(None, ())
        partitions = tuple(field for field in frame.schema.fields if field.name not in data)
        if not self.header:
            names = tuple(data)
            return CsvLayout(None, self._given_names(spark, names), partitions)
        header = tuple(value or "" for value in first)
        return CsvLayout(header, self._given_names(spark, unique_names(header)), partitions)

    def _first_row(
        self, reader: DataFrameReader, urls: list[str]
    ) -> tuple[DataFrame, list[str], tuple[str, ...]]:
        """Return the frame of the files, its data columns, and the first row of a finished line."""
        frame = reader.csv(urls)
        data = [name for name in frame.columns if re.fullmatch(r"_c[0-9]+", name)]
        here = F.input_file_name()
        for first in frame.select(here, *map(col, data)).head(1) if data else []:
            file = paths.from_spark(first[0])
            if self.waiting([file]).get(file) != 0:
                return frame, data, tuple(first[1:])
            rest = [url for url in map(paths.from_spark, frame.inputFiles()) if url != file]
            if rest:
                return self._first_row(reader, [paths.spark_url(url) for url in rest])
        return frame, data, ()

    def _given_names(self, spark: SparkSession, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return names by position as in `schema`, unless the header has these names."""
        if not self.stream.schema:
            return names
        given = parse_ddl(self, spark).names
        chosen = named_as_given(names, given)
        if chosen is not None:
            return chosen
        raise self.error(
            f"'schema' has {len(given)} columns, the files have {len(names)}: {', '.join(names)}",
            hint="name columns of the header, or every column, in order",
        )

    def _options(self) -> dict[str, str]:
        # Spark splits lines at bytes, which breaks these encodings; `multiLine` does not.
        wide = {"multiLine": "true"} if self.is_wide and not self.option("lineSep") else {}
        return self.options(
            columnPruning="false",
            escape=self.option("quote", '"'),
            **wide,
            **corrupt_options(self, CORRUPT),
        )

    def _reader(self, spark: SparkSession, layout: CsvLayout) -> DataFrameReader:
        options = self._options()
        if layout.header is not None:
            verbatim = str(layout.names != layout.header).lower()
            options = {"header": "true", "enforceSchema": verbatim, **options}
        return spark.read.options(**options)

    def _text(self, spark: SparkSession, layout: CsvLayout) -> DataFrame:
        struct = StructType([StructField(name, StringType()) for name in layout.names])
        return self.finished_rows(spark, self.paths, struct)

    def _fields(self, layout: CsvLayout, struct: StructType) -> list[StructField]:
        """Return the data columns for Spark's parser: text, or the types that Spark is to parse."""
        typed = bool(self.stream.schema) or self.flag("inferSchema")
        types = {field.name: field.dataType for field in struct.fields} if typed else {}
        return [StructField(name, types.get(name, StringType())) for name in layout.names]

    def _header_of(self, url: str) -> tuple[str, ...] | None:
        """Read the header line of a file; None if Python's csv has no such dialect."""
        separator = self.option("sep") or self.option("delimiter") or ","
        separator = "\t" if separator == "\\t" else separator
        quote = self.option("quote", '"')
        if len(separator) != 1 or len(quote) != 1:
            return None
        with open_random(url) as file:
            head = bytes(file.read(HEAD_BYTES))
        comment = self.option("comment")
        text = head.decode(self.encoding or "utf-8", errors="replace").removeprefix("\ufeff")
        lines = (line for line in text.splitlines() if line.strip())
        line = next((line for line in lines if not (comment and line.startswith(comment))), None)
        if line is None:
            return None
        option = self.option("escape", quote)
        escape = None if option == quote or len(option) != 1 else option
        rows = csv.reader([line], delimiter=separator, quotechar=quote, escapechar=escape)
        return tuple(next(rows))
