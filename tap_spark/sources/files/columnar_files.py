"""Files that contain their schema: Parquet, ORC, Avro.

The columns of Avro are those of all files, not only of the one that Spark would read first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from shared.errors import SingerSparkError, SourceError
from shared.formats.columnar_encoding import read_footer
from shared.formats.json_schema import merge_structs
from shared.storage.files import open_random
from shared.storage.urls import S3_SCHEMES, local_path, shown
from tap_spark.sources.files import paths
from tap_spark.sources.files.arrow_parquet import (
    READERS,
    FooterFacts,
    NoCommonTypeError,
    ParquetRows,
    all_facts,
    arrow_struct,
    orc_facts,
    parquet_facts,
)
from tap_spark.sources.files.avro_values import (
    AvroValues,
    Form,
    UnclearUnionError,
    forms_of,
    read_bytes,
    read_long,
    readable,
)
from tap_spark.sources.files.file_source import FileSource, parse_ddl
from tap_spark.sources.frame_helpers import (
    FILE,
    col,
    frame_of_parts,
    is_case_sensitive,
    without_void,
)
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


log = logging.getLogger("tap-spark")

MOST_FOOTERS = 1000
"""Local files whose footers the driver reads to tell their rows."""
MOST_REMOTE_FOOTERS = 100
"""The same on S3, where each takes one or two requests."""
_FACTS = {"parquet": parquet_facts, "orc": orc_facts}


class ParquetSource(FileSource):
    """Parquet files; their schemas are merged unless the option `mergeSchema` is false."""

    kind = "parquet"
    _arrow: tuple[StructType | None] | None = None

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        if self.stream.schema:
            return parse_ddl(self, spark)
        return self._all(spark)

    def rows(self, spark: SparkSession, urls: list[str], struct: StructType) -> DataFrame:
        if self._by_arrow(spark) is not None:
            files = [file.url for file in paths.list_files(tuple(urls))]
            if not files:
                return spark.createDataFrame([], struct)
            return frame_of_parts(spark, files, ParquetRows(struct, self.kind), struct)
        reader = spark.read.format(self.kind).options(**self.options())
        return reader.schema(struct).load(urls)

    def present_columns(self, spark: SparkSession) -> list[str] | None:
        return self._all(spark).names

    def told_rows(self) -> int | None:
        """See `TellingSource`: by the footers of local files, and of those on S3."""
        remote = [path for path in self.paths if local_path(path) is None]
        if self.stream.options or not all(path.startswith(S3_SCHEMES) for path in remote):
            return None
        files = paths.list_files(tuple(self.paths))
        if len(files) > (MOST_REMOTE_FOOTERS if remote else MOST_FOOTERS):
            return None
        with ThreadPoolExecutor(READERS if remote else 1) as threads:
            counts = list(threads.map(lambda file: read_footer(self.kind, file.url)[0], files))
        return None if None in counts else sum(rows for rows in counts if rows is not None)

    def _by_arrow(self, spark: SparkSession) -> StructType | None:
        """Return the columns of files that Spark refuses; None if it reads them."""
        if self.kind not in _FACTS:
            return None
        if self._arrow is None:
            self._arrow = (self._refused(spark),)
        return self._arrow[0]

    def _refused(self, spark: SparkSession) -> StructType | None:
        try:
            files = paths.list_files(tuple(self.paths))
        except SourceError as error:
            if self.is_local:
                raise
            # Spark may have credentials of its own.
            text = "stream '%s': only Spark looks at its files, which may cut nanoseconds: %s"
            log.warning(text, self.stream.name, error)
            return None
        refused: Exception | None = None
        facts: Sequence[FooterFacts] = ()
        urls = [file.url for file in files]
        by_spark = bool(self.stream.options) or any(file.partitioned for file in files)
        try:
            facts = all_facts(spark, urls, _FACTS[self.kind])
            if by_spark or not any(fact.is_refused for fact in facts):
                self._merged(spark)
                self._warn_of_nanoseconds(facts)
                return None
        except SourceError:
            raise
        except Exception as error:
            refused = error
        if by_spark or not files:
            return None
        if self.kind == "parquet":
            self._warn_of_nanoseconds([replace(fact, instants=()) for fact in facts])
        try:
            return arrow_struct(urls, self.kind, case_sensitive=is_case_sensitive(spark))
        except NoCommonTypeError as error:
            hint = "let its writer cast the column, or read the files as streams of their own"
            raise self.error(str(error), hint, self.shown_path()) from refused
        except (OSError, pa.ArrowException):
            # It is damaged, or of another format: Spark says so.
            return None

    def _warn_of_nanoseconds(self, facts: Sequence[FooterFacts]) -> None:
        """Say once which columns may have lost nanoseconds."""
        columns = sorted({name for fact in facts for name in (*fact.finer, *fact.instants)})
        if columns:
            log.warning(
                "stream '%s': nanoseconds of timestamps are cut to microseconds: %s",
                self.stream.name,
                ", ".join(columns),
            )

    def _all(self, spark: SparkSession) -> StructType:
        struct = self._by_arrow(spark)
        return self._merged(spark) if struct is None else struct

    def _merged(self, spark: SparkSession) -> StructType:
        options = self.options(mergeSchema="true")
        struct = spark.read.format(self.kind).options(**options).load(self.paths).schema
        if not struct.fields:
            raise self.error("the files have no columns", "", self.shown_path())
        return self._with_folders(spark, struct)

    def _with_folders(self, spark: SparkSession, struct: StructType) -> StructType:
        """Return the struct with the types that keep the text of folders."""
        in_folders = {field.name: field for field in self.partitions(spark)}
        columns = [in_folders.pop(field.name, field) for field in struct]
        return StructType([*columns, *in_folders.values()])


class OrcSource(ParquetSource):
    """ORC files."""

    kind = "orc"


MAGIC = b"Obj\x01"
SCHEMA_KEY = b"avro.schema"


class AvroSource(ParquetSource):
    """Avro files; a column that only some files have is null in the others."""

    kind = "avro"

    def __init__(self, stream: StreamConfig) -> None:
        super().__init__(stream)
        self._schemas: dict[str, bytes] = {}
        self._forms: dict[bytes, dict[str, Form]] = {}

    @property
    def _is_by_option(self) -> bool:
        """Return whether options say what the values mean."""
        return any(map(self.option, ("avroSchema", "avroSchemaUrl"))) or self.flag(
            "enableStableIdentifiersForUnionType"
        )

    def _all(self, spark: SparkSession) -> StructType:
        if self.option("avroSchema") or self.option("avroSchemaUrl"):
            return self._with_folders(spark, self._reader(spark).load(self.paths).schema)
        files = [file for file in paths.list_files(tuple(self.paths)) if file.size]
        if not files:
            raise self.error("the files have no columns", "set 'schema'", self.shown_path())
        structs = [self._struct(spark, s, urls[0]) for s, urls in self._by_schema(files).items()]
        try:
            struct = reduce(merge_structs, structs)
        except SingerSparkError as error:
            raise self.error(
                f"the files disagree: {error.message}", "set 'schema'", self.shown_path()
            ) from error
        if any(file.partitioned for file in files):
            struct = self._with_folders(spark, struct)
        return without_void(struct)  # type: ignore[no-any-return]

    def rows(self, spark: SparkSession, urls: list[str], struct: StructType) -> DataFrame:
        if self._is_by_option:
            return super().rows(spark, urls, struct)
        files = [file for file in paths.list_files(tuple(urls)) if file.size]
        groups = self._by_schema(files)
        raw = [s for s, group in groups.items() if not self._is_as_read(spark, s, group[0], struct)]
        if not raw:
            return super().rows(spark, urls, struct)
        if any(file.partitioned for file in files):
            self._base = {"basePath": self._only_root()}
        frames = [self._converted(spark, s, groups[s], struct) for s in raw]
        others = [url for s, group in groups.items() if s not in raw for url in group]
        if others:
            frames.append(super().rows(spark, list(map(paths.escaped, others)), struct))
        names = [col(name) for name in struct.names]
        return reduce(lambda one, more: one.unionAll(more), (f.select(*names) for f in frames))

    def _converted(
        self, spark: SparkSession, schema: bytes, urls: Sequence[str], struct: StructType
    ) -> DataFrame:
        """Return the rows of files of one schema whose values Spark reads raw."""
        forms = self._forms_of(spark, schema, urls[0])
        own = {field.name: field for field in self._raw_struct(spark, schema, urls[0])}
        in_folders = {field.name for field in self.partitions(spark)}
        fields = [f if f.name in in_folders else own.get(f.name) for f in struct]
        reader = self._reader(spark, schema).schema(StructType([f for f in fields if f]))
        frame = reader.load(list(map(paths.escaped, urls)))
        frame = frame.withColumn(FILE, F.input_file_name())
        # The Arrow types in which Spark takes columns.
        schema = pa.schema([(f.name, to_arrow_type(f.dataType)) for f in struct.fields])
        return frame.mapInArrow(AvroValues(forms, schema), struct)

    def _reader(self, spark: SparkSession, schema: bytes = b"{}") -> DataFrameReader:
        options = self.options()
        without_decimals = readable(schema)
        if without_decimals is not None:
            options["avroSchema"] = without_decimals
        return spark.read.format(self.kind).options(**options)

    def _raw_struct(self, spark: SparkSession, schema: bytes, url: str) -> StructType:
        return self._reader(spark, schema).load(paths.escaped(url)).schema

    def _struct(self, spark: SparkSession, schema: bytes, url: str) -> StructType:
        """Return the types that keep every value of files of a schema."""
        if self._is_by_option:
            return self._raw_struct(spark, schema, url)
        forms = self._forms_of(spark, schema, url)
        return StructType([StructField(name, form.dtype, True) for name, form in forms.items()])

    def _forms_of(self, spark: SparkSession, schema: bytes, url: str) -> dict[str, Form]:
        """Return the forms of the columns of files of a schema, one of which is given."""
        if schema not in self._forms:
            try:
                forms = forms_of(schema, self._raw_struct(spark, schema, url))
            except UnclearUnionError as error:
                problem = f"column '{error}' is a union whose types Spark does not tell apart"
                hint = "set the option 'avroSchema' to a schema without the column"
                raise self.error(problem, hint, shown(url)) from error
            self._forms[schema] = forms
        return self._forms[schema]

    def _is_as_read(self, spark: SparkSession, schema: bytes, url: str, struct: StructType) -> bool:
        """Return whether Spark reads the columns of files of a schema as they are meant."""
        forms = self._forms_of(spark, schema, url)
        return all(forms[f.name].is_of(f.dataType) for f in struct if f.name in forms)

    def _by_schema(self, files: Sequence[paths.ListedFile]) -> dict[bytes, list[str]]:
        groups: dict[bytes, list[str]] = {}
        for file in files:
            groups.setdefault(self._schema(file.url), []).append(file.url)
        return groups

    def _schema(self, url: str) -> bytes:
        if url not in self._schemas:
            try:
                with open_random(url) as opened:
                    self._schemas[url] = schema_text(cast("BinaryIO", opened))
            except (ValueError, EOFError) as error:
                raise self.error(f"it is not an Avro file: {error}", file=shown(url)) from error
        return self._schemas[url]


def schema_text(file: BinaryIO) -> bytes:
    """Read the schema from the header of an Avro file, unchanged.

    Raises:
        ValueError: It is not an Avro file.
        EOFError: The header is cut off.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not start with the Avro marker")
    while count := read_long(file):
        if count < 0:  # then the block's size in bytes follows
            read_long(file)
        for _ in range(abs(count)):
            key, value = read_bytes(file), read_bytes(file)
            if key == SCHEMA_KEY:
                return value
    raise ValueError("it has no schema")
