"""Generated rows by Arrow's kernels, in a task: equal to `spark_tables.generated_frame`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shared.singer.platform import arrow_in_task

KINDS = ("int", "double", "decimal", "string", "boolean", "timestamp", "date", "bigint")
"""Types of the columns after `id` and `updated_at`, in turn."""
FIRST_MOMENT = 1_577_836_800  # 2020-01-01T00:00:00Z
SPAN_DAYS = 2000
NULL_EVERY = 20

_ROWS = 10_000
_DAY = 86_400
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SEED = 42  # Of Spark's function `xxhash64`.


@dataclass(frozen=True)
class GeneratedRows:
    """Makes rows, for `mapInArrow`: numbers of tasks in, their rows out.

    Attributes:
        rows: Rows of all tasks.
        tasks: Number of tasks.
        positions: Positions of the columns.
    """

    rows: int
    tasks: int
    positions: Sequence[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                start, stop = (self.rows * n // self.tasks for n in (task, task + 1))
                for first in range(start, stop, _ROWS):
                    yield generated_batch(first, min(_ROWS, stop - first), self.positions)


def generated_batch(first: int, rows: int, positions: Sequence[int]) -> pa.RecordBatch:
    """Return some rows; columns are named by number.

    Args:
        first: `id` of the first one.
        rows: How many.
        positions: Positions of the columns.
    """
    ids = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows), start=first - 1)
    seeds = _hash(ids.view(pa.uint64()))
    arrays = [_column(ids, seeds, position) for position in positions]
    return pa.record_batch(arrays, [f"c{number}" for number in range(len(arrays))])


def _column(ids: pa.Array, seeds: pa.Array, position: int) -> pa.Array:
    if position == 0:
        return ids
    if position == 1:
        return _instant(pc.multiply(pc.add(ids, FIRST_MOMENT), 1_000_000))
    bits = _hash_again(seeds, position)
    values = _MAKERS[KINDS[(position - 2) % len(KINDS)]](bits)
    if position % 3:
        return values
    return pc.if_else(pc.equal(_modulo(pc.add(ids, position), NULL_EVERY), 0), None, values)


def _constant(value: int) -> pa.Scalar:
    return pa.scalar(value % 2**64, pa.uint64())


def _rotated(bits: pa.Array, by: int) -> pa.Array:
    left, right = (pa.scalar(n, pa.uint64()) for n in (by, 64 - by))
    return pc.bit_wise_or(pc.shift_left(bits, left), pc.shift_right(bits, right))


def _mixed(bits: pa.Array) -> pa.Array:
    for shift, factor in ((33, _P2), (29, _P3), (32, 1)):
        bits = pc.bit_wise_xor(bits, pc.shift_right(bits, _constant(shift)))
        bits = pc.multiply(bits, _constant(factor)) if factor > 1 else bits
    return bits


def _hash(values: pa.Array) -> pa.Array:
    """Return XXH64 of integers of 64 bits, unsigned."""
    part = pc.multiply(_rotated(pc.multiply(values, _constant(_P2)), 31), _constant(_P1))
    bits = pc.bit_wise_xor(part, _constant(_SEED + _P5 + 8))
    return _mixed(pc.add(pc.multiply(_rotated(bits, 27), _constant(_P1)), _constant(_P4)))


def _hash_again(seeds: pa.Array, value: int) -> pa.Array:
    """Return XXH64 of one integer of 32 bits for each seed, signed."""
    bits = pc.bit_wise_xor(pc.add(seeds, _constant(_P5 + 4)), _constant(value * _P1))
    bits = _mixed(pc.add(pc.multiply(_rotated(bits, 23), _constant(_P2)), _constant(_P3)))
    return bits.view(pa.int64())


def _modulo(values: pa.Array, by: int) -> pa.Array:
    """Return the remainder, which is never negative."""
    rest = pc.subtract(values, pc.multiply(pc.divide(values, by), by))
    return pc.if_else(pc.less(rest, 0), pc.add(rest, by), rest)


def _instant(micros: pa.Array) -> pa.Array:
    return micros.view(pa.timestamp("us", "UTC"))


def _timestamp(bits: pa.Array) -> pa.Array:
    seconds = pc.add(_modulo(bits, SPAN_DAYS * _DAY), FIRST_MOMENT)
    return _instant(pc.add(pc.multiply(seconds, 1_000_000), _modulo(bits, 1_000_000)))


def _decimal(bits: pa.Array) -> pa.Array:
    digits = _modulo(bits, 10**14).cast(pa.decimal128(19, 0))
    return pa.Array.from_buffers(pa.decimal128(18, 4), len(digits), digits.buffers())


def _hexadecimal(bits: pa.Array) -> pa.Array:
    words = array("Q", memoryview(bits.buffers()[1])[: 8 * len(bits)].tobytes())
    words.byteswap()
    digits = pa.py_buffer(words.tobytes().hex().upper().encode())
    texts = pa.Array.from_buffers(pa.binary(16), len(bits), [None, digits]).cast(pa.string())
    texts = pc.ascii_ltrim(texts, "0")
    return pc.if_else(pc.equal(texts, ""), "0", texts)


_MAKERS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "int": lambda bits: _modulo(bits, 2_000_000_001).cast(pa.int32()),
    "double": lambda bits: pc.divide(bits.cast(pa.float64(), safe=False), 2.0**40),
    "decimal": _decimal,
    "string": _hexadecimal,
    "boolean": lambda bits: pc.equal(pc.bit_wise_and(bits, 1), 0),
    "timestamp": _timestamp,
    "date": lambda bits: (
        pc.add(_modulo(bits, SPAN_DAYS), FIRST_MOMENT // _DAY).cast(pa.int32()).view(pa.date32())
    ),
    "bigint": lambda bits: bits,
}
