"""Avro files: the columns of all files, not only of the one that Spark would read first."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, BinaryIO, cast

from pyspark.sql.types import StructField, StructType

from shared.errors import SingerSparkError
from shared.storage.files import open_random
from shared.types.merge_types import merge_structs
from tap_spark.sources.files import paths
from tap_spark.sources.files.columnar_files import ParquetSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAGIC = b"Obj\x01"
SCHEMA_KEY = b"avro.schema"
LONGEST_HEADER = 64 * 1024**2
"""Bound of memory: bytes of a value in a header."""
_MORE = 0x80


class AvroSource(ParquetSource):
    """Avro files; a column that only some files have is null in the others."""

    kind = "avro"

    def _all(self, spark: SparkSession) -> StructType:
        options = self.options()
        reader = spark.read.format(self.kind).options(**options)
        if self.option("avroSchema") or self.option("avroSchemaUrl"):
            return reader.load(self.paths).schema
        files = [file for file in paths.list_files(tuple(self.paths)) if file.size]
        if not files:
            raise self.error("the files have no columns", "set 'schema'", self.shown_path())
        found = [reader.load(paths.spark_url(url)).schema for url in self._one_of_each(files)]
        try:
            struct = reduce(merge_structs, found)
        except SingerSparkError as error:
            raise self.error(
                f"the files disagree: {error.message}", "set 'schema'", self.shown_path()
            ) from error
        if any(file.partitioned for file in files):
            struct = _joined(struct, reader.load(self.paths).schema)
        return StructType([StructField(f.name, f.dataType, True) for f in struct.fields])

    def _one_of_each(self, files: list[paths.ListedFile]) -> list[str]:
        """Choose one file of every distinct schema."""
        examples: dict[bytes, str] = {}
        for file in files:
            try:
                with open_random(file.url) as opened:
                    schema = schema_text(cast("BinaryIO", opened))
            except (ValueError, EOFError) as error:
                where = paths.display(file.url)
                raise self.error(f"it is not an Avro file: {error}", file=where) from error
            examples.setdefault(schema, file.url)
        return list(examples.values())


def schema_text(file: BinaryIO) -> bytes:
    """Read the schema from the header of an Avro file, unchanged.

    Args:
        file: The file, at its start.

    Raises:
        ValueError: It is not an Avro file.
        EOFError: The header is cut off.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not start with the Avro marker")
    while count := _long(file):
        if count < 0:  # then the block's size in bytes follows
            _long(file)
        for _ in range(abs(count)):
            key, value = _bytes(file), _bytes(file)
            if key == SCHEMA_KEY:
                return value
    raise ValueError("it has no schema")


def _bytes(file: BinaryIO) -> bytes:
    size = _long(file)
    if not 0 <= size <= LONGEST_HEADER:
        raise ValueError("its header is damaged")
    data = file.read(size)
    if len(data) != size:
        raise EOFError("it ends within its header")
    return bytes(data)


def _long(file: BinaryIO) -> int:
    """Read an integer in Avro's zigzag form."""
    value, shift = 0, 0
    while True:
        byte = file.read(1)
        if not byte:
            raise EOFError("it ends within its header")
        value |= (byte[0] & ~_MORE) << shift
        shift += 7
        if not byte[0] & _MORE:
            return (value >> 1) ^ -(value & 1)
        if shift > 63:  # noqa: PLR2004
            raise ValueError("its header is damaged")


def _joined(struct: StructType, partitioned: StructType) -> StructType:
    """Add the columns that Spark reads from `name=value` folders."""
    known = set(struct.names)
    return StructType([*struct.fields, *(f for f in partitioned.fields if f.name not in known)])
