"""Tables of files beside the files of a run: both are read by Spark in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, DataFrameReader, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType

from shared.errors import SettingsError, Where
from shared.maps.record_metadata import DELETED_AT, METADATA
from shared.settings.texts import quoted
from shared.spark.s3a import s3a_options
from shared.storage.urls import S3_SCHEMES, join, local_path
from target_spark.core.differences import Verification
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.files.stored_columns import TableSchema, read_table_schema
from target_spark.destinations.folders.stored_folder import TableFolder
from target_spark.destinations.folders.table_folder import writing
from target_spark.destinations.operations import Operations, missing_table
from target_spark.operate.row_comparison import RowComparison

if TYPE_CHECKING:
    from target_spark.destinations.files.file_destination import FileDestination

_FILE, _PART, _BLOCK, _ROW, _RANK = "__file", "__part", "__block", "__row", "__rank"


@dataclass
class FileOperations(Operations):
    """See `Operations`.

    Raises:
        SettingsError: Spark cannot read the storage of tables that are to be compared.
    """

    destination: FileDestination

    def __post_init__(self) -> None:
        path = self.destination.path
        if local_path(path) is None and not path.startswith(S3_SCHEMES):
            raise SettingsError(
                "files can only be compared on a local disk and on S3", where=Where(setting="path")
            )

    def verify(self, flushes: Sequence[Flush], wanted: Verification) -> None:
        """See `Operations`. Files are not repaired."""
        destination, request, spark = self.destination, flushes[-1].request, self.tools.spark()
        folder = destination.folder(request)
        shown = destination.table(request.name).shown
        with writing(folder.table, destination.options):
            table = read_table_schema(folder, destination.encoding.format)
            if table is None:
                raise missing_table(shown, request.stream, repairs=False)
            reader = spark.read.options(**s3a_options(destination.options.for_url(folder.table)))
            source = _source(spark, reader, flushes)
            sides, lacking = _sides(source, _table(spark, reader, folder, table), request, wanted)
            result = sides.difference(request.stream, shown, lacking)
        wanted.report(result)
        destination.finish(request)


def _sides(
    source: DataFrame, rows: DataFrame, request: TableRequest, wanted: Verification
) -> tuple[RowComparison, tuple[str, ...]]:
    """Return both sides, and the stream's columns that the table lacks."""
    if DELETED_AT in source.columns:
        source = source.where(F.col(DELETED_AT).isNull())
    if DELETED_AT in rows.columns:
        rows = rows.where(F.col(DELETED_AT).isNull())
    own = [name for name in source.columns if not name.startswith(METADATA)]
    columns = [name for name in own if name in rows.columns]
    lacking = tuple(name for name in own if name not in rows.columns)
    sides = RowComparison(
        source.select(*map(quoted, columns)),
        rows,
        request.keys,
        request.keys if wanted.deletes else columns,
        wanted.ranges,
        kinds=wanted.kinds,
    )
    return sides, () if wanted.deletes else lacking


def _table(
    spark: SparkSession, reader: DataFrameReader, folder: TableFolder, table: TableSchema
) -> DataFrame:
    urls = [join(folder.table, name) for name in folder.files()]
    if not urls:
        return spark.createDataFrame([], _read_struct(table.format, table.struct))
    return _read(reader, table.format, table.struct, urls, folder.table)


def _source(spark: SparkSession, reader: DataFrameReader, held: Sequence[Flush]) -> DataFrame:
    """Return the last row of each key, with the columns of all flushes."""
    keys = held[-1].request.keys
    parts = [(one, part.url) for one in held for part in one.parts if part.rows]
    write = held[-1].write
    form = write.encoding.format
    if not parts:
        return spark.createDataFrame([], _read_struct(form, write.struct))
    frames = []
    for struct in {one.write.struct.json(): one.write.struct for one, _ in parts}.values():
        urls = [url for one, url in parts if one.write.struct == struct]
        files = _read(reader, form, struct, urls, write.pending)
        frames.append(
            files.select(
                "*",
                F.col("_metadata.file_name").alias(_FILE),
                F.col("_metadata.file_block_start").alias(_BLOCK),
                F.monotonically_increasing_id().alias(_ROW),
            )
        )
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    numbers = [(url.rpartition("/")[2], number) for number, (_, url) in enumerate(parts)]
    order = spark.createDataFrame(numbers, f"{_FILE} string, {_PART} long")
    last = Window.partitionBy(*map(quoted, keys)).orderBy(
        *(F.col(name).desc() for name in (_PART, _BLOCK, _ROW))
    )
    ranked = rows.join(F.broadcast(order), _FILE).withColumn(_RANK, F.row_number().over(last))
    return ranked.where(F.col(_RANK) == 1).drop(_FILE, _PART, _BLOCK, _ROW, _RANK)


def _read(
    reader: DataFrameReader, form: str, struct: StructType, urls: Sequence[str], base: str
) -> DataFrame:
    options: dict[str, Any] = {"basePath": base}
    if form == "csv":
        options |= {"header": True, "multiLine": True, "escape": '"', "mode": "FAILFAST"}
    return reader.load(list(urls), form, _read_struct(form, struct), **options)


def _read_struct(form: str, struct: StructType) -> StructType:
    """Return the columns to read: texts have the same form on both sides."""
    if form != "csv":
        return struct
    return reduce(lambda read, field: read.add(field.name, StringType()), struct, StructType())
