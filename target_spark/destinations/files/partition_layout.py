"""Partitions of file tables: which columns name folders, and what folders are named. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from shared.storage.urls import join
from target_spark.tables.evolution import partition_fields

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from target_spark.core.load_plans import TableRequest

LONGEST_NAME = 255
"""Bytes that file systems allow in a name."""
NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_TYPES = frozenset({"string", "boolean", "byte", "short", "integer", "long", "date"})
"""Types whose values are the same after a way through the name of a folder."""
_OTHER = "name another column for this stream under `streams`"


class PartitionError(Exception):
    """Rows cannot be divided into folders; says why."""


def partition_columns(
    request: TableRequest, columns: StructType, table: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the columns whose values name the folders of a table: by the settings, or its own.

    Args:
        request: The request of the stream.
        columns: All columns of the table.
        table: Those by which it is divided; None if it does not exist or is replaced.

    Raises:
        SettingsError: The settings ask for others than the table has, or for what cannot be.
        DestinationError: The stream lacks a column.
    """
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


def partition_folder(name: str, value: str | None) -> str:
    """Return the folder of a value, as Hive and Spark name it; null and an empty text share one.

    Raises:
        PartitionError: The name would be too long.
    """
    text = f"{_escaped(name)}={_escaped(value) if value else NULL_VALUE}"
    if len(text.encode()) > LONGEST_NAME:
        raise PartitionError(
            f"a value of the partition column '{name}' is too long for the name of a folder: "
            f"'{(value or '')[:40]}...'"
        )
    return text


def beside(name: str, other: str) -> str:
    """Return another file's name in the folder of the first."""
    folder = name.rpartition("/")[0]
    return join(folder, other) if folder else other


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


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
        if name.startswith((".", "_")):
            yield f"files cannot be partitioned by '{name}': readers skip folders of such names"
    if names and len(names) == len(columns):
        yield "the files would have no columns"


def _refusal(request: TableRequest, text: str, hint: str) -> SettingsError:
    where = Where(stream=request.stream, setting="partition_by")
    return SettingsError(text, where=where, hint=hint)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
