"""Blocks of rows that the driver reads, mapped by it as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shared.errors import RecordError, Where
from shared.formats.arrow_types import struct_to_arrow
from shared.maps.arrow_maps import ArrowMap, arrow_map
from shared.maps.transform import ERROR
from tap_spark.state.stream_plans import BlockReaders, DriverBlocks

if TYPE_CHECKING:
    from tap_spark.send.stream_outputs import Output


def block_map(output: Output) -> ArrowMap | None:
    """Return the map of an output over Arrow; None if Spark has to map, or does it faster."""
    if output.transform is None or output.struct is None:
        return None
    arrow = arrow_map(output.transform, output.struct)
    return None if arrow is None or arrow.in_python else arrow


def mapped_blocks(output: Output, blocks: DriverBlocks) -> DriverBlocks | None:
    """Map blocks of rows.

    Args:
        output: The output; see `block_map`.
        blocks: The rows of the stream.

    Returns:
        The mapped rows; None if they have other columns than the map was planned for. A reader
        raises RecordError for a row that cannot be mapped.
    """
    arrow, transform, struct = block_map(output), output.transform, output.struct
    if arrow is None or transform is None or struct is None:
        return None
    planned = {field.name: field.type for field in struct_to_arrow(struct)}
    if any(planned.get(field.name) != field.type for field in blocks.schema):
        return None
    reads = [name for name in blocks.schema.names if name in transform.reads]
    if len(reads) < len(transform.reads):
        return None
    schema = struct_to_arrow(transform.struct())

    def mapped(read: Callable[[], pa.RecordBatch | None]) -> pa.RecordBatch | None:
        block = read()
        if block is None:
            return None
        rows = arrow.apply(pa.Table.from_batches([block]))
        errors = pc.drop_null(rows.column(ERROR))
        if len(errors):
            where = Where(stream=output.plan.stream, setting="stream_maps")
            raise RecordError(errors[0].as_py(), where=where)
        arrays = [rows.column(name).combine_chunks() for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return DriverBlocks(schema, _Changed(blocks.readers, mapped))


@dataclass(frozen=True)
class _Changed:
    """Readers whose blocks are changed."""

    readers: BlockReaders
    change: Callable[[Callable[[], pa.RecordBatch | None]], pa.RecordBatch | None]

    def __len__(self) -> int:
        return len(self.readers)

    def __iter__(self) -> Iterator[Callable[[], pa.RecordBatch | None]]:
        return (partial(self.change, read) for read in self.readers)
