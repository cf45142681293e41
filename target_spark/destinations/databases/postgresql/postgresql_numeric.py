"""Decimal columns of Arrow as digits of PostgreSQL's `numeric`, to the base of 10,000. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_GROUP = 4
_BASE = 10_000
_NEGATIVE = 0x4000
_LONG_DIGITS = 18
_LIMB_BITS = 32
_UINT64 = pa.uint64()


@dataclass(frozen=True)
class Digits:
    """Numbers of one precision and scale.

    Attributes:
        groups: `int16` arrays of four decimal digits each, the highest first.
        signs: `uint16` array, as PostgreSQL writes signs.
        weight: Power of 10,000 of the first group.
        scale: Digits after the point.
    """

    groups: Sequence[pa.Array]
    signs: pa.Array
    weight: int
    scale: int


def numeric_digits(array: pa.Array) -> Digits:
    """Return the digits of a decimal array of up to 38 digits; arbitrary digits for nulls.

    Args:
        array: Decimals of scale 0 or more.
    """
    kind = array.type
    array = array.cast(pa.decimal128(kind.precision, kind.scale))
    fraction = -(-kind.scale // _GROUP)
    whole = max(0, -(-(kind.precision - kind.scale) // _GROUP))
    count, pad = max(1, fraction + whole), fraction * _GROUP - kind.scale
    low, high = _words(array)
    negative = pc.less(high.view(pa.int64()), 0)
    if kind.precision + pad <= _LONG_DIGITS:
        number = pc.multiply(pc.abs(low.view(pa.int64())), 10**pad)
        groups = _of_longs(number, count)
    else:
        groups = _of_limbs(_times(_limbs(low, high, negative), 10**pad), count)
    signs = pc.multiply(negative.cast(pa.uint16()), pa.scalar(_NEGATIVE, pa.uint16()))
    return Digits(groups, signs, count - fraction - 1, kind.scale)


def _words(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the lower and the higher 64 bits of each number."""
    count = len(array)
    data = array.buffers()[1].slice(array.offset * 16, count * 16).to_pybytes()
    words = []
    for start in (0, 8):
        word = bytearray(count * 8)
        for n in range(8):
            word[n::8] = data[start + n :: 16]
        words.append(pa.Array.from_buffers(_UINT64, count, [None, pa.py_buffer(word)]))
    return words[0], words[1]


def _of_longs(number: pa.Array, count: int) -> list[pa.Array]:
    groups = []
    for _ in range(count):
        rest = pc.divide(number, _BASE)
        groups.append(pc.subtract(number, pc.multiply(rest, _BASE)).cast(pa.int16(), safe=False))
        number = rest
    return groups[::-1]


def _limbs(low: pa.Array, high: pa.Array, negative: pa.Array) -> list[pa.Array]:
    """Return the number without its sign, 32 bits at a time, the lowest first."""
    zero, one = (pa.scalar(n, _UINT64) for n in (0, 1))
    carry = pc.if_else(pc.equal(low, zero), one, zero)
    low = pc.if_else(negative, pc.subtract(zero, low), low)
    high = pc.if_else(negative, pc.add(pc.bit_wise_not(high), carry), high)
    return [part for word in (low, high) for part in (_lower(word), _upper(word))]


def _times(limbs: Sequence[pa.Array], factor: int) -> list[pa.Array]:
    """Return the limbs of a product: one more than before."""
    products = []
    carry = pc.subtract(limbs[0], limbs[0])
    for limb in limbs:
        product = pc.add(pc.multiply(limb, pa.scalar(factor, _UINT64)), carry)
        products.append(_lower(product))
        carry = _upper(product)
    return [*products, carry]


def _of_limbs(limbs: list[pa.Array], count: int) -> list[pa.Array]:
    base = pa.scalar(_BASE, _UINT64)
    groups = []
    for _ in range(count):
        rest = pc.subtract(limbs[0], limbs[0])
        for n in range(len(limbs) - 1, -1, -1):
            here = pc.bit_wise_or(pc.shift_left(rest, pa.scalar(_LIMB_BITS, _UINT64)), limbs[n])
            limbs[n] = pc.divide(here, base)
            rest = pc.subtract(here, pc.multiply(limbs[n], base))
        groups.append(rest.cast(pa.int16(), safe=False))
    return groups[::-1]


def _lower(word: pa.Array) -> pa.Array:
    return pc.bit_wise_and(word, pa.scalar((1 << _LIMB_BITS) - 1, _UINT64))


def _upper(word: pa.Array) -> pa.Array:
    return pc.shift_right(word, pa.scalar(_LIMB_BITS, _UINT64))
