"""The forms of the values of text columns, found by Arrow on executors, batch by batch.

The forms of a column are bits of one integer. The bits above `SCALE_SHIFT` are the numbers of
decimal places of its fractions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc

from shared.arrow_start import arrow_in_task

OTHER, SHORT_INT, INT, BIG_INT, FLOAT, FIXED, BOOLEAN, DATE, LOCAL_TIME, INSTANT = (
    1 << bit for bit in range(10)
)
SCALE_SHIFT = 10
FLOAT_DIGITS = 15
LONG_DIGITS = 18
BIG_DIGITS = 38
MAX_FIXED_DIGITS = 18
FORMS_SCHEMA = "forms array<bigint>"
ONE_TYPE = (
    BOOLEAN,
    DATE,
    LOCAL_TIME,
    INSTANT,
    SHORT_INT | INT | BIG_INT,
    SHORT_INT | FLOAT,
)
_SAMPLE = 64
_ARROW = pa.schema([pa.field("forms", pa.list_(pa.int64()))])
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = _DATE + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_OFFSET = "(?:Z|[+-](?:(?:0[0-9]|1[0-7]):[0-5][0-9]|18:00))"


def forms_reader(
    count: int,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return a function for `mapInArrow`: columns of text in, one row with the forms of each out.

    Args:
        count: Number of columns; a column of nulls only has null for its forms.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        found: list[int | None] = [None] * count
        for batch in batches:
            found = [add_forms(bits, batch.column(n)) for n, bits in enumerate(found)]
        yield pa.record_batch([pa.array([found], _ARROW.field(0).type)], schema=_ARROW)

    return read


def add_forms(bits: int | None, values: pa.Array) -> int | None:
    """Add the forms of more values to those so far; stops once only text is possible."""
    values = values.drop_null()
    # A few values show that most columns are text.
    for part in (values.slice(0, _SAMPLE), values.slice(_SAMPLE)):
        if len(part) and not settled(bits):
            bits = (bits or 0) | _forms(part)
    return bits


def union(sets: Iterable[Sequence[int | None]], count: int) -> list[int | None]:
    """Return the forms of each of `count` columns over all tasks."""
    found: list[int | None] = [None] * count
    for row in sets:
        found = [b if a is None else a | (b or 0) for a, b in zip(found, row, strict=True)]
    return found


def settled(bits: int | None) -> bool:
    """Return whether only text can hold all these forms, with any forms that follow."""
    if bits is None:
        return False
    forms = bits & ((1 << SCALE_SHIFT) - 1)
    return all(forms & ~kept for kept in ONE_TYPE) and one_scale(bits) is None


def one_scale(bits: int) -> int | None:
    """Return the digits after the point, if all values are fractions with equally many."""
    forms, scales = bits & ((1 << SCALE_SHIFT) - 1), bits >> SCALE_SHIFT
    if forms & ~(FLOAT | FIXED) or not scales or scales & (scales - 1):
        return None
    return scales.bit_length() - 1


def _forms(values: pa.Array) -> int:
    """Find the forms of values that are not null; stops at the first that only text can hold."""
    bits = 0
    while len(values) and not settled(bits):
        first = values[0].as_py()
        kind = next((kind for kind in _KINDS if re.fullmatch(kind, first)), None)
        if kind is None:
            return bits | OTHER
        alike = pc.match_substring_regex(values, f"^(?:{kind})$")
        uniform = alike.false_count == 0
        bits |= _KINDS[kind](values if uniform else values.filter(alike))
        values = values.slice(0, 0) if uniform else values.filter(pc.invert(alike))
    return bits


def _integers(values: pa.Array) -> int:
    longest = pc.max(pc.binary_length(values)).as_py()
    if longest <= FLOAT_DIGITS:
        return SHORT_INT
    signs = pc.cast(pc.starts_with(values, "-"), pa.int32())
    digits = pc.subtract(pc.binary_length(values), signs)
    shortest, longest = (bound.as_py() for bound in pc.min_max(digits).values())
    small = SHORT_INT if shortest <= FLOAT_DIGITS else 0
    if longest <= FLOAT_DIGITS:
        return SHORT_INT
    if longest <= LONG_DIGITS or _reads_as(values, pa.int64()):
        return small | INT
    return small | (BIG_INT if longest <= BIG_DIGITS else OTHER)


def _fractions(values: pa.Array) -> int:
    # A minus sign counts as a digit.
    digits = pc.subtract(pc.binary_length(values), 1)
    if pc.max(digits).as_py() > MAX_FIXED_DIGITS:
        return OTHER
    scales = pc.subtract(digits, pc.find_substring(values, "."))
    bits: int = reduce(or_, (1 << scale + SCALE_SHIFT for scale in pc.unique(scales).to_pylist()))
    padded = pc.and_(pc.ends_with(values, "0"), pc.greater(scales, 1))
    fixed = pc.or_(padded, pc.greater(digits, FLOAT_DIGITS))
    bits |= FIXED if fixed.true_count else 0
    return bits | (FLOAT if fixed.false_count else 0)


def _booleans(_: pa.Array) -> int:
    return BOOLEAN


def _dates(values: pa.Array) -> int:
    return DATE if _in_calendar(values, pa.date32()) else OTHER


def _local_times(values: pa.Array) -> int:
    return LOCAL_TIME if _in_calendar(values, pa.timestamp("us")) else OTHER


def _instants(values: pa.Array) -> int:
    return INSTANT if _in_calendar(values, pa.timestamp("us", "UTC")) else OTHER


def _in_calendar(values: pa.Array, kind: pa.DataType) -> bool:
    return not pc.any(pc.starts_with(values, "0000")).as_py() and _reads_as(values, kind)


def _reads_as(values: pa.Array, kind: pa.DataType) -> bool:
    try:
        pc.cast(values, kind)
    except pa.ArrowInvalid:
        return False
    return True


_KINDS: dict[str, Callable[[pa.Array], int]] = {
    "0|-?[1-9][0-9]*": _integers,
    r"-?(?:0|[1-9][0-9]*)\.[0-9]+": _fractions,
    "true|false": _booleans,
    _DATE: _dates,
    _TIME: _local_times,
    _TIME + _OFFSET: _instants,
}
