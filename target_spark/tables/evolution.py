"""Schema evolution: the change that lets a table hold the rows of a stream. Pure.

Rows cannot set columns that a table computes itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from shared.errors import SettingsError, Where
from shared.formats.arrow_types import as_nullable
from shared.formats.spark_types import T
from target_spark.core.load_plans import TableRequest
from target_spark.tables.table_changes import (
    OURS,
    Capabilities,
    Column,
    NameRules,
    Projected,
    TableChange,
    assign_names,
    comment_of,
    legal_type,
    of_columns,
)

Planner = Callable[[T.StructType | None, TableRequest, Mapping[str, str]], TableChange]
"""Plans the change from columns, request and names of columns."""


def plan_change(
    table: T.StructType | None,
    request: TableRequest,
    rules: NameRules,
    conflicts: str,
    can: Capabilities,
    renamed: Mapping[str, str],
) -> TableChange:
    """Plan the change that lets a table hold the rows of a stream.

    Args:
        table: Its current columns, `nullable` false for NOT NULL; None if it does not exist.
        request: The stream's request; its struct has types that the format can store.
        rules: The names that the format can hold.
        conflicts: `fail`, `suffix` or `cast`.
        can: The capabilities of the format.
        renamed: The mapping stored in the table.

    Returns:
        The change; for the changed table it consists only of the same projection.

    Raises:
        SettingsError: Types conflict and `conflicts` says `fail`; a key, or a column the table
            is partitioned by, changes its type; the stream lacks a partition column, or all
            columns; a NOT NULL column would become null.
        SettingsError: The contract of the request forbids the change, or the stream lacks a column
            that a table of others requires.
    """
    if not request.struct.names:
        raise SettingsError(
            "the stream has no columns, and a table needs at least one",
            where=Where(stream=request.stream),
        )
    if table is not None:
        # A new table has nothing that could be in the way, and needs no planner.
        from target_spark.tables.change_planner import ChangePlanner  # noqa: PLC0415

        return ChangePlanner(table, request, rules, conflicts, can, renamed).change()
    wishes = {name: name for name in request.struct.names}
    names = assign_names(wishes, rules, of_columns(renamed))
    properties = request.schema.get("properties") or {}
    columns: list[Column] = []
    projection: list[Projected] = []
    mapping = {**renamed, OURS: "1"}
    for field in request.struct:
        name = names[field.name]
        legal = legal_type(field.dataType, None, (field.name,), (name,), rules, renamed)
        dtype = as_nullable(legal.dtype)
        how = "as is" if dtype == as_nullable(field.dataType) else "cast"
        comment = comment_of(properties.get(field.name), ("description",))
        columns.append(Column(name, field.name, dtype, field.nullable, comment))
        projection.append(Projected(name, field.name, dtype, how, tuple(legal.names.items())))
        mapping |= {field.name: name, **legal.renamed}
    return TableChange(create=tuple(columns), projection=tuple(projection), mapping=mapping)


def without_computed(
    request: TableRequest, names: Mapping[str, str], computed: Collection[str], shown: str
) -> TableRequest:
    """Return a request without columns that the table computes.

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


def whole_change(
    requests: Sequence[TableRequest], plan: Planner, names: Mapping[str, str]
) -> TableChange:
    """Return the change that creates a table for all requests; the last one describes it."""
    columns: dict[str, Column] = {}
    change = TableChange(mapping=names)
    for _, same in groupby(requests, key=lambda request: request.struct.json()):
        request = replace(next(same), schema=requests[-1].schema)
        table = struct_of_columns(columns.values()) if columns else None
        change = plan(table, request, change.mapping)
        columns = {name: _changed(column, change) for name, column in columns.items()}
        columns |= {column.name: column for column in (*(change.create or ()), *change.add)}
    return replace(change, create=tuple(columns.values()))


def _changed(column: Column, change: TableChange) -> Column:
    """Return a column after a change."""
    types = {item.target: item.dtype for item in change.projection}
    nullable = column.nullable or column.name in change.nullable
    return replace(column, dtype=types.get(column.name, column.dtype), nullable=nullable)


def struct_of_columns(columns: Iterable[Column]) -> T.StructType:
    """Return columns as a struct, with their comments in the metadata."""
    fields = []
    for one in columns:
        metadata = {"comment": one.comment} if one.comment else None
        fields.append(T.StructField(one.name, one.dtype, one.nullable, metadata))
    return T.StructType(fields)
