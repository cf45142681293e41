"""Partitions and order of tables: columns, or Iceberg's transforms of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import SettingsError, Where
from target_spark.core.load_plans import TableRequest

_UNITS = ("year", "month", "day", "hour")
_TRANSFORM = re.compile(r"(?P<name>\w+)\s*\((?:\s*(?P<number>\d+)\s*,)?\s*(?P<column>.+?)\s*\)")


@dataclass(frozen=True)
class PartitionField:
    """One partition field.

    Attributes:
        column: Name in the stream.
        transform: `identity`, `years`, `months`, `days`, `hours`, `bucket` or `truncate`.
        number: Number of buckets, or the width; None for other transforms.
    """

    column: str
    transform: str = "identity"
    number: int | None = None


def partition_fields(request: TableRequest) -> tuple[PartitionField, ...]:
    """Return the partition fields that the settings ask for.

    Raises:
        SettingsError: The stream does not have the column, or the transform is unknown.
    """
    names = request.struct.names
    return tuple(_field(text, names, request.stream) for text in request.layout.partition_by)


def cluster_columns(request: TableRequest, verb: str) -> tuple[str, ...]:
    """Return the columns of `cluster_by`.

    The verb tells in messages what they do to the table: `cluster` or `sort`.

    Raises:
        SettingsError: The stream does not have one.
    """
    for name in request.layout.cluster_by:
        if name not in request.struct.names:
            text = f"the stream has no column '{name}' to {verb} its table by"
            raise _missing(text, request.stream, "cluster_by")
    return request.layout.cluster_by


def _field(text: str, names: Sequence[str], stream: str) -> PartitionField:
    if text in names:
        return PartitionField(text)
    match = _TRANSFORM.fullmatch(text.strip())
    field = PartitionField(text) if match is None else _transform(match)
    if field is None:
        raise SettingsError(
            f"'{text}' is not a column or a partition transform",
            where=Where(stream=stream, setting="partition_by"),
            hint="give a column, or years, months, days, hours(column), bucket(16, column) or "
            "truncate(4, column)",
        )
    if field.column not in names:
        text = f"the stream has no column '{field.column}' to partition its table by"
        raise _missing(text, stream, "partition_by")
    return field


def _missing(text: str, stream: str, setting: str) -> SettingsError:
    return SettingsError(
        text,
        where=Where(stream=stream, setting=setting),
        hint="select it in the tap, or name another column for this stream under `streams`",
    )


def _transform(result: re.Match[str]) -> PartitionField | None:
    name, number = result["name"].lower(), result["number"]
    column = result["column"].strip("`")
    unit = name.removesuffix("s")
    if unit in _UNITS and number is None:
        return PartitionField(column, f"{unit}s")
    if name in {"bucket", "truncate"} and number is not None and int(number) > 0:
        return PartitionField(column, name, int(number))
    return None
