"""The base of file sources; each format adds how its rows are read.

Columns of `name=value` folders have their values from the paths of files.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timezone
from functools import cached_property, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.engine.engine import Engine
from shared.errors import SourceError
from shared.spark.spark_errors import java_reason
from shared.storage.access import facts_of
from shared.storage.files import head_of
from tap_spark.sources.files import paths
from tap_spark.sources.files.driver_files import DriverFiles
from tap_spark.sources.files.file_positions import HEAD_BYTES, FileKind, NotTextError, file_kind
from tap_spark.sources.files.line_reader import UTF8, FilePart, LineRules
from tap_spark.sources.files.resumable_files import (
    INSPECTION_THREADS,
    WAITING,
    NewData,
    late_lines,
    lines_frame,
    log_waiting,
    new_bytes,
    new_files,
    new_lines,
    new_slices,
    new_urls,
    waiting_ends,
)
from tap_spark.sources.files.text_types import INFERRED_HINT
from tap_spark.sources.frame_helpers import (
    CORRUPT,
    col,
    missing_columns,
    planned_slice,
    prune,
    struct_from_text,
)
from tap_spark.sources.frame_source import REDISCOVER
from tap_spark.sources.source_declaration import FILES, NOT_RESUMED, encoding_name
from tap_spark.state.stream_plans import DriverRows, Method, Resume, RowForm, Slice, StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.sources.frame_source import FrameSource


NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = r"0|-?[1-9][0-9]*"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = _DAY + r" (?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2}(?:\.[0-9]{0,5}[1-9])?"
_FORMS: Mapping[type[T.DataType], str] = {
    T.IntegerType: _WHOLE,
    T.LongType: _WHOLE,
    T.DecimalType: _WHOLE,
    T.DoubleType: r"-?[0-9]+\.[0-9]+",
    T.DateType: _DAY,
    T.TimestampType: _TIME,
    T.TimestampNTZType: _TIME,
    T.StringType: r"(?s:.*)",
}
"""Texts that can be restored from values of types that Spark infers."""


def exact_field(field: T.StructField, urls: Iterable[str]) -> T.StructField:
    """Return a column with its type if that keeps the text of every folder, else as text."""
    texts = {value_of(url, field.name) for url in urls} - {NO_PARTITION}
    is_kept = all(_keeps(field.dataType, text) for text in texts)
    return field if is_kept else T.StructField(field.name, T.StringType(), True)


def _keeps(dtype: T.DataType, text: str) -> bool:
    form = _FORMS.get(type(dtype))
    if form is None or re.fullmatch(form, text) is None:
        return False
    if isinstance(dtype, T.DoubleType):
        return repr(float(text)) == text
    if isinstance(dtype, T.DecimalType):
        return len(text.lstrip("-")) <= dtype.precision - dtype.scale
    if form == _WHOLE:
        return abs(int(text)) < (2**31 if isinstance(dtype, T.IntegerType) else 2**63)
    return isinstance(dtype, T.StringType) or _is_day(text[:10])


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def partition_value(field: T.StructField, urls: Sequence[str], number: str = "file") -> Column:
    """Return the value of a column, by the index of the file in a column of numbers."""
    values = [value_of(url, field.name) for url in urls]
    text = F.get(F.split(F.lit("\0".join(values)), "\0"), col(number))
    return F.when(text != NO_PARTITION, text).cast(field.dataType).alias(field.name)


def value_of(url: str, name: str) -> str:
    """Return the text of a column in the path of a file."""
    for folder in reversed(url.split("/")[:-1]):
        key, equals, value = folder.partition("=")
        if equals and unquote(key).lower() == name.lower():
            return unquote(value)
    return NO_PARTITION


log = logging.getLogger("tap-spark")
SELECTING = (*map(str.lower, NOT_RESUMED), "ignoremissingfiles", "ignorecorruptfiles")
"""Options by which Spark chooses files."""
_CHARS = re.compile(r"\b(?:VAR)?CHAR\s*\(", re.IGNORECASE)
PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
BY_NAME = (".deflate", ".snappy", ".lz4")
"""Compressed files whose content only Spark knows."""


class FileSource(DriverFiles, ABC):
    """Files of one format.

    Raises:
        SourceError: A local path does not exist.
    """

    _base: Mapping[str, str] | None = None
    _new: NewData | None = None
    _waiting: Mapping[str, int] = MappingProxyType({})
    _partitions: tuple[T.StructField, ...] | None = None

    @abstractmethod
    def schema(self, spark: SparkSession) -> T.StructType:
        """Return columns and types of the files."""

    @abstractmethod
    def rows(self, spark: SparkSession, urls: list[str], struct: T.StructType) -> DataFrame:
        """Return the files' rows with at least the columns of `struct`, of exactly those types."""

    def line_rules(self) -> LineRules | None:
        """Return how lines are split; None if files are only read as a whole."""
        return None

    def listed(self, spark: SparkSession, urls: Iterable[str]) -> list[paths.ListedFile] | None:
        """Return the files of paths that hold bytes; None if only Spark has access to them.

        Raises:
            SourceError: A local folder cannot be read, or a file's name is not UTF-8.
        """
        chosen = {k: v for k, v in self.stream.options.items() if k.lower() in SELECTING}
        try:
            if chosen:
                frame = spark.read.options(**chosen).text(list(urls))
                names = [paths.from_spark(url) for url in frame.inputFiles()]
                files = []
                for name, facts in zip(names, facts_of(names), strict=True):
                    if isinstance(facts, OSError):
                        return None
                    files.append(paths.ListedFile(name, facts.size))
            else:
                files = paths.list_files(tuple(urls))
        except SourceError:
            if self.is_local:
                raise
            return None
        except OSError:
            return None
        by_name = any(file.url.lower().endswith(BY_NAME) for file in files)
        return None if by_name else [file for file in files if file.size]

    def kinds(self, urls: Sequence[str]) -> dict[str, FileKind]:
        """Look at the first bytes of files of text.

        Raises:
            SourceError: A file is no text, or in an encoding that must be set.
        """
        with ThreadPoolExecutor(INSPECTION_THREADS) as pool:
            return dict(zip(urls, pool.map(self.kind_of, urls), strict=True))

    def kind_of(self, url: str) -> FileKind:
        """Look at the first bytes of a file of text.

        Raises:
            SourceError: It is no text, or in an encoding that must be set.
        """
        try:
            return file_kind(head_of(url, HEAD_BYTES), self.encoding)
        except NotTextError as error:
            raise self.error(str(error), error.hint, url) from error
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}", file=url) from error

    def partitions(self, spark: SparkSession) -> tuple[T.StructField, ...]:
        """Return the columns of `name=value` folders, in types that keep the texts of these."""
        if self._partitions is None:
            self._partitions = self._read_partitions(spark)
        return self._partitions

    def _read_partitions(self, spark: SparkSession) -> tuple[T.StructField, ...]:
        names = {option.name.lower() for option in FILES}
        options = {k: v for k, v in self.options().items() if k.lower() in names}
        files = self.listed(spark, self.paths)
        if files is not None and not any("=" in file.url.rpartition("/")[0] for file in files):
            return ()
        fields = spark.read.options(**options).text(self.paths).schema.fields[1:]
        urls = [file.url for file in files or ()]
        return tuple(exact_field(field, urls) for field in fields)

    def rows_of_lines(self, lines: DataFrame, struct: T.StructType, urls: list[str]) -> DataFrame:
        """Parse lines into rows; only for formats with `line_rules`."""
        raise NotImplementedError

    def text_lines(self, lines: DataFrame) -> DataFrame:
        """Return lines as text, without blank ones and comments."""
        text, comment = col("value").cast("string"), self.option("comment")
        lines = lines.select(text.alias("value"), "file").filter(F.trim("value") != "")
        return lines.filter(~col("value").startswith(comment)) if comment else lines

    def present_columns(self, spark: SparkSession) -> list[str] | None:  # noqa: ARG002
        """Return the columns of the files now; None if that needs a read of every file."""
        return None

    def check_headers(self, files: Sequence[str]) -> None:
        """Check the first lines of files before they are read, from there or from later on."""

    def is_plain(self, url: str) -> bool:
        """Return whether the bytes of a file are those of its lines, by its content."""
        return self.kind_of(url) == FileKind()

    def is_complete_line(self, url: str, start: int, end: int) -> bool:  # noqa: ARG002
        """Return whether a last line without line end is complete, and may be read."""
        return self.stream.read_unterminated_line

    def read_on_driver(
        self, plan: StreamPlan, form: RowForm | None, engine: Engine
    ) -> DriverRows | None:
        """See `DriverSource.read_on_driver`."""
        if plan.resume is not Resume.FILE_POSITION:
            return super().read_on_driver(plan, form, engine)
        self._incremental = True
        read_at = datetime.now(timezone.utc)
        weight = 0 if form is None else self.weight
        new = self._new_data(plan, engine.limit / weight if weight else 0, engine.start)
        if not new.file_ranges:
            return DriverRows(bookmark=new.bookmark(plan))
        if form is None or not weight or new.rules is None:
            return None
        # Before the rows: a file that is rewritten meanwhile is then read again by the next run.
        bookmark = new.last_bookmark(plan)
        parts = [(part.file.url, part.start, part.end) for part in new.file_ranges]
        rows = self.rows_of(plan, form, engine, parts)
        return None if rows is None else replace(rows, bookmark=bookmark, read_at=read_at)

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`."""
        self._spark = spark
        self._incremental = plan.method is Method.INCREMENTAL
        if plan.resume is Resume.FILE_POSITION:
            yield from self._new_slices(spark, plan)
            return
        with self.naming_paths():
            struct = self.planned_struct(spark, plan)
            self._check_columns(spark, plan)
            self._check_folders(spark, struct)
            planned = planned_slice(self.finished_rows(spark, self.paths, struct, plan), plan)
            late = self._late_slices(spark, plan, struct)
        yield from late
        yield planned

    def _late_slices(
        self, spark: SparkSession, plan: StreamPlan, struct: T.StructType
    ) -> list[Slice]:
        """Return lines that waited in the last run, and the bookmark of those that wait now."""
        rules, urls = self.line_rules(), {*self._waiting, *(plan.bookmark.get(WAITING) or ())}
        if plan.resume is not Resume.REPLICATION_KEY or rules is None or not urls:
            return []
        files = [file for file in self.listed(spark, self.paths) or () if file.url in urls]
        late, bookmark = late_lines(plan, files, self._waiting, self.is_complete_line)
        slices = []
        for low, parts in late.items():
            rows = self.rows_of_parts(spark, parts, rules, struct)
            own = replace(plan, start_value=low, end_value=plan.start_value, null_keys=False)
            slices.append(planned_slice(rows, own))
        empty = spark.createDataFrame([], struct).select(*map(col, plan.columns))
        return [*slices, Slice(empty, bookmark=bookmark)]

    def rows_of_parts(
        self,
        spark: SparkSession,
        parts: Sequence[FilePart],
        rules: LineRules,
        struct: T.StructType,
        kinds: Mapping[str, FileKind] = MappingProxyType({}),
    ) -> DataFrame:
        """Return the rows of parts of files that begin and end with lines."""
        lines = lines_frame(spark, parts, rules, None, kinds)
        return self.rows_of_lines(lines, struct, [url for url, _, _ in parts])

    def finished_rows(
        self,
        spark: SparkSession,
        urls: list[str],
        struct: T.StructType,
        plan: StreamPlan | None = None,
    ) -> DataFrame:
        """Return `rows`; if the stream is INCREMENTAL, without last lines that wait for their end.

        With a plan these are logged.
        """
        frame = self.rows(spark, urls, struct)
        rules = self.line_rules() if self._incremental else None
        if rules is None:
            return frame
        files = [paths.from_spark(url) for url in frame.inputFiles()]
        ends = self.waiting(files, plan)
        if not ends:
            return frame
        finished = [paths.escaped(url) for url in files if url not in ends]
        frames = [self.rows(spark, finished, struct)] if finished else []
        parts = [(url, 0, end) for url, end in ends.items() if end]
        if parts:
            frames.append(self.rows_of_parts(spark, parts, rules, struct))
        empty = spark.createDataFrame([], struct)
        names = [col(field.name) for field in struct.fields]
        return reduce(lambda one, more: one.unionAll(more.select(names)), frames, empty)

    def waiting(self, files: Sequence[str], plan: StreamPlan | None = None) -> dict[str, int]:
        """Return the files whose last line has no line end yet, and the end of the lines before.

        With a plan they are logged.
        """
        rules = self.line_rules()
        if rules is None or not self._incremental:
            return {}
        plain = [url for url in files if not paths.is_read_whole(url)]
        try:
            ends = waiting_ends(list(filter(self.is_plain, plain)), rules, self.is_complete_line)
        except OSError as error:
            log.warning(
                "stream '%s': cannot check files for unterminated last lines, which are read at "
                "once: %s",
                self.stream.name,
                error,
            )
            return {}
        if plan is not None:
            self._waiting = ends
            log_waiting(plan, list(ends))
        return ends

    def planned_struct(self, spark: SparkSession, plan: StreamPlan) -> T.StructType:
        """Return the plan's columns with the catalog's types, else the source's."""
        text = plan.source_schema
        return prune(struct_from_text(text) if text else self.schema(spark), plan.schema)

    @property
    def encoding(self) -> str:
        """Return the encoding of text by the reader options, in lower case; empty if not set."""
        return (self.option("encoding") or self.option("charset")).lower()

    @property
    def is_typed(self) -> bool:
        """Return whether users choose the types, not the texts of values."""
        return bool(self.stream.schema) or self.flag("inferSchema")

    @cached_property
    def text_encoding(self) -> str:
        """Return Python's name of the encoding of the options, else UTF-8."""
        return encoding_name(self.encoding) or UTF8

    def options(self, **defaults: str) -> dict[str, str]:
        """Return the stream's options, over the given defaults."""
        names = {key.lower() for key in self.stream.options}
        kept = {key: value for key, value in defaults.items() if key.lower() not in names}
        return {**kept, **(self._base or {}), **self.stream.options}

    def _new_slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        new = self._new_data(plan)
        bookmark = new.bookmark(plan)
        if not new.file_ranges and bookmark is not None:
            empty = spark.createDataFrame([], self.planned_struct(spark, plan))
            yield Slice(empty.select(*map(col, plan.columns)), bookmark=bookmark)
        if new.file_ranges:
            self._check_folders(spark, self.planned_struct(spark, plan))
        if new.rules is not None and new.file_ranges:
            self.check_headers([file_range.file.url for file_range in new.file_ranges])

        def frame_of(parts: Sequence[FilePart]) -> DataFrame:
            self._check_columns(spark, plan)
            struct = self.planned_struct(spark, plan)
            if new.rules is not None:
                return self.rows_of_parts(spark, parts, new.rules, struct)
            urls = [paths.escaped(url) for url, _, _ in parts]
            return self.finished_rows(spark, urls, struct)

        yield from new_slices(plan, new, frame_of)

    def _new_data(
        self, plan: StreamPlan, most: float = 0, start_spark: Callable[[], None] = lambda: None
    ) -> NewData:
        """Return what is new in the files, looked for once; start Spark if it is over `most`."""
        if self._new is None:
            files = paths.list_files(tuple(self.paths))
            if new_bytes(plan, files) > most:
                start_spark()
            self._new = self._inspected(plan, files)
        return self._new

    def _inspected(self, plan: StreamPlan, files: list[paths.ListedFile]) -> NewData:
        rules = self.line_rules()
        whole_only = any(file.partitioned or paths.is_compressed(file.url) for file in files)
        if any(file.partitioned for file in files):
            self._base = {"basePath": self._only_root()}
        if rules is None or whole_only or not all(map(self.is_plain, new_urls(plan, files))):
            return new_files(plan, files, self.waiting(new_urls(plan, files)))
        return new_lines(plan, files, rules, self.is_complete_line)

    def _only_root(self) -> str:
        """Return the folder whose `name=value` folders become columns."""
        if len(self.paths) == 1:
            return paths.unescaped(self.paths[0])
        raise self.error(
            "'name=value' folders under several paths cannot be resumed by file",
            hint="give one path, or use FULL_TABLE or a replication key",
        )

    def _check_columns(self, spark: SparkSession, plan: StreamPlan) -> None:
        present = self.present_columns(spark)
        if gone := missing_columns(plan.columns, plan.columns if present is None else present):
            text = f"selected columns are no longer in the source: {', '.join(gone)}"
            raise self.error(text, REDISCOVER, self.shown_path())

    def _check_folders(self, spark: SparkSession, struct: T.StructType) -> None:
        """Raise an error if a type of the catalog does not keep the text of a folder now."""
        files = self.listed(spark, self.paths) or ()
        if self.is_typed or not any("=" in file.url.rpartition("/")[0] for file in files):
            return
        names = {field.name for field in self.partitions(spark)} & set(struct.names)
        for file in files:
            for field in (struct[name] for name in names):
                if exact_field(field, [file.url]) != field:
                    kind, text = field.dataType.simpleString(), value_of(file.url, field.name)
                    problem = f"column '{field.name}' holds a value that type {kind} cannot keep"
                    raise self.error(f"{problem} as written: {text}", INFERRED_HINT, file.url)


def parse_ddl(source: FileSource | FrameSource, spark: SparkSession) -> T.StructType:
    """Parse the stream's setting `schema`.

    Raises:
        SourceError: It is not Spark DDL.
    """
    try:
        return spark.createDataFrame([], source.stream.schema or "").schema
    except Exception as error:
        if _CHARS.search(source.stream.schema or ""):
            problem, hint = "the setting 'schema' has CHAR or VARCHAR", "use STRING for them"
            raise source.error(problem, hint) from error
        reason = java_reason(str(error))
        raise source.error(f"the setting 'schema' is not Spark DDL: {reason}") from error


def parse_flat_ddl(source: FileSource, spark: SparkSession) -> T.StructType:
    """Parse the stream's setting `schema` for a format without nested values.

    Raises:
        SourceError: It is not Spark DDL, or has a column of a nested type.
    """
    struct = parse_ddl(source, spark)
    for field in struct:
        if isinstance(field.dataType, (T.StructType, T.ArrayType, T.MapType)):
            kind = field.dataType.simpleString()
            problem = f"column '{field.name}' of 'schema' has the type {kind}"
            raise source.error(
                f"{problem}, which {source.stream.format} does not have", "use STRING"
            )
    return struct


def corrupt_options(source: FileSource) -> Mapping[str, str]:
    """Return options that keep unreadable rows visible, unless the user has set `mode`."""
    return {} if source.option("mode") else PERMISSIVE


def corrupt_fields(source: FileSource, fields: Iterable[T.StructField]) -> T.StructType:
    """Return columns for a parser with `corrupt_options`."""
    corrupt = [] if source.option("mode") else [T.StructField(CORRUPT, T.StringType())]
    return T.StructType([*fields, *corrupt])
