"""Parquet files of BATCH messages whose columns a table has as they are.

Without further columns they become table files unchanged. On a local disk they are linked or copied
into the hidden folder of the run. On an object store the commit copies them within the store, so
that only their footers are read.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shared.formats.arrow_types import struct_to_arrow
from shared.formats.columnar_encoding import footer_facts, has_no_null
from shared.formats.row_groups import OTHER_BYTES, check_whole, packed_bytes, spark_reads
from shared.formats.schema_nodes import type_words
from shared.storage.access import StorageOptions, make_durable, remote
from shared.storage.files import open_random
from shared.storage.urls import Roots, join, local_path
from target_spark.convert.batch_files import batch_options, roots_of
from target_spark.convert.task_reports import columns_of
from target_spark.core.load_plans import Batch, InputFile, LoadResult, Part, TableRequest
from target_spark.destinations.destination import TableWrite
from target_spark.run_settings import TargetConfig
from target_spark.validation.columns import filled_properties

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_COMMON = frozenset(
    {"string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double",
     "decimal", "date", "timestamp", "timestamp_ntz"}
)  # fmt: skip
"""Spark types that every reader infers from the Parquet column itself."""
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
LEAST_REMOTE_BYTES = 1 << 20
"""Mean size of several remote files that are adopted: tasks write smaller ones into fewer files."""
_LOOKERS = 16
"""Threads that read footers: most of it is waiting."""
_CROSS_DEVICE = frozenset({errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK})


@dataclass(frozen=True)
class Adoption:
    """How batch files are adopted.

    Attributes:
        taken: Roots whose files `batch_config.cleanup` hands to the target: they are moved, others
            are copied.
        compression: The required compression; None for any.
        filled: Columns that must have a value in each row.
        adds_metadata: Tasks copy the columns, and add those of the record metadata.
    """

    taken: Roots
    compression: str | None
    options: StorageOptions
    filled: tuple[str, ...] = ()
    adds_metadata: bool = False

    def parts(self, batch: Batch, write: TableWrite) -> LoadResult | None:
        """Make parts of files without reading their rows; None if one must be read, or only
        executors see it.

        Raises:
            OSError: A part cannot be written.
        """
        fitting = partial(self._fitting_footer, struct_to_arrow(write.struct))
        with ThreadPoolExecutor(_LOOKERS, "footer") as lookers:
            footers = list(lookers.map(fitting, batch.files))
        if not footers or None in footers:
            return None
        full = [pair for pair in zip(batch.files, footers, strict=True) if pair[1].num_rows]
        parts = tuple(self._part(file, footer.num_rows, write) for file, footer in full)
        rows = sum(part.rows for part in parts)
        facts = columns_of([footer_facts(footer) for _, footer in full])
        return LoadResult(parts, rows, received=rows, columns=facts)

    def _fitting_footer(self, columns: pa.Schema, file: InputFile) -> Any:
        """Return the footer of a file that fits; None for any other."""
        from pyarrow import parquet  # noqa: PLC0415

        try:
            with (
                open_random(file.url, self.options, ahead=False) as source,
                parquet.ParquetFile(source) as result,
            ):
                footer, schema = result.metadata, result.schema_arrow
                packed = sum(map(packed_bytes, map(footer.row_group, range(footer.num_row_groups))))
                if source.size() > packed + footer.serialized_size + OTHER_BYTES:
                    check_whole(source, footer)
        except (OSError, pa.ArrowException):
            return None  # the read of its rows reports the error
        fits = _by_name(schema) == _by_name(columns) and self._is_packed_right(footer)
        return footer if fits and has_no_null(footer, self.filled) else None

    def _is_packed_right(self, footer: Any) -> bool:
        if not spark_reads(footer):
            return False
        if self.compression is None or not footer.num_row_groups:
            return True
        result = footer.row_group(0).column(0).compression.lower()
        return bool({"uncompressed": "none"}.get(result, result) == self.compression)

    def _part(self, file: InputFile, rows: int, write: TableWrite) -> Part:
        path = local_path(file.url)
        if path is None:
            return Part(file.url, rows, file.size or 0, is_lent=True)
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

    They must be read if the target checks more than types, has columns that are not of the stream's
    types, divides rows into folders, or does not write Parquet files of its own.
    """
    is_wanted = config.adopt_files and request.method == "append-only" and config.denormalized
    is_plain = write.encoding.format == "parquet" and not (
        write.sink or write.row_origin or write.partition_by
    )
    filled: tuple[str, ...] | None = ()
    if config.validate_records:
        filled = filled_properties(_without_bounds(request.schema, write.struct))
    if not (is_wanted and is_plain) or filled is None or not _is_common(request, write):
        return None
    if not (config.add_record_metadata or _are_within_reach(write, files, config)):
        return None
    batch = config.batch_config
    return Adoption(
        taken=roots_of(batch) if batch is not None and batch.cleanup else Roots([]),
        compression=write.encoding.compression if "compression" in config.options else None,
        options=batch_options(config),
        filled=(*keys, *filled),
        adds_metadata=config.add_record_metadata,
    )


def _is_common(request: TableRequest, write: TableWrite) -> bool:
    """Return whether every reader infers the table's types, which are the stream's, from files."""
    nodes = request.schema.get("properties", {}).values()
    words = [type_words(node) if isinstance(node, Mapping) else set() for node in nodes]
    is_exact = all(len(one - {"null"}) == 1 and not one & {"object", "array"} for one in words)
    asked, stored = ({f.name: f.dataType for f in one} for one in (request.struct, write.struct))
    names = {kind.typeName() for kind in asked.values()}
    return names <= _COMMON and asked == stored and is_exact


def _are_within_reach(write: TableWrite, files: Sequence[InputFile], config: TargetConfig) -> bool:
    """Return whether the driver, or the storage of the table, can take files into the table."""
    if not all(file.encoding.format == "parquet" for file in files):
        return False
    far = [file for file in files if local_path(file.url) is None]
    if local_path(write.pending) is not None:
        return not far
    if len(far) < len(files) or not write.copies_parts:
        return False
    is_small = sum(file.size or 0 for file in far) < LEAST_REMOTE_BYTES * len(far)
    if is_small and len(far) > 1:
        return False
    storage, options = remote(write.pending, write.options)[0], batch_options(config)
    # Equal ones have the same server and the same credentials.
    return all(remote(file.url, options)[0] == storage for file in far)


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


def _without_bounds(schema: Mapping[str, Any], table: StructType) -> dict[str, Any]:
    """Return a schema without the bounds that every number of the table's column keeps."""
    kinds = {field.name: field.dataType.typeName() for field in table}

    properties = dict(schema.get("properties", {}))
    for name, node in properties.items():
        if kinds.get(name) in _BITS and isinstance(node, Mapping):
            limit = 2 ** (_BITS[kinds[name]] - 1)
            implied = {
                "minimum": node.get("minimum", 0) <= -limit,
                "maximum": node.get("maximum", 0) >= limit - 1,
            }
            properties[name] = {key: node[key] for key in node if not implied.get(key)}
    return {**schema, "properties": properties}
