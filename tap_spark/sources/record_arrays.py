"""Records as JSON text, made from Arrow columns: equal to `shared.formats.record_text`.

Sent to workers by value. Kernels make the text of each column, and join names and values; there is
no Python object per row. Replication keys that can be bookmarks are told from the others likewise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.date_numbers import DAY, INFINITY, MINUS_INFINITY, moment_text

PIECE_BYTES = 16 * 1024 * 1024
"""Bytes of values and names that are joined at once."""

LEAST_PLAIN, MOST_PLAIN = 1e-3, 1e7
"""Between these, Java writes a double without exponent."""
LEAST_OF_JAVA = {
    **{"5.0E-324": "4.9E-324", "5.0E-323": "4.9E-323", "6.0E-323": "5.9E-323"},
    **{"7.0E-323": "6.9E-323", "8.0E-323": "7.9E-323", "9.0E-323": "8.9E-323"},
}
"""Doubles of which one digit is enough, but Java writes the two that are nearest."""
_LEAST_EXACT = 1e-322
_NUMBER = r"^(?P<sign>-?)(?P<whole>\d+)\.?(?P<places>\d*)(?:e\+?(?P<power>-?\d+))?$"


class RecordTexts:
    """Makes the JSON text of rows.

    Args:
        names: Names of the columns, in order.
        ready: Positions of columns that hold JSON text.
        before: Text before each record.
        after: Text after each record.

    Attributes:
        replaced: Rows so far with text that is not UTF-8, by column; they have U+FFFD instead.
    """

    def __init__(
        self,
        names: Sequence[str],
        ready: frozenset[int] = frozenset(),
        before: str = "",
        after: str = "",
    ) -> None:
        self.replaced: Counter[str] = Counter()
        self._names = names
        self._ready = ready
        starts = [before + "{", *["," for _ in names[1:]]]
        named = [json.dumps(name, ensure_ascii=False) + ":" for name in names] or [""]
        self._heads = [start + name for start, name in zip(starts, named, strict=True)]
        self._tail = "}" + after

    def of(self, columns: Sequence[pa.Array]) -> Iterator[pa.StringArray]:
        """Yield the text of each row of one column or more, in arrays of bounded size."""
        rows = len(columns[0])
        size = sum(column.nbytes for column in columns) + rows * sum(map(len, self._heads))
        count = max(1, rows * PIECE_BYTES // max(size, PIECE_BYTES))
        for start in range(0, rows, count):
            yield self._joined([column.slice(start, count) for column in columns])

    def _joined(self, columns: Sequence[pa.Array]) -> pa.StringArray:
        parts, between = [], ""
        for number, column in enumerate(columns):
            if number in self._ready:
                text, before, after = column, "", ""
            else:
                text, before, after = json_texts(self._unicode(number, column))
            if before and text.null_count:
                text = pc.binary_join_element_wise(before, text, after, "")
                before = after = ""
            parts += [between + self._heads[number] + before, text.cast(pa.string())]
            between = after
        return pc.binary_join_element_wise(
            *parts,
            between + self._tail,
            "",
            null_handling="replace",
            null_replacement="null",
        )

    def _unicode(self, number: int, column: pa.Array) -> pa.Array:
        """Return a column whose texts are UTF-8; Spark does not check what it takes for text."""
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return column
        column = column.cast(pa.string())
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raw = column.cast(pa.binary()).to_pylist()
            texts = [None if t is None else t.decode(errors="replace") for t in raw]
            bad = sum(t is not None and t.encode() != r for t, r in zip(texts, raw, strict=True))
            self.replaced[self._names[number]] += bad
            return pa.array(texts, pa.string())
        return column


_Text = tuple[pa.StringArray, str, str]
"""Texts, and what belongs before and after each of them that is not null."""


def json_texts(values: pa.Array) -> _Text:
    """Return the JSON text of each value.

    Args:
        values: Texts in UTF-8, booleans, integers, floats, dates, timestamps, or decimals of at
            most 6 decimal places.
    """
    kind = values.type
    if pa.types.is_string(kind):
        return _text(values)
    if pa.types.is_floating(kind):
        return float_text(values), "", ""
    return _moment(values) if pa.types.is_temporal(kind) else (values.cast(pa.string()), "", "")


def _text(values: pa.Array) -> _Text:
    data = values.buffers()[2] or pa.py_buffer(b"")
    least = pc.min(pa.Array.from_buffers(pa.uint8(), data.size, [None, data])).as_py()
    content = memoryview(data).tobytes()
    codes = b'\\"' if least is None or least >= ord(" ") else b'\\"' + bytes(range(0x20))
    for code in codes:
        if code in content:
            values = pc.replace_substring(values, chr(code), _escaped(code))
    return values, '"', '"'


def _escaped(code: int) -> str:
    text = json.dumps(chr(code))[1:-1]
    return text[:2] + text[2:].upper()


def float_text(values: pa.Array) -> pa.StringArray:
    """Return the JSON text of floats, as Java writes them; null for null."""
    text, size = values.cast(pa.string()), pc.abs(values)
    is_odd = pc.or_(pc.less(size, LEAST_PLAIN), pc.invert(pc.less(size, MOST_PLAIN)))
    is_odd = pc.fill_null(pc.and_not(is_odd, pc.equal(size, 0.0)), False)
    is_whole = pc.fill_null(pc.and_not(pc.equal(pc.floor(values), values), is_odd), False)
    if is_whole.true_count:
        text = pc.if_else(is_whole, pc.binary_join_element_wise(text, ".0", ""), text)
    if is_odd.true_count:
        number = _odd_number(text.filter(is_odd))
        if pc.less(pc.min(size.filter(is_odd)), _LEAST_EXACT).as_py():
            for written, of_java in LEAST_OF_JAVA.items():
                number = pc.replace_substring(number, written, of_java)
        text = pc.replace_with_mask(text, is_odd, number)
    return text


def _odd_number(text: pa.StringArray) -> pa.StringArray:
    """Write floats with exponent as Java does, and as texts those that JSON lacks."""
    parts = pc.extract_regex(text, _NUMBER)
    sign, whole, places, power = (pc.struct_field(parts, n) for n in range(4))
    written = pc.binary_join_element_wise(whole, places, "")
    digits = pc.utf8_ltrim(written, "0")
    zeros = pc.subtract(pc.binary_length(written), pc.binary_length(digits))
    shift = pc.if_else(pc.equal(power, ""), "0", power).cast(pa.int32())
    exponent = pc.subtract(pc.add(shift, pc.binary_length(whole)), pc.add(zeros, 1))
    digits = pc.utf8_rtrim(digits, "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    first = pc.utf8_slice_codeunits(digits, 0, 1)
    number = pc.binary_join_element_wise(
        sign, first, ".", rest, "E", exponent.cast(pa.string()), ""
    )
    words = pc.if_else(pc.equal(text, "inf"), '"Infinity"', '"-Infinity"')
    return pc.coalesce(number, pc.if_else(pc.equal(text, "nan"), '"NaN"', words))


def _moment(values: pa.Array) -> _Text:
    is_date = pa.types.is_date32(values.type)
    numbers = values.view(pa.int32() if is_date else pa.int64())
    bounds, unit = pc.min_max(numbers), 1 if is_date else DAY
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and not MINUS_INFINITY * unit <= least <= most < (INFINITY + 1) * unit:
        kind = "date" if is_date else "timestamp" if values.type.tz else "timestamp_ntz"
        texts = [None if n is None else moment_text(n, kind) for n in numbers.to_pylist()]
        return pa.array(texts, pa.string()), '"', '"'
    if is_date:
        return values.cast(pa.string()), '"', '"'
    text = values.cast(pa.timestamp("us")).cast(pa.string())
    text = pc.binary_replace_slice(text, start=10, stop=11, replacement="T")
    return text, '"', '+00:00"' if values.type.tz else '"'


def finite(keys: pa.Array) -> pa.Array:
    """Replace infinite keys by nulls."""
    if pa.types.is_floating(keys.type):
        return pc.if_else(pc.is_finite(keys), keys, None)
    if not pa.types.is_temporal(keys.type):
        return keys
    is_date = pa.types.is_date32(keys.type)
    numbers = keys.cast(pa.int32() if is_date else pa.int64())
    for day in (MINUS_INFINITY, INFINITY):
        first = day if is_date else day * DAY
        after = first + (1 if is_date else DAY)
        inside = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, after))
        keys = pc.if_else(inside, None, keys)
    return keys
