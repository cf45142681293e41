"""Convert Arrow tables to the exact columns of the table that stores them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns, order and types of `schema`.

    Columns it lacks become null, at any depth; columns that `schema` lacks are dropped.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit the wider type.
    """
    if table.schema.equals(schema):
        return table.replace_schema_metadata(schema.metadata)
    rows = table.num_rows
    found = {name: position for position, name in enumerate(table.column_names)}
    columns = [
        conform_column(table.column(found[field.name]), field.type)
        if field.name in found
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def dropped_fields(
    column: pa.ChunkedArray, kind: pa.DataType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the fields of structs that `conform` drops, at any depth of structs and lists.

    Args:
        column: Values that are to be converted.
        kind: Their new type.
        path: Where they are.

    Yields:
        The path of a field, and how many of its values are not null.
    """
    if pa.types.is_list(column.type) and pa.types.is_list(kind):
        yield from dropped_fields(pc.list_flatten(column), kind.value_type, path)
    if not (pa.types.is_struct(column.type) and pa.types.is_struct(kind)):
        return
    for field, values in zip(column.type, column.flatten(), strict=True):
        place, inner = kind.get_field_index(field.name), (*path, field.name)
        if place >= 0:
            yield from dropped_fields(values, kind.field(place).type, inner)
        elif values.null_count < len(values):
            yield inner, len(values) - values.null_count


def conform_column(
    column: pa.Array | pa.ChunkedArray, kind: pa.DataType
) -> pa.Array | pa.ChunkedArray:
    """Return a column converted to a type; errors as `conform`."""
    if column.type.equals(kind):
        return column
    if isinstance(column, pa.Array):
        return _conform_array(column, kind)
    return pa.chunked_array([_conform_array(chunk, kind) for chunk in column.chunks], kind)


def _conform_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if array.offset and pa.types.is_nested(kind):
        array = pa.concat_arrays([array])
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _conform_struct(array, kind)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        keys, items = (_conform_array(part, wanted) for part, wanted in _map_parts(array, kind))
        return pa.MapArray.from_arrays(array.offsets, keys, items, kind, mask=_mask(array))
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        values = _conform_array(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, kind, mask=_mask(array))
    return array.cast(kind)


def _conform_struct(array: pa.StructArray, kind: pa.StructType) -> pa.Array:
    found = {array.type.field(position).name for position in range(array.type.num_fields)}
    fields = [kind.field(position) for position in range(kind.num_fields)]
    if not fields:
        return pa.StructArray.from_buffers(kind, len(array), array.is_valid().buffers()[1:])
    children = [
        _conform_array(array.field(field.name), field.type)
        if field.name in found
        else pa.nulls(len(array), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=_mask(array))


def _map_parts(array: pa.MapArray, kind: pa.MapType) -> tuple[tuple[pa.Array, pa.DataType], ...]:
    return (array.keys, kind.key_type), (array.items, kind.item_type)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
