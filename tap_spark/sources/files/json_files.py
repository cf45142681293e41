"""JSON: lines, or whole documents (an array, or an object that holds one) per file."""

from __future__ import annotations

import json
import logging
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from shared.engine.engine import JSON_VALUES, TYPES, Engine, Work
from shared.formats.arrow_types import holds, struct_to_arrow
from shared.formats.spark_types import T
from shared.spark.spark_errors import plain_path
from shared.storage.files import open_input
from shared.storage.urls import shown
from tap_spark.sources.driver_rows import is_plain, records_of_batch
from tap_spark.sources.files import json_rows, paths
from tap_spark.sources.files.driver_files import block_bytes, blocks_of, mapped, whole_columns
from tap_spark.sources.files.file_positions import FileKind, read_at
from tap_spark.sources.files.file_source import (
    BY_NAME,
    FileSource,
    corrupt_fields,
    corrupt_options,
    parse_ddl,
    partition_value,
)
from tap_spark.sources.files.json_kinds import (
    Kind,
    TypeRules,
    alike_names,
    merged_all,
    type_of,
    unquoted_values,
)
from tap_spark.sources.files.json_rows import (
    KINDS_SCHEMA,
    NO_OBJECT,
    BadLineError,
    JsonRows,
    JsonTask,
    all_names,
    is_sparse,
    is_supported,
    kind_of_lines,
    kinds_of,
)
from tap_spark.sources.files.line_reader import BOM, UTF8, FilePart, LineRange, LineRules
from tap_spark.sources.files.resumable_files import line_tasks, lines_frame
from tap_spark.sources.files.text_types import simple_ddl
from tap_spark.sources.frame_helpers import (
    CORRUPT,
    FILE,
    col,
    fail_job,
    file_of,
    frame_of_parts,
    is_case_sensitive,
    prune,
    widen_inferred,
    without_corrupt,
)
from tap_spark.state.stream_plans import DriverBlocks, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession


_FOLLOWED = frozenset(
    (
        *("multiline", "encoding", "charset", "basepath", "pathglobfilter", "recursivefilelookup"),
        *("modifiedafter", "modifiedbefore", "primitivesasstring", "prefersdecimal"),
        *("dropfieldifallnull", "samplingratio", "columnnameofcorruptrecord", "useunsaferow"),
    )
)
_OF_TIMES = frozenset(
    (
        *("dateformat", "timestampformat", "timestampntzformat", "locale", "timezone"),
        "enabledatetimeparsingfallback",
    )
)
"""Options for columns of dates and times alone."""
_VALUES: Mapping[str, str] = {
    "mode": "failfast",
    "linesep": "\n",
    **dict.fromkeys(
        (
            *("infertimestamp", "allowcomments", "allowunquotedfieldnames", "allowsinglequotes"),
            *("allownumericleadingzeros", "allowbackslashescapinganycharacter"),
            *("allowunquotedcontrolchars", "ignorecorruptfiles", "ignoremissingfiles"),
            "ignoreinvalidpartitionpaths",
        ),
        "false",
    ),
    "allownonnumericnumbers": "true",
}
"""Options that ask for what the exact reader does."""


def lax_options(options: Mapping[str, object], struct: T.StructType | None) -> list[str]:
    """Return the options that only Spark's reader follows; inferred columns hold no times."""
    with_times = struct is not None and holds(struct, (T.DatetimeType,))
    followed = _FOLLOWED if with_times else _FOLLOWED | _OF_TIMES
    return [
        name
        for name, value in options.items()
        if not (name.lower() in followed or "." in name)
        and str(value).lower() != _VALUES.get(name.lower())
    ]


log = logging.getLogger("tap-spark")

BY_LINE = ("", "utf-8", "utf8", "us-ascii", "ascii")
"""Encodings of files that are resumed by line."""
HEAD_BYTES = 64 * 1024
LONGEST_CHECKED = 64 * 1024**2
HINT = "it is not JSON, or has a value of another type than the catalog"
RECORD, ANY = "_tap_spark_record", "_tap_spark_any"
SHOWN = 200


_NAME = re.compile(r"(?!_metadata|_corrupt_record|_tap_spark)[^\x00-\x1f]+")
"""Names without control characters that columns of Spark and of this program do not have."""
_CONTROL = re.compile(rb"\\u00[01]")
"""What Java's writer and Python's escape in different ways."""
_DEEP = re.compile(rb"(?:[\[{][^\[\]{}\n]*){500}")
"""Arrow's parser calls itself for each level: too many would end this process."""


class UnsureError(Exception):
    """Spark may read the data in another way."""


_LEFT_TO_SPARK = (UnsureError, BadLineError, RecursionError, OSError, pa.ArrowException)
"""Failures of threads after which Spark reads the files, or says what is wrong with them."""


class JsonSource(FileSource):
    """JSON files of one kind."""

    def __init__(self, stream: StreamConfig) -> None:
        super().__init__(stream)
        self._has_warned = False
        self._listings: dict[tuple[str, ...], list[paths.ListedFile] | None] = {}

    @cached_property
    def document(self) -> bool:
        """Return whether each file is one JSON value instead of one per line."""
        if self.option("multiLine"):
            return self.flag("multiLine")
        return bool(self._path) or self._first_is_document()

    def schema(self, spark: SparkSession) -> T.StructType:
        """See `Source.schema`."""
        if self.stream.schema:
            return parse_ddl(self, spark)
        if self._is_exact(spark):
            return self._inferred(spark)
        self._check_names(spark, self.paths)
        struct = self._reader(spark).json(self.paths).schema
        if CORRUPT in struct.names:
            self._name_corrupt(spark, struct)
        good = [field for field in struct.fields if field.name != CORRUPT]
        tidied = widen_inferred(self._record_type(T.StructType(good)))
        if not isinstance(tidied, T.StructType) or not tidied.fields:
            raise self.error("no JSON objects with properties were found", "", self.shown_path())
        return tidied

    @cached_property
    def _is_plain(self) -> bool:
        """Return whether the driver knows how Spark would read: lines, by default options."""
        return {name.lower() for name in self.stream.options} <= {"multiline"} and not self.document

    def _is_exact(self, spark: SparkSession, struct: T.StructType | None = None) -> bool:
        """Return whether `json_rows` reads the files; if Spark's own parser does, say so once."""
        reason = self._lax_reason(spark, struct)
        if reason and not self._has_warned:
            self._has_warned = True
            log.warning(
                "stream '%s': Spark's own reader reads the JSON, for %s: it may round numbers, "
                "take one of several values of a name, and leave out what follows an object in "
                "its line",
                self.stream.name,
                reason,
            )
        return not reason

    def _lax_reason(self, spark: SparkSession, struct: T.StructType | None) -> str:
        """Return why only Spark can read the files; empty if it is not so."""
        if self._files(spark, self.paths) is None:
            return "files that only Spark can open"
        own = None if struct is None else self._without_folders(spark, struct)
        lax = lax_options(self.stream.options, own)
        if lax:
            return f"its options ({', '.join(lax)})"
        names = [field.name for field in own or () if not is_supported(field.dataType)]
        return f"the types of {', '.join(names[:10])}" if names else ""

    def _without_folders(self, spark: SparkSession, struct: T.StructType) -> T.StructType:
        names = {field.name for field in self.partitions(spark)}
        return T.StructType([field for field in struct if field.name not in names])

    def _files(self, spark: SparkSession, urls: Sequence[str]) -> list[paths.ListedFile] | None:
        """Return the files that hold bytes; None if only Spark has access to them."""
        key = tuple(urls)
        if key not in self._listings:
            self._listings[key] = self.listed(spark, urls)
        return self._listings[key]

    def _inferred(self, spark: SparkSession) -> T.StructType:
        """Return the types that keep every value of the files, and columns of their folders."""
        parts = self._parts(spark, self.paths)
        kinds = self._tasks(spark, parts, kinds_of, KINDS_SCHEMA).collect()
        kind = merged_all(pickle.loads(row.kinds) for row in kinds)  # noqa: S301
        rules = TypeRules(
            *map(self.flag, ("primitivesAsString", "prefersDecimal", "dropFieldIfAllNull"))
        )
        struct = type_of(kind, rules)
        if not isinstance(struct, T.StructType) or not struct.fields:
            raise self.error("no JSON objects with properties were found", "", self.shown_path())
        in_folders = self.partitions(spark)
        struct = T.StructType([*self._without_folders(spark, struct), *in_folders])
        alike = None if is_case_sensitive(spark) else alike_names(struct)
        if alike is not None:
            raise self.error(
                f"the names '{alike[0]}' and '{alike[1]}' differ by case only",
                "set spark.conf 'spark.sql.caseSensitive' to true",
                self.shown_path(),
            )
        return struct

    def _parts(
        self, spark: SparkSession, urls: Sequence[str], plan: StreamPlan | None = None
    ) -> list[FilePart]:
        """Return the parts of files that are not empty, without lines that wait for their end."""
        files = self._files(spark, urls) or []
        ends = self.waiting([file.url for file in files], plan)
        parts = ((file.url, 0, ends.get(file.url, file.size)) for file in files)
        return [part for part in parts if part[2]]

    def _tasks(
        self,
        spark: SparkSession,
        parts: Sequence[FilePart],
        read: Callable[[bytes], Iterator[pa.RecordBatch]],
        schema: T.StructType | str,
        number: str = "",
    ) -> DataFrame:
        """Return what `read` makes of blocks of lines, or of the records of documents.

        The column `number`, if it has a name, gets the index of the file.
        """
        if not parts:
            return spark.createDataFrame([], schema)
        kinds = self.kinds([url for url, _, _ in parts])
        # UTF-8 is checked by line, so that an error names it.
        rules = LineRules(encoding="" if self.encoding in BY_LINE else self.text_encoding)
        tasks = line_tasks(parts, rules, kinds, whole=self.document)
        task = JsonTask(read, self.document, tuple(self._path), number)
        return frame_of_parts(spark, tasks, task, schema)

    def _exact_rows(
        self, spark: SparkSession, parts: Sequence[FilePart], struct: T.StructType
    ) -> DataFrame:
        own = self._without_folders(spark, struct)
        in_folders = [field for field in struct if field not in own.fields]
        if not own.fields:
            own = T.StructType([T.StructField(RECORD, T.StringType())])
        rows = JsonRows(own, case_sensitive=is_case_sensitive(spark))
        if not in_folders:
            return self._tasks(spark, parts, rows, own)
        schema = T.StructType([*own, T.StructField(FILE, T.IntegerType())])
        frame = self._tasks(spark, parts, rows, schema, FILE)
        urls = [url for url, _, _ in parts]
        values = {f.name: partition_value(f, urls, FILE) for f in in_folders}
        return frame.select(*(values.get(name, col(name)) for name in struct.names))

    @property
    def weight(self) -> float:
        return JSON_VALUES if self._is_plain else 0

    def schema_on_driver(self, engine: Engine) -> T.StructType | None:
        """See `DriverSource.schema_on_driver`."""
        if self.stream.schema:
            return simple_ddl(self.stream.schema)
        if not self._is_plain:
            return None
        files = self.plain_files()
        size = sum(size for _, size in files)
        work = Work(self.stream.name, size * self.weight, kind=TYPES)
        if not size or not engine.takes(work) or self.waiting([url for url, _ in files]):
            return None
        blocks = [block for url, size in files for block in blocks_of((url, 0, size))]
        try:
            struct = type_of(merged_all(mapped(_block_kind, blocks)))
        except _LEFT_TO_SPARK:
            return None
        return struct if isinstance(struct, T.StructType) and _has_plain_names(struct) else None

    def blocks_on_driver(
        self, plan: StreamPlan, struct: T.StructType, parts: Sequence[FilePart]
    ) -> DriverBlocks | None:
        columns = _planned_columns(plan, struct)
        if columns is None:
            return None
        rows = JsonRows(columns)
        readers = [partial(_block_rows, block, rows) for part in parts for block in blocks_of(part)]
        return DriverBlocks(struct_to_arrow(columns), readers)

    def texts_of(self, block: pa.RecordBatch, struct: T.StructType) -> Iterator[pa.StringArray]:
        return records_of_batch(block, struct)

    def rows(self, spark: SparkSession, urls: list[str], struct: T.StructType) -> DataFrame:
        self._check_names(spark, urls)
        kind = corrupt_fields(self, self._document_type(struct))
        frame = without_corrupt(self._reader(spark).schema(kind).json(urls), HINT)
        frame = self._records(frame)
        if not self.document:
            return frame
        return json_rows.checked_documents(
            frame, [file.url for file in paths.list_files(tuple(urls))]
        )

    def finished_rows(
        self,
        spark: SparkSession,
        urls: list[str],
        struct: T.StructType,
        plan: StreamPlan | None = None,
    ) -> DataFrame:
        if not self._is_exact(spark, struct):
            return super().finished_rows(spark, urls, struct, plan)
        return self._exact_rows(spark, self._parts(spark, urls, plan), struct)

    def rows_of_parts(
        self,
        spark: SparkSession,
        parts: Sequence[FilePart],
        rules: LineRules,
        struct: T.StructType,
        kinds: Mapping[str, FileKind] = MappingProxyType({}),
    ) -> DataFrame:
        if self._is_exact(spark, struct):
            return self._exact_rows(spark, parts, struct)
        lines = lines_frame(spark, parts, rules, unquoted_values(struct), kinds)
        return self.rows_of_lines(lines, struct, [url for url, _, _ in parts])

    def rows_of_lines(self, lines: DataFrame, struct: T.StructType, urls: list[str]) -> DataFrame:
        checked = not self.option("mode")
        skipped = ("multiline", "encoding", "charset")
        options = {k: v for k, v in self._options().items() if k.lower() not in skipped}
        kind = corrupt_fields(self, struct)
        # Each element of an array in a line is a record, as in Spark's own reader.
        strict = options | ({"mode": "FAILFAST"} if checked else {})
        several = F.from_json("value", T.ArrayType(kind), strict)
        if checked:
            failure = fail_job(
                "a row cannot be read", value=col("value"), file=file_of(urls), hint=HINT
            )
            whole = F.from_json("value", "array<string>").isNotNull()
            several = F.when(whole, several).otherwise(failure.cast(T.ArrayType(kind)))
        single = F.array(F.from_json("value", kind, options))
        records = F.when(F.ltrim("value").startswith("["), several).otherwise(single)
        frame = self.text_lines(lines).select(file_of(urls).alias(FILE), F.inline(records))
        return without_corrupt(frame, HINT, col(FILE)).drop(FILE)

    def line_rules(self) -> LineRules | None:
        if self.document or self.option("lineSep") or self.encoding not in BY_LINE:
            return None
        return LineRules(encoding=UTF8)

    def is_complete_line(self, url: str, start: int, end: int) -> bool:
        """See `FileSource.is_complete_line`: only an object or array is read."""
        if end - start > LONGEST_CHECKED:
            return False
        try:
            value = orjson.loads(read_at(url, start, end - start).removeprefix(BOM))
        except orjson.JSONDecodeError:
            return False
        return isinstance(value, dict | list)

    def _first_is_document(self) -> bool:
        """Return whether the first non-empty file starts with an array or a pretty object."""
        for file in paths.list_files(tuple(self.paths)):
            if file.size:
                return is_document(self._head(file.url))
        return False

    def _head(self, url: str) -> bytes:
        is_known_to_spark = url.lower().endswith(BY_NAME)
        encoding = "" if is_known_to_spark else self.kind_of(url).encoding
        try:
            with open_input(url) as file:
                head = bytes(file.read(HEAD_BYTES))
        except (OSError, pa.ArrowInvalid) as error:
            raise self.error(f"the file cannot be read: {error}", file=shown(url)) from error
        return head.decode(encoding or self.text_encoding, "ignore").encode()

    def _check_names(self, spark: SparkSession, urls: Sequence[str]) -> None:
        """Check that Spark, which goes by names, reads files by their content."""
        files = [file.url for file in self.listed(spark, urls) or ()]
        kinds = self.kinds([url for url in files if not paths.is_compressed(url)])
        for url, kind in kinds.items():
            if kind.is_compressed:
                problem = "the file is compressed, but its name does not say so"
                hint = "name it '.gz', '.bz2' or '.zst', or leave out the stream's other 'options'"
                raise self.error(problem, hint, url)
            if kind.encoding:
                hint = f"set the option 'encoding' to {kind.encoding.upper()}"
                raise self.error(f"the file is in {kind.encoding.upper()}", hint, url)

    def _options(self) -> dict[str, str]:
        return self.options(**corrupt_options(self))

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.options(**self._options() | {"multiLine": str(self.document).lower()})

    @cached_property
    def _path(self) -> list[str]:
        """Return the names that lead to the records of a document."""
        path = str(self.stream.own.get("records_path") or "")
        return path.split(".") if path else []

    def _record_type(self, dtype: T.DataType) -> T.DataType:
        """Return the type of one record inside the type of a document."""
        path = self._path
        for number, name in enumerate(path):
            names = dtype.names if isinstance(dtype, T.StructType) else []
            if not isinstance(dtype, T.StructType) or name not in names:
                at = ".".join(path[: number + 1])
                raise self.error(
                    f"records_path '{at}' is not in the documents",
                    hint=f"they have {', '.join(names[:20]) or 'no properties there'}",
                    file=self.shown_path(),
                )
            dtype = dtype[name].dataType
        if not path:
            return dtype
        if isinstance(dtype, T.ArrayType) and isinstance(dtype.elementType, T.StructType):
            return dtype.elementType
        raise self.error(
            f"records_path '{'.'.join(path)}' is not an array of objects", file=self.shown_path()
        )

    def _document_type(self, struct: T.StructType) -> T.StructType:
        """Return the type of a document, given the type of its records."""
        path = self._path
        if not path:
            return struct
        dtype: T.DataType = T.ArrayType(struct)
        for name in reversed(path):
            dtype = T.StructType([T.StructField(name, dtype)])
        return dtype  # type: ignore[return-value]

    def _records(self, frame: DataFrame) -> DataFrame:
        path = self._path
        if not path:
            return frame
        records: Column = col(path[0])
        for name in path[1:]:
            records = records.getField(name)
        problem = f"records_path '{'.'.join(path)}' is not in the document"
        failure = fail_job(problem, file=F.input_file_name())
        kind = F.when(records.isNotNull(), records).otherwise(failure)
        return frame.select(F.explode(kind).alias(RECORD)).select(f"{RECORD}.*")

    def _name_corrupt(self, spark: SparkSession, struct: T.StructType) -> None:
        """Find the row that is not JSON; inference only says that there is one."""
        fields = [*struct.fields, T.StructField(ANY, T.StringType())]
        frame = self._reader(spark).schema(T.StructType(fields)).json(self.paths)
        bad = frame.filter(col(CORRUPT).isNotNull()).select(
            F.input_file_name().alias(FILE), F.substring(col(CORRUPT), 1, SHOWN).alias(RECORD), ANY
        )
        # Spark rejects queries that read only the column of unreadable rows.
        corrupt = bad.groupBy(FILE).agg(F.first(RECORD), F.count("*"), F.first(ANY)).collect()
        waiting = self.waiting([paths.from_spark(file) for file, _, _, _ in corrupt])
        for file, text, count, _ in corrupt:
            if count == 1 and paths.from_spark(file) in waiting:
                continue
            raise self.error(
                f"a row cannot be read: {json.dumps(text, ensure_ascii=False)}",
                hint=NO_OBJECT,
                file=plain_path(file),
            )


def _planned_columns(plan: StreamPlan, struct: T.StructType) -> T.StructType | None:
    """Return the plan's columns; None if the files have other ones, or only Spark reads them."""
    struct = prune(struct, plan.schema)
    if not ({*plan.columns} <= {*struct.names} and _has_plain_names(struct)):
        return None
    is_exact = all(is_supported(f.dataType) and is_plain(f.dataType) for f in struct)
    return T.StructType([struct[name] for name in plan.columns]) if is_exact else None


def _has_plain_names(struct: T.StructType) -> bool:
    """Return whether there are fields, and Spark does not take the name of one for another's."""
    names = list(all_names(struct))
    return bool(names) and alike_names(struct) is None and all(map(_NAME.fullmatch, names))


def _plain_lines(block: LineRange) -> bytes:
    """Return the lines of a block, whose records Spark writes as threads do.

    Raises:
        UnsureError: It may not.
        OSError: The file cannot be read.
    """
    data = block_bytes(block)
    if data is None or b"\r" in data or BOM in data:
        raise UnsureError
    if _CONTROL.search(data) or _DEEP.search(data):
        raise UnsureError
    return data


def _block_kind(block: LineRange) -> Kind:
    return kind_of_lines(_plain_lines(block))


def _block_rows(block: LineRange, rows: JsonRows) -> pa.RecordBatch | None:
    """Return the rows of a block; None if Spark must read them."""
    try:
        data = _plain_lines(block)
        if is_sparse(data, all_names(rows.struct)):
            return None
        table = rows.table(data)
    except _LEFT_TO_SPARK:
        return None
    return pa.RecordBatch.from_arrays(whole_columns(table), schema=table.schema)


def is_document(head: bytes) -> bool:
    """Return whether a file that starts so is one JSON value over several lines, or an array."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        return True
    line, end, rest = text.partition(b"\n")
    if not text.startswith(b"{") or not end:
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        # A damaged first line of JSON lines is followed by another object at the line's start.
        return not rest.startswith(b"{")
    return False
