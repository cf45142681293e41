"""Rows of Iceberg's data files in Arrow: read by the identifiers of columns, and written."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.storage.urls import local_path
from target_spark.destinations.lakes.iceberg.iceberg_metadata import Metadata
from target_spark.destinations.lakes.lake_format import NeedsSparkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile

CHUNK = 64 << 20
"""Bytes of rows in memory that are changed and written at once."""
_BATCH_ROWS = 1 << 16
_FILE_SIZE = "write.target-file-size-bytes"
_DEFAULT_SIZE = 512 << 20
_CODEC = "write.parquet.compression-codec"
_ID = b"PARQUET:field_id"


class Columns:
    """The columns of a table, in Arrow and in files.

    Attributes:
        names: Their names in the table.
        files: Their fields in files, with identifiers; names may be others.
        required: The names of those that are NOT NULL.
        identifiers: Name → identifier.

    Raises:
        NeedsSparkError: Files cannot be read and written without Spark.
    """

    def __init__(self, base: Metadata) -> None:
        import pyarrow as pa  # noqa: PLC0415
        from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415
        from pyiceberg.schema import Schema, sanitize_column_names  # noqa: PLC0415

        fields = base.schema["fields"]
        self.names = [field["name"] for field in fields]
        self.identifiers = {field["name"]: int(field["id"]) for field in fields}
        self.required = [field["name"] for field in fields if field["required"]]
        self.schema = sanitize_column_names(Schema.model_validate(base.schema))
        self.files = pa.schema([_plain(field) for field in schema_to_pyarrow(self.schema)])
        if any("." in name for name in self.files.names):
            raise NeedsSparkError

    def field(self, name: str) -> pa.Field:
        """Return the field of a column in files."""
        return self.files.field(self.names.index(name))

    def empty(self) -> pa.Table:
        """Return no rows."""
        return self.files.empty_table().rename_columns(self.names)

    def known(self, rows: pa.Table) -> pa.Table:
        """Return rows of parts with the types of files.

        Raises:
            NeedsSparkError: The types of the parts are others.
        """
        import pyarrow as pa  # noqa: PLC0415

        columns = []
        for name in rows.column_names:
            kind, column = self.field(name).type, rows[name]
            if _shape(kind, ids=False) != _shape(column.type, ids=False):
                raise NeedsSparkError
            columns.append(column.cast(kind))
        return pa.table(columns, names=rows.column_names)

    def filled(self, rows: pa.Table) -> pa.Table:
        """Return rows with all columns of the table; those that they lack are null."""
        import pyarrow as pa  # noqa: PLC0415

        stored = dict(zip(rows.column_names, rows.columns, strict=True))
        columns = [
            stored[name] if name in stored else pa.nulls(rows.num_rows, self.field(name).type)
            for name in self.names
        ]
        return pa.table(columns, names=self.names)

    def chunks(self, file: DataFile, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of a file, some at a time.

        Raises:
            NeedsSparkError: Its columns have no identifiers, or other types inside of others.
        """
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415

        with parquet.ParquetFile(_path(file)) as opened:
            known = {int((f.metadata or {}).get(_ID, -1)): f for f in opened.schema_arrow}
            if -1 in known or "." in "".join(opened.schema_arrow.names):
                raise NeedsSparkError
            found = {name: known.get(self.identifiers[name]) for name in names}
            read = [field.name for field in found.values() if field is not None]
            waiting: list[pa.Table] = []
            size = 0
            for batch in opened.iter_batches(_batch_rows(opened), columns=read or None):
                columns = [self._column(name, found[name], batch) for name in names]
                waiting.append(pa.table(columns, names=list(names)))
                size += waiting[-1].nbytes
                if size >= CHUNK:
                    yield pa.concat_tables(waiting)
                    waiting, size = [], 0
            if waiting:
                yield pa.concat_tables(waiting)

    def _column(self, name: str, found: pa.Field | None, batch: pa.RecordBatch) -> Any:
        import pyarrow as pa  # noqa: PLC0415

        kind = self.field(name).type
        if found is None:
            return pa.nulls(batch.num_rows, kind)
        if not _reads_as(found.type, kind):
            raise NeedsSparkError
        return batch.column(found.name).cast(kind)


class DataFileWriter:
    """Writes rows into new files of a table.

    Args:
        base: The table.
        columns: Its columns.
        written: Gets the files that are written.
    """

    def __init__(self, base: Metadata, columns: Columns, written: list[Path]) -> None:
        self._base, self._columns, self._written = base, columns, written
        self._most = int(base.properties.get(_FILE_SIZE, _DEFAULT_SIZE))
        self._files: list[DataFile] = []
        self._path = Path()
        self._sink: Any = None
        self._writer: Any = None

    def write(self, rows: pa.Table) -> None:
        """Write rows with all columns of the table.

        Raises:
            NeedsSparkError: A NOT NULL column is null: Spark says so.
        """
        if any(rows[name].null_count for name in self._columns.required):
            raise NeedsSparkError
        step = max(1, rows.num_rows * min(CHUNK, self._most) // max(rows.nbytes, 1))
        for first in range(0, rows.num_rows, step):
            self._write(rows.slice(first, step))

    def _write(self, rows: pa.Table) -> None:
        import pyarrow as pa  # noqa: PLC0415

        files = self._columns.files
        pairs = zip(self._columns.names, files, strict=True)
        columns = [rows[name].cast(field.type) for name, field in pairs]
        stored = pa.Table.from_arrays(columns, schema=files)
        self._open(stored)
        self._writer.write_table(stored)
        if self._sink.tell() >= self._most:
            self._end()

    def close(self) -> list[DataFile]:
        """Return the new files."""
        self._end()
        return self._files

    def _open(self, first: pa.Table) -> None:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415

        from shared.formats.dictionary_columns import dictionary_paths  # noqa: PLC0415

        if self._writer is not None:
            return
        folder = self._base.path.parent.parent / "data"
        folder.mkdir(exist_ok=True)
        self._path = folder / f"{len(self._files):05d}-0-{uuid.uuid4()}.parquet"
        self._written.append(self._path)
        self._sink = pa.OSFile(str(self._path), "wb")
        self._writer = parquet.ParquetWriter(
            self._sink,
            self._columns.files,
            compression=self._base.properties.get(_CODEC, "zstd"),
            use_dictionary=dictionary_paths(first),
            store_decimal_as_integer=True,
            store_schema=False,
        )

    def _end(self) -> None:
        writer, sink, self._writer = self._writer, self._sink, None
        if writer is not None:
            with sink:
                writer.close()
            self._files.append(self._described(writer.writer.metadata))

    def _described(self, footer: Any) -> DataFile:
        """Return a file with its statistics.

        Raises:
            NeedsSparkError: Python has no such date: before year 1 or after 9999.
        """
        from pyiceberg.io.pyarrow import (  # noqa: PLC0415
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat  # noqa: PLC0415
        from pyiceberg.typedef import Record  # noqa: PLC0415

        # It warns of columns whose texts are too long for bounds.
        logging.getLogger("pyiceberg").setLevel(logging.ERROR)
        schema = self._columns.schema
        plan = compute_statistics_plan(schema, dict(self._base.properties))
        ids = parquet_path_to_id_mapping(schema)
        try:
            found = data_file_statistics_from_parquet_metadata(
                footer, plan, ids
            ).to_serialized_dict()
        except (OverflowError, ValueError) as error:
            raise NeedsSparkError from error
        unknown = {ids[path] for path in _without_bounds(footer)}
        for name in ("lower_bounds", "upper_bounds"):
            found[name] = {n: bound for n, bound in found[name].items() if n not in unknown}
        location = self._base.content["location"].rstrip("/")
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{location}/data/{self._path.name}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=self._path.stat().st_size,
            sort_order_id=None,
            spec_id=self._base.content["default-spec-id"],
            equality_ids=None,
            key_metadata=None,
            **found,
        )


def _without_bounds(footer: Any) -> set[str]:
    """Return the columns with values in a row group that has no bounds of them, as of long texts.

    The package takes the bounds of the other row groups for those of the file.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(footer.num_columns)]
    pairs = [(chunk.path_in_schema, chunk.statistics) for chunk in chunks]
    return {
        path for path, told in pairs if told is None or (told.num_values and not told.has_min_max)
    }


def _path(file: DataFile) -> str:
    path = local_path(file.file_path)
    if path is None:
        raise NeedsSparkError
    return path


def _batch_rows(file: Any) -> int:
    """Return how many rows of a file to read at once: some MiB of them."""
    footer = file.metadata
    size = sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups))
    return int(max(1, min(_BATCH_ROWS, (CHUNK // 4) * footer.num_rows // max(size, 1))))


def _plain(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type)).with_metadata({_ID: field.metadata[_ID]})


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without 64-bit offsets, as parts and files have it.

    Raises:
        NeedsSparkError: It has NOT NULL inside.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import types  # noqa: PLC0415

    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if not types.is_nested(kind):
        return kind
    if types.is_map(kind):
        if not kind.item_field.nullable:
            raise NeedsSparkError
        return pa.map_(_plain(kind.key_field), _plain(kind.item_field))
    inside = [kind.field(number) for number in range(kind.num_fields)]
    if not all(field.nullable for field in inside):
        raise NeedsSparkError
    if types.is_struct(kind):
        return pa.struct(map(_plain, inside))
    return pa.list_(_plain(inside[0]))


def _shape(kind: pa.DataType, *, ids: bool) -> Any:
    """Return what is equal for equal types: names, types and identifiers of nested fields."""
    from pyarrow import types  # noqa: PLC0415

    if not types.is_nested(kind):
        return str(kind)
    if types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
    else:
        fields = [kind.field(number) for number in range(kind.num_fields)]
    named = types.is_struct(kind)
    return kind.id, [
        (
            field.name if named else None,
            (field.metadata or {}).get(_ID) if ids else None,
            _shape(field.type, ids=ids),
        )
        for field in fields
    ]


def _reads_as(found: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a column of a file has the table's type now, or was widened to it."""
    from pyarrow import types  # noqa: PLC0415

    if _shape(found, ids=True) == _shape(kind, ids=True):
        return True
    if types.is_decimal(found) and types.is_decimal(kind):
        return bool(found.scale == kind.scale and found.precision <= kind.precision)
    widened = (types.is_int32, types.is_int64), (types.is_float32, types.is_float64)
    return any(old(found) and new(kind) for old, new in widened)
