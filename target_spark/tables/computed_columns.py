"""Columns that a table computes itself: rows cannot set them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError, Where
from target_spark.core.load_plans import TableRequest


def without_computed(
    request: TableRequest, names: Mapping[str, str], computed: Collection[str], shown: str
) -> TableRequest:
    """Return a request without columns that the table computes.

    Args:
        request: The request.
        names: The stream's columns in the table.
        computed: The columns that the table computes.
        shown: Name of the table.

    Raises:
        SettingsError: One of them is a key.
    """
    if not computed:
        return request
    fields = [field for field in request.struct if names[field.name] not in computed]
    keys = [key for key in request.keys if names[key] in computed]
    if keys:
        raise SettingsError(
            f"the key '{keys[0]}' is a generated column of the table {shown}, which rows cannot "
            "set",
            where=Where(stream=request.stream),
            hint="name other `key_properties` in 'streams', or load it into another table",
        )
    return replace(request, struct=T.StructType(fields))
