"""Parquet files of BATCH messages that become table files unchanged."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.formats.row_groups import parquet_profile
from shared.storage.files import StorageOptions, make_durable, open_random
from shared.storage.roots import Roots
from shared.storage.urls import join, local_path
from target_spark.convert.batch_files import batch_options, roots_of
from target_spark.convert.task_reports import columns_of
from target_spark.core.load_plans import Batch, InputFile, LoadResult, Part, TableRequest
from target_spark.destinations.destination import TableWrite

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from target_spark.run_settings import TargetConfig

_SAYS_NOTHING = frozenset(
    {"description", "title", "examples", "default", "additionalProperties", "$schema", "$id",
     "$comment", "$defs"}
)  # fmt: skip
_TYPES_ONLY = frozenset({"type", "properties", "items", "format"})
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_PLAIN = ("string", "integer", "number", "boolean", "object", "array", "null")
_FORMATS = ("date", "date-time")
_CROSS_DEVICE = frozenset({errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK})


@dataclass(frozen=True)
class Adoption:
    """How batch files are adopted.

    Attributes:
        taken: Roots whose files `batch_config.cleanup` hands to the target: they are moved, others
            are copied.
        compression: The required compression; None for any.
        options: Options of the storage of the files.
        keys: Columns that must have a value in each row.
    """

    taken: Roots
    compression: str | None
    options: StorageOptions
    keys: tuple[str, ...] = ()

    def parts(self, batch: Batch, write: TableWrite) -> LoadResult | None:
        """Make parts of the files of a batch without reading their rows.

        Returns:
            The parts; None if a file must be read, or if only executors can see it.

        Raises:
            OSError: A part cannot be written.
        """
        from shared.formats.json_schema import struct_to_arrow  # noqa: PLC0415

        columns = struct_to_arrow(write.struct)
        paths = [local_path(file.url) for file in batch.files]
        counts = [self._rows(file, path, columns) for file, path in zip(batch.files, paths)]  # noqa: B905
        if not counts or None in counts:
            return None
        parts = [
            self._part(path, rows, write)
            for path, rows in zip(paths, counts, strict=True)
            if path is not None and rows
        ]
        rows = sum(part.rows for part in parts)
        facts = [parquet_profile(part.url)[1] for part in parts]
        return LoadResult(tuple(parts), rows, received=rows, columns=columns_of(facts))

    def _rows(self, file: InputFile, path: str | None, columns: pa.Schema) -> int | None:
        """Return the number of rows of a file that fits; None for any other."""
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415

        if path is None or file.encoding.format != "parquet":
            return None
        try:
            with open_random(path, self.options) as source, parquet.ParquetFile(source) as result:
                footer, schema = result.metadata, result.schema_arrow
        except (OSError, pa.ArrowException):
            return None  # the read of its rows reports the error
        fits = _by_name(schema) == _by_name(columns) and self._is_packed_right(footer)
        return footer.num_rows if fits and _has_no_null(footer, self.keys) else None

    def _is_packed_right(self, footer: Any) -> bool:
        if self.compression is None or not footer.num_row_groups:
            return True
        result = footer.row_group(0).column(0).compression.lower()
        return bool({"uncompressed": "none"}.get(result, result) == self.compression)

    def _part(self, path: str, rows: int, write: TableWrite) -> Part:
        url = join(write.pending, f"{uuid.uuid4().hex}{''.join(Path(path).suffixes[-2:])}")
        if not (self.taken.hold(path) and _linked(path, url)):
            shutil.copyfile(path, url)
        make_durable(url)
        return Part(url, rows, os.path.getsize(url))  # noqa: PTH202


def adoption(
    config: TargetConfig,
    request: TableRequest,
    write: TableWrite,
    files: Sequence[InputFile],
    keys: tuple[str, ...] = (),
) -> Adoption | None:
    """Return how a table can adopt files; None if their rows must be read.

    They must be read if the target adds columns, checks more than types, divides rows into folders,
    or does not write Parquet files of its own.
    """
    is_wanted = config.adopt_files and request.method == "append-only" and config.denormalized
    is_plain = write.encoding.format == "parquet" and not (
        write.sink or write.row_number or write.row_origin or write.partition_by
    )
    checks = config.validate_records and not _only_types(
        _without_bounds(request.schema, write.struct)
    )
    is_here = local_path(write.pending) is not None and all(
        file.encoding.format == "parquet" for file in files
    )
    if not (is_wanted and is_plain and is_here) or config.add_record_metadata or checks:
        return None
    if not all(_is_common(field.dataType.typeName()) for field in request.struct):
        return None
    batch = config.batch_config
    return Adoption(
        taken=roots_of(batch) if batch is not None and batch.cleanup else Roots([]),
        compression=write.encoding.compression if "compression" in config.options else None,
        options=batch_options(config),
        keys=keys,
    )


def _has_no_null(footer: Any, names: Sequence[str]) -> bool:
    """Return whether a footer shows that columns have a value in each row."""
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    if not places.keys() >= set(names):
        return False
    for name in names:
        place = places[name]
        if footer.schema.column(place).max_definition_level == 0:
            continue  # declared so
        for group in range(footer.num_row_groups):
            statistics = footer.row_group(group).column(place).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                return False
    return True


def _by_name(columns: pa.Schema) -> list[tuple[str, str]]:
    """Return all columns in a canonical order; a duplicate name counts twice."""
    return sorted((field.name, str(field.type)) for field in columns)


def _linked(path: str, url: str) -> bool:
    """Link a file under a second name; return whether its file system supports that."""
    try:
        os.link(path, url)
    except OSError as error:
        if error.errno in _CROSS_DEVICE:
            return False
        raise
    return True


def _is_common(name: str) -> bool:
    """Return whether every reader infers this Spark type from the Parquet column itself."""
    return name in {
        "string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double",
        "decimal", "date", "timestamp", "timestamp_ntz",
    }  # fmt: skip


def _without_bounds(schema: Mapping[str, Any], table: StructType) -> dict[str, Any]:
    """Return a schema without the bounds that every number of the table's column keeps."""
    kinds = {field.name: field.dataType.typeName() for field in table}

    def plain(name: str, node: Any) -> Any:
        limit = 2 ** (_BITS[kinds[name]] - 1) if kinds.get(name) in _BITS else None
        if limit is None or not isinstance(node, Mapping):
            return node
        implied = {
            "minimum": node.get("minimum", 0) <= -limit,
            "maximum": node.get("maximum", 0) >= limit - 1,
        }
        return {key: value for key, value in node.items() if not implied.get(key)}

    properties = schema.get("properties", {})
    return {**schema, "properties": {n: plain(n, node) for n, node in properties.items()}}


def _only_types(node: Any) -> bool:
    """Return whether a schema asserts only types, and everything is nullable."""
    if not isinstance(node, Mapping):
        return False
    asks = {key for key in node if not key.startswith("x-") and key not in _SAYS_NOTHING}
    return asks <= _TYPES_ONLY and all(
        _is_nullable(below) for below in node.get("properties", {}).values()
    )


def _is_nullable(node: Any) -> bool:
    types = node.get("type") if isinstance(node, Mapping) else None
    return (
        isinstance(types, list)
        and "null" in types
        and set(types) <= set(_PLAIN)
        and node.get("format") in {None, *_FORMATS}
        and _only_types({key: value for key, value in node.items() if key != "type"})
    )
