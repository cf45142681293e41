"""JSON lines of one spelling to Arrow columns, without a JSON parser.

Taps write the records of a stream alike: the same names in the same order, no spaces. If the values
are numbers, words and texts without commas or escapes, a line is a row of `"name":value` cells that
Arrow's CSV reader cuts. Each cell is then checked: its name, and its value by JSON's grammar. Lines
that pass have just one meaning in JSON; one line that does not pass refuses the whole block.

Why beside `fast_json`: half the CPU time for lines as taps write them (benchmarks/README.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.json_text import NULL, NUMBER, TEXT, WORD
from shared.formats.line_encodings import text_bytes
from shared.formats.schema_nodes import MAX_DIGITS

_INTEGER = r"-?(?:0|[1-9][0-9]*)"
_DECIMAL = _INTEGER + r"(?:\.[0-9]+)?"
_NUMBER = _DECIMAL + r"(?:[eE][+-]?[0-9]+)?"
_TEXT, _TIME = "text", "time"  # Checked otherwise.

_BINARY_NULL = pa.scalar(None, pa.binary())
_TO_END = 1 << 30  # `binary_slice` of pyarrow 26 fails without an end.
_CUT_BYTES = 2 << 20
"""Cells of so many bytes stay in the processor's cache until their values are read."""
_LOOKED_AT = 64 << 10
"""Bytes of a block in which escapes show before its lines are cut."""
_CONSTANT = frozenset({"type", "stream"})
_RECORD = "record"


@dataclass(frozen=True)
class PlainLines:
    """What was read from a block.

    Attributes:
        rows: Number of lines.
        columns: Values of the properties that the lines have, by name.
        envelope: The same of the envelope, if lines have one.
        kinds: Each property with each kind of value that it has in a line: `NULL`, `TEXT`, `NUMBER`
            or `WORD`.
    """

    rows: int
    columns: Mapping[str, pa.Array]
    envelope: Mapping[str, pa.Array]
    kinds: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class _Cell:
    """One cell of each line: a value of `kind` between two texts; None if all lines have `before`
    alone.
    """

    name: str
    before: bytes
    after: bytes = b""
    kind: pa.DataType | None = None
    in_record: bool = False


_Texts = tuple[_Cell, pa.ChunkedArray]


class PlainReader:
    """Reads blocks of whole lines; after a block of another spelling it refuses all others.

    Args:
        columns: Types of the properties, none of them nested.
        envelope: Types of the envelope's properties besides the record, if lines are RECORD
            messages.
    """

    def __init__(
        self, columns: Mapping[str, pa.DataType], envelope: Mapping[str, pa.DataType] | None
    ) -> None:
        self._columns = columns
        self._envelope = envelope
        self._has_refused = not all(map(_pattern_of, columns.values()))

    def read(self, data: bytes) -> PlainLines | None:
        """Return the columns of a block; None if another reader must read it."""
        line = data[: data.find(b"\n") + 1 or len(data)]
        if self._has_refused or len(data) >= _TO_END:
            return None
        if b"\\" in data[:_LOOKED_AT] or b"\r" in data:
            return None
        try:
            return self._read(data, line)
        except (ValueError, LookupError, TypeError, AttributeError, NotImplementedError):
            self._has_refused = True
            return None

    def _read(self, data: bytes, line: bytes) -> PlainLines:
        cells = list(self._cells(line))
        table = _cut(data, len(cells))
        groups: dict[tuple[pa.DataType | None, bool], list[_Texts]] = {}
        for cell, texts in zip(cells, table.columns, strict=True):
            groups.setdefault((cell.kind, cell.in_record), []).append((cell, texts))
        # Only an envelope has constant cells, or values that are often alike.
        _expect([pc.equal(texts, cell.before) for cell, texts in groups.pop((None, False), [])])
        record, envelope = dict[str, pa.Array](), dict[str, pa.Array]()
        kinds = set[tuple[str, str]]()
        for (kind, in_record), group in groups.items():
            if in_record:
                columns = dict(_columns_of(group, kind))
                kinds |= _kinds(columns, _pattern_of(kind))
                record |= columns
            else:
                envelope |= (_repeated_or_values(one, kind) for one in group)
        if not record:
            raise ValueError("an envelope without a record")
        return PlainLines(table.num_rows, record, envelope, frozenset(kinds))

    def _cells(self, line: bytes) -> Iterator[_Cell]:
        """Yield the cells that all lines must have, as the first one has them.

        Raises:
            KeyError: It has another property than the columns.
            ValueError, TypeError: It is no record.
        """
        message = orjson.loads(line)
        if self._envelope is None:
            yield from self._of_record(message, b"{", b"}")
            return
        last = list(message)[-1]
        for place, (name, value) in enumerate(message.items()):
            before = (b"" if place else b"{") + orjson.dumps(name) + b":"
            after = b"}" if name == last else b""
            if name == _RECORD:
                yield from self._of_record(value, before + b"{", b"}" + after)
            elif name in _CONSTANT:
                yield _Cell(name, before + orjson.dumps(value) + after)
            else:
                yield _Cell(name, before, after, self._envelope[name])

    def _of_record(
        self, record: Mapping[str, object], before: bytes, after: bytes
    ) -> Iterator[_Cell]:
        last = list(record)[-1]
        for name in record:
            head = before + orjson.dumps(name) + b":"
            yield _Cell(name, head, after if name == last else b"", self._columns[name], True)
            before = b""


def _cut(data: bytes, cells: int) -> pa.Table:
    """Cut lines at commas.

    Raises:
        pyarrow.ArrowInvalid: A line has another number of them.
    """
    from pyarrow import csv  # noqa: PLC0415

    names = [str(place) for place in range(cells)]
    return csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(use_threads=False, block_size=_CUT_BYTES, column_names=names),
        csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )


def _pattern_of(kind: pa.DataType) -> str | None:
    """Return the grammar of a type's values in JSON; None if they are not read here."""
    is_ = pa.types
    if is_.is_date32(kind) or is_.is_timestamp(kind):
        return _TIME
    if is_.is_string(kind):
        return _TEXT
    if is_.is_signed_integer(kind):
        return _INTEGER
    if is_.is_decimal128(kind):
        return _DECIMAL
    if is_.is_float32(kind) or is_.is_float64(kind):
        return _NUMBER
    return WORD if is_.is_boolean(kind) else None


def _repeated_or_values(one: _Texts, kind: pa.DataType) -> tuple[str, pa.Array]:
    """Return the name and the values of a cell, which all lines may have alike."""
    cell, texts = one
    if len(texts) < 2 or not _all([pc.equal(texts, texts[0])]):  # noqa: PLR2004
        return next(_columns_of([one], kind))
    typed = next(_columns_of([(cell, texts.slice(0, 1))], kind))[1]
    return cell.name, pa.repeat(typed[0], len(texts))


def _columns_of(group: Sequence[_Texts], kind: pa.DataType) -> Iterator[tuple[str, pa.Array]]:
    """Yield names and values of cells of one type.

    They are read together: each call of Arrow costs as much as many values.

    Raises:
        ValueError: A value is not as it must be, is out of range, not a time, or not UTF-8.
    """
    _expect([pc.starts_with(texts, cell.before) for cell, texts in group])
    for cell, texts in group:
        if cell.after:
            is_long = pc.greater_equal(pc.binary_length(texts), len(cell.before) + len(cell.after))
            _expect([pc.ends_with(texts, cell.after), is_long])
    values = [
        pc.binary_slice(texts, len(cell.before), -len(cell.after) or _TO_END)
        for cell, texts in group
    ]
    count = len(values[0])
    typed = _values(pa.concat_arrays([chunk for one in values for chunk in one.chunks]), kind)
    for place, (cell, _) in enumerate(group):
        yield cell.name, typed.slice(place * count, count)


def _values(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values that are written as texts of JSON; see `_columns_of`."""
    pattern = _pattern_of(kind)
    is_null = pc.equal(texts, b"null")
    if is_null.true_count:
        texts = pc.if_else(is_null, _BINARY_NULL, texts)
    if pattern == WORD:
        is_true = pc.equal(texts, b"true")
        _expect([pc.or_(is_true, pc.equal(texts, b"false"))])
        return is_true
    if pattern in (_INTEGER, _DECIMAL, _NUMBER):
        texts = _numbers(texts, pattern)
    else:
        texts = _unquoted(texts).cast(pa.string())
    if pattern is _TEXT:
        _expect_plain(texts)
    typed = texts.cast(kind)
    if pattern is _NUMBER:
        _expect([pc.is_finite(typed)])
    elif pattern is _DECIMAL:
        most = pc.max(pc.binary_length(texts)).as_py()
        if most is not None and most > MAX_DIGITS - kind.scale:
            # Arrow does not notice if it loses the first of many digits.
            _expect([pc.equal(typed.cast(pa.string()), texts)])
    return typed


def _unquoted(texts: pa.Array) -> pa.Array:
    """Return what texts have between their quotes.

    Raises:
        ValueError: One is not quoted.
    """
    quoted = [check(texts, b'"') for check in (pc.starts_with, pc.ends_with)]
    _expect([*quoted, pc.greater_equal(pc.binary_length(texts), 2)])
    return pc.binary_slice(texts, 1, -1)


def _numbers(texts: pa.Array, pattern: str) -> pa.Array:
    """Return texts of which those that can be cast to a number are numbers in JSON.

    Of digits, points and minus signs, Arrow takes only these for a number that JSON does not: a
    zero before other digits, and a point at the beginning or end.

    Raises:
        ValueError: One is not.
    """
    if not _has_digits_alone(texts):
        _expect([pc.match_substring_regex(texts, f"^(?:{pattern})$")])
        return texts.cast(pa.string())
    starts = (b"0", b"-0") if pattern == _INTEGER else (b"0", b"-0", b".", b"-.")
    odd = [pc.starts_with(texts, start) for start in starts]
    if pattern != _INTEGER:
        odd.append(pc.ends_with(texts, b"."))
    is_odd = reduce(pc.or_, odd)
    if is_odd.true_count:
        _expect([pc.match_substring_regex(texts.filter(is_odd), f"^(?:{pattern})$")])
    return texts.view(pa.string())


def _has_digits_alone(texts: pa.Array) -> bool:
    """Return whether all bytes are digits, points, minus signs, or slashes, which Arrow refuses."""
    data = text_bytes(texts)
    bounds = pc.min_max(pa.Array.from_buffers(pa.uint8(), data.size, [None, data]))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or (least >= ord("-") and most <= ord("9"))


def _expect_plain(texts: pa.Array) -> None:
    """Check that there are no quotes, escapes and control characters."""
    data = text_bytes(texts)
    least = pc.min(pa.Array.from_buffers(pa.uint8(), data.size, [None, data])).as_py()
    content = data.to_pybytes()
    if b'"' in content or b"\\" in content or (least is not None and least < ord(" ")):
        raise ValueError("a text with escapes")


def _expect(checks: Iterable[pa.Array | pa.ChunkedArray]) -> None:
    if not _all(checks):
        raise ValueError("another spelling")


def _kinds(columns: Mapping[str, pa.Array], pattern: str | None) -> set[tuple[str, str]]:
    kind = TEXT if pattern in (_TEXT, _TIME) else WORD if pattern == WORD else NUMBER
    filled = {(name, kind) for name, one in columns.items() if one.null_count < len(one)}
    return filled | {(name, NULL) for name, one in columns.items() if one.null_count}


def _all(checks: Iterable[pa.Array | pa.ChunkedArray]) -> bool:
    chunks = [
        chunk
        for one in checks
        for chunk in (one.chunks if isinstance(one, pa.ChunkedArray) else [one])
    ]
    return bool(pc.all(pa.chunked_array(chunks, pa.bool_()), min_count=0).as_py())
