"""Columns of file tables: kept in a side file, merged with those of each stream, naming folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from shared.errors import DestinationError, SettingsError, Where
from shared.formats.arrow_types import SPARK_ROW_METADATA, as_nullable, struct_to_arrow
from shared.formats.file_formats import FORMATS
from shared.formats.json_schema import merge_structs, shown_type, without_new_fields
from shared.maps.record_metadata import VERSION_COLUMNS
from shared.singer.run_report import CREATED
from shared.storage.access import remote
from shared.storage.files import open_random
from shared.storage.urls import join, local_path, shown
from target_spark.core.load_plans import (
    DISCARD,
    EVOLVE,
    FREEZE,
    TableRequest,
    contract_error,
    rules_error,
)
from target_spark.destinations.folders.stored_folder import TableFolder
from target_spark.destinations.folders.table_folder import case_collisions, is_ours, visible

_TYPES = frozenset({"string", "boolean", "byte", "short", "integer", "long", "date"})
"""Types whose values are the same after a way through the name of a folder."""
_OTHER = "name another column for this stream under `streams`"


def partition_columns(
    request: TableRequest, columns: StructType, table: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the columns whose values name the folders of a table: by the settings, or its own.

    `table` are those by which it is divided; None if it does not exist or is replaced.

    Raises:
        SettingsError: The settings ask for others than the table has, or for what cannot be.
        DestinationError: The stream lacks a column.
    """
    if not (request.layout.partition_by or table):
        return ()
    from target_spark.tables.partitions import partition_fields  # noqa: PLC0415

    fields = partition_fields(request)
    for field in fields:
        if field.transform != "identity":
            text = f"files can be partitioned only by columns, not by {field.transform} of one"
            raise _refusal(request, text, _OTHER)
    wanted = tuple(field.column for field in fields)
    if table is not None and wanted not in {(), table}:
        text = f"the files of the table are divided by {_listed(table)}, not by {_listed(wanted)}"
        hint = "load into another table, or replace it by `load_method: overwrite`"
        raise _refusal(request, text, hint)
    result = wanted if table is None else table
    for problem in _problems(result, columns):
        raise _refusal(request, problem, _OTHER)
    return result


def beside(name: str, other: str) -> str:
    """Return another file's name in the folder of the first."""
    folder = name.rpartition("/")[0]
    return join(folder, other) if folder else other


def _problems(names: tuple[str, ...], columns: StructType) -> Iterable[str]:
    if len(set(names)) < len(names):
        yield "a column is named twice"
    for name in names:
        kind = columns[name].dataType
        if kind.typeName() not in _TYPES:
            yield (
                f"files cannot be partitioned by '{name}' ({kind.simpleString()}), only by texts, "
                "integers, booleans and dates"
            )
        if not visible(name):
            yield f"files cannot be partitioned by '{name}': readers skip folders of such names"
    if names and len(names) == len(columns):
        yield "the files would have no columns"


def _refusal(request: TableRequest, text: str, hint: str) -> SettingsError:
    where = Where(stream=request.stream, setting="partition_by")
    return SettingsError(text, where=where, hint=hint)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


_ORIGIN = "target-spark"


@dataclass(frozen=True)
class TableSchema:
    """The content of a table's side file: its format and exact columns.

    Attributes:
        format: Format of the files.
        struct: All columns, in their order.
        partition_by: Those that name folders, which the files lack.
        source: Name of what all rows come from, see `StreamSchema`; None if that is not known.
    """

    format: str
    struct: StructType
    partition_by: tuple[str, ...] = ()
    source: str | None = None

    def to_bytes(self) -> bytes:
        """Return the content of the side file."""
        content = {"origin": _ORIGIN, "format": self.format, "columns": self.struct.jsonValue()}
        if self.partition_by:
            content["partition_by"] = self.partition_by
        if self.source is not None:
            content["source"] = self.source
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> TableSchema:
        """Return the parsed content of a side file; raise ValueError or KeyError if malformed."""
        content = json.loads(data)
        struct = StructType.fromJson(content["columns"])
        partition_by, source = tuple(content.get("partition_by", ())), content.get("source")
        return cls(str(content["format"]), struct, partition_by, source)


def read_table_schema(folder: TableFolder, format_name: str) -> TableSchema | None:
    """Return the columns of an existing table; None if it does not exist yet.

    Raises:
        DestinationError: The folder does not hold a table of this format.
    """
    data = folder.side()
    if data is None:
        names = folder.files()
        return _foreign_schema(folder, names, format_name) if names else None
    try:
        table = TableSchema.from_bytes(data)
    except (ValueError, KeyError, TypeError) as error:
        raise _unusable(folder, f"its side file cannot be read: {error}") from error
    if table.format != format_name:
        raise _unusable(folder, f"it holds {table.format} files and `format` is {format_name}")
    return table


def merge_columns(old: StructType | None, new: StructType, path: str) -> StructType:
    """Return the columns that hold rows of both: old ones, then new ones, with widened types.

    All are nullable, as in every table that Spark writes.

    Raises:
        SettingsError: Types cannot be widened, or names differ only in case.
    """
    merged: StructType = as_nullable(new if old is None else merge_structs(old, new))
    for names in case_collisions(merged.names):
        raise SettingsError(
            f"columns {', '.join(map(repr, names))} of '{shown(path)}' differ only in case",
            hint="rename or deselect one of them; most readers ignore case",
        )
    if not merged.names:
        raise SettingsError(f"the table '{shown(path)}' would have no columns")
    return merged


def contracted(old: StructType, request: TableRequest) -> StructType:
    """Return the stream's columns that its contract lets into a table, without rows the new ones.

    Raises:
        SettingsError: The table would change, and must not.
    """
    contract, new = request.contract, request.struct
    existing = {field.name: field.dataType for field in old}
    columns: list[StructField] = []
    for column in new:
        if column.name not in existing:
            if contract.columns == FREEZE or (
                contract.columns == DISCARD and column.name in VERSION_COLUMNS
            ):
                what = f"the table has no column '{column.name}'"
                raise contract_error(request.stream, "columns", what)
            if contract.columns == EVOLVE:
                columns.append(column)
            continue
        dtype, before = column.dataType, existing[column.name]
        if not request.has_rows:
            continue
        if contract.columns == DISCARD:
            dtype = without_new_fields(dtype, before)
        columns.append(StructField(column.name, dtype, column.nullable))
        _check_type(request, columns[-1], before)
    return StructType(columns)


def _check_type(request: TableRequest, column: StructField, before: DataType) -> None:
    contract = request.contract
    if contract.types == EVOLVE and contract.columns == EVOLVE:
        return
    plain = without_new_fields(column.dataType, before)
    if contract.types != EVOLVE and not _holds(before, plain):
        what = (
            f"column '{column.name}' is {before.simpleString()} in the table and "
            f"{column.dataType.simpleString()} in the stream"
        )
        raise contract_error(request.stream, "types", what)
    if contract.columns == FREEZE and not is_same(plain, column.dataType):
        what = f"the table lacks a field of the column '{column.name}'"
        raise contract_error(request.stream, "columns", what)


def _holds(old: DataType, new: DataType) -> bool:
    before = StructType().add("c", old)
    try:
        return is_same(as_nullable(merge_structs(before, StructType().add("c", new))), before)
    except SettingsError:
        return False


def is_same(one: DataType, other: DataType) -> bool:
    """Return whether two types are equal, apart from what may be null."""
    return bool(as_nullable(one) == as_nullable(other))


def must_rewrite(format_name: str, old: StructType, new: StructType) -> bool:
    """Return whether files with the old columns must get the new ones: all files have the same.

    Readers take the columns of a folder from any of its files. CSV carries a header without types;
    JSON needs neither.
    """
    if format_name == "json":
        return False
    if old.names != new.names:
        return True
    return format_name != "csv" and struct_to_arrow(old).types != struct_to_arrow(new).types


def struct_change(old: StructType | None, new: Sequence[StructField]) -> tuple[str, ...]:
    """Return how the columns of a table become others; none for no change.

    `old` is None for a table that does not exist; `new` has all names of the old ones.
    """
    if old is None:
        columns = ", ".join(f"{column.name} {shown_type(column.dataType)}" for column in new)
        return (f"{CREATED}{columns}",)
    existing = {column.name: column.dataType for column in old}
    added = (
        f"add the column '{column.name}' ({shown_type(column.dataType)})"
        for column in new
        if column.name not in existing
    )
    widened = (
        f"widen '{column.name}' from {shown_type(existing[column.name])} to "
        f"{shown_type(column.dataType)}"
        for column in new
        if existing.get(column.name, column.dataType) != column.dataType
    )
    return (*added, *widened)


def check_ours(
    names: Iterable[str], old: StructType, new: StructType, request: TableRequest
) -> None:
    """Raise a SettingsError if files of other programs would be rewritten with other columns."""
    if request.contract.rules == EVOLVE:
        return
    for name in names:
        if not is_ours(name):
            changes = "; ".join(struct_change(old, new.fields)) or "reorder columns"
            raise rules_error(
                request.stream,
                f"files of another program, such as '{name}', would be rewritten ({changes})",
                "leave these columns out (`add_record_metadata` adds some), or load into "
                "another folder",
            )


def check_replaced(names: Iterable[str], request: TableRequest) -> None:
    """Raise a SettingsError if `overwrite` would remove files of other programs."""
    if request.contract.rules == EVOLVE:
        return
    for name in names:
        if not is_ours(name):
            raise rules_error(
                request.stream,
                f"'overwrite' would remove files of another program, such as '{name}'",
                "load into another folder",
            )


def data_files(folder: TableFolder, format_name: str) -> tuple[str, ...]:
    """Return the names of visible files of a format; others in the folder stay as they are."""
    return tuple(name for name in folder.files() if _is_data(name, format_name))


def _is_data(name: str, format_name: str) -> bool:
    form = FORMATS[format_name]
    return name.endswith(tuple(map(form.extension, form.compressions)))


def _foreign_schema(folder: TableFolder, names: tuple[str, ...], format_name: str) -> TableSchema:
    """Return the union of the columns in the files of a table written by other programs."""
    if _is_delta(folder):
        raise _unusable(folder, "it is a Delta table")
    for name in names:
        if "/" in name:
            raise _unusable(folder, f"its folders like '{name}' were not made by target-spark")
        if not _is_data(name, format_name):
            raise _unusable(folder, f"'{name}' in it is not a {format_name} file")
    if format_name not in {"parquet", "orc"}:
        raise _unusable(folder, f"its {format_name} files were not written by target-spark")
    structs = list(_footers(folder, names, format_name))
    union = structs[0]
    for struct in structs[1:]:
        union = merge_columns(union, struct, folder.table)
    if any(must_rewrite(format_name, struct, union) for struct in structs):
        raise _unusable(folder, "its files have different types for the same column")
    return TableSchema(format_name, union)


def _is_delta(folder: TableFolder) -> bool:
    log = join(folder.table, "_delta_log")
    if local_path(log) is not None:
        return Path(log).exists()
    filesystem, path = remote(log, folder.options)
    return bool(filesystem.exists(path))


def _footers(folder: TableFolder, names: tuple[str, ...], format_name: str) -> Iterator[StructType]:
    from pyarrow import orc, parquet  # noqa: PLC0415

    for name in names:
        try:
            with open_random(join(folder.table, name), folder.options) as source:
                # Times without a zone are instants in ORC, and in Parquet as `INT96`.
                if format_name == "orc":
                    schema: Any = orc.ORCFile(source).schema
                    is_instant = True
                else:
                    file = parquet.ParquetFile(source)
                    leaves = map(file.schema.column, range(len(file.schema)))
                    schema = file.schema_arrow
                    is_instant = any(leaf.physical_type == "INT96" for leaf in leaves)
        except (OSError, pa.ArrowException) as error:
            raise _unusable(folder, f"'{name}' in it cannot be read: {error}") from error
        own = (schema.metadata or {}).get(SPARK_ROW_METADATA)
        if own:
            yield StructType.fromJson(json.loads(own))
        else:
            fields = (_spark_field(folder, name, field, is_instant) for field in schema)
            yield StructType(list(fields))


def _spark_field(folder: TableFolder, name: str, field: pa.Field, is_instant: bool) -> StructField:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    try:
        struct = from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=not is_instant)
        struct_to_arrow(struct)  # Refuses decimals of too many digits.
    except (TypeError, ValueError) as error:
        text = f"column '{field.name}' of '{name}' in it is {field.type}, a type that Spark lacks"
        raise _unusable(folder, text) from error
    return struct.fields[0]


def _unusable(folder: TableFolder, why: str) -> DestinationError:
    return DestinationError(
        f"the folder '{shown(folder.table)}' cannot be written to: {why}",
        hint="set another `path` or `table_prefix`, or move the folder away",
        lasts=True,
    )
