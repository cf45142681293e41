"""What the rows of Arrow arrays take once each row has its own copy of its values.

In a dictionary, a view or a run, many rows share one value: 18 KB of a file may stand for
gigabytes as soon as a column becomes plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.encoding_base import ContentError
from shared.storage import limits


def bounded_tables(batch: pa.RecordBatch, packed: int) -> Iterator[pa.Table]:
    """Yield the rows of a batch as tables that stay bounded when their columns become plain.

    Args:
        batch: The rows.
        packed: Bytes that they take in their file.

    Raises:
        ContentError: A single row takes more memory than any data does.
    """
    if not any(_shares(column.type) for column in batch.columns):
        yield pa.Table.from_batches([batch])
        return
    plain = sum(_most_bytes(column) for column in batch.columns)
    if plain <= limits.TABLE_BYTES:
        yield pa.Table.from_batches([batch])
    elif batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from bounded_tables(batch.slice(0, half), packed)
        yield from bounded_tables(batch.slice(half), packed)
    elif plain > max(limits.FREE_NESTED_BYTES, limits.MAX_RATIO * packed):
        raise ContentError(limits.decoded_text())
    else:
        yield pa.Table.from_batches([batch])


def _shares(kind: pa.DataType) -> bool:
    """Return whether rows of a type can share their values."""
    return any(test(kind) for test in _SHARING) or any(
        _shares(kind.field(number).type) for number in range(kind.num_fields)
    )


_Test = Callable[[pa.DataType], bool]
_VIEW_INTEGERS = 4
"""A view is 16 bytes, of which the first four are its length."""

_TEXTS: tuple[_Test, ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
_LISTS: tuple[_Test, ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_map,
)
_SHARING: tuple[_Test, ...] = (
    pa.types.is_dictionary,
    pa.types.is_run_end_encoded,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def _most_bytes(array: pa.Array) -> int:
    """Return what all rows take at the most."""
    kind = array.type
    if pa.types.is_struct(kind):
        return sum(map(_most_bytes, array.flatten()))
    if _is_list(kind):
        lists = _as_list(array)
        return int(len(lists.flatten()) * _longest(lists.values) + array.nbytes)
    return int(len(array) * _longest(array))


def _longest(array: pa.Array) -> int:
    """Return the bytes of the largest value at the most."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _longest(array.storage)
    if pa.types.is_dictionary(kind):
        return _longest(array.dictionary)
    if pa.types.is_run_end_encoded(kind):
        return _longest(array.values)
    if pa.types.is_struct(kind):
        return sum(map(_longest, array.flatten()))
    return _longest_list(array) if _is_list(kind) else _longest_plain(array)


def _longest_list(array: pa.Array) -> int:
    lists = _as_list(array)
    return int(pc.max(pc.list_value_length(lists)).as_py() or 0) * _longest(lists.values)


def _longest_plain(array: pa.Array) -> int:
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        lengths = memoryview(array.buffers()[1]).cast("B").cast("i")[::_VIEW_INTEGERS]
        return int(max(lengths[array.offset : array.offset + len(array)], default=0))
    if any(test(kind) for test in _TEXTS):
        return int(pc.max(pc.binary_length(array)).as_py() or 0)
    return array.nbytes if kind.num_fields else _fixed_bytes(kind)


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _LISTS)


def _as_list(array: pa.Array) -> pa.Array:
    """Return a map as the list that it is, any other list unchanged."""
    kind = array.type
    if not pa.types.is_map(kind):
        return array
    return array.view(pa.list_(pa.struct([kind.key_field, kind.item_field])))


def _fixed_bytes(kind: pa.DataType) -> int:
    try:
        return int(-(-kind.bit_width // 8))
    except ValueError:  # null
        return 0
