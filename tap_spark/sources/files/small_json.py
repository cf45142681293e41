"""Small files of JSON lines read by the driver: the columns and rows that Spark gives, or none.

Spark's parser has answers of its own for damaged or unusual lines, and its types for values of
several kinds. So this one reads only lines that leave no choice: objects of strict JSON without
repeated names, whose values are of the kind of their type. It raises `UnsureError` for everything
else, and Spark reads the files.

Why beside `json_rows`: small files are sent before Spark has started (`benchmarks.small_runs`).
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import struct_to_arrow
from shared.storage.files import open_random
from tap_spark.sources.files.json_kinds import SAFE, number_kind
from tap_spark.sources.files.line_reader import BOM, FilePart, next_line_start
from tap_spark.sources.files.text_records import with_exponent
from tap_spark.sources.files.text_types import is_text

MOST_COLUMNS = 10_000
MOST_NAME = 10_000
"""Characters of a name up to which Spark surely reads it."""
MOST_DEPTH = 50
MOST_BRACKETS = 1000
"""Brackets of a line, and so their depth, up to which Spark reads it."""
ROW_BYTES = 256 * 1024 * 1024
VALUE_BYTES = 32
"""Bound of memory: bytes of the rows of a block with their names, most in all and about those of a
value. They may be far more than those of the file, if most values are missing."""
BLOCK_BYTES = 4 * 1024 * 1024
LONGEST_BLOCK = 16 * 1024 * 1024
"""Bound of memory: bytes of a block with very long lines, beyond which Spark reads the files."""

_OWN_NAMES = ("_metadata", "_corrupt_record", "_tap_spark")
"""How names begin that columns of Spark or of this program have."""

_UNUSUAL = (b"\r", BOM)
_PATTERNS = [
    re.compile(pattern)
    for pattern in (rb"\\u00[01]", rb"-0(?<=[\s:,\[]-0)(?![.0-9])", rb"[0-9.]{100}")
]
"""Control characters, `-0`, and very long numbers. One pattern of three choices takes longer."""

_CONTROLS = re.compile(r"[\x00-\x1f]")
_LONG = range(-(2**63), 2**63)
_INT = range(-(2**31), 2**31)
_LEAST, _MOST = 1e-15, 1e15
_LEAST_PLAIN, _MOST_PLAIN = 1e-3, 1e7
"""Between these, Java writes a double without exponent, and so does orjson."""

Kind: TypeAlias = "T.DataType | dict[str, Kind] | list[Kind] | None"
"""What is known of a type: fields of objects by name, the kind of elements, None for nulls."""

Convert: TypeAlias = Callable[[Any], Any]


class UnsureError(Exception):
    """Spark may read the data in another way."""


def objects(part: FilePart) -> Iterator[dict[str, Any]]:
    """Yield the object of each line.

    Args:
        part: Whole lines of a file.

    Raises:
        UnsureError: A line is not surely read by Spark as it is here.
        OSError: The file cannot be read.
    """
    url, start, end = part
    with open_random(url) as file:
        data = bytes(file.read_at(end - start, start))
    if len(data) < end - start:
        raise UnsureError
    data = data.replace(b"\r\n", b"\n")
    if any(text in data for text in _UNUSUAL) or any(form.search(data) for form in _PATTERNS):
        raise UnsureError
    for line in data.split(b"\n"):
        if line:
            yield _object(line)


def blocks_of_parts(parts: Iterable[FilePart]) -> Iterator[FilePart]:
    """Cut parts of files into blocks of whole lines.

    Raises:
        UnsureError: A line is very long.
        OSError: A file cannot be read.
    """
    for url, start, end in parts:
        with open_random(url) as file:
            at = start
            while at < end:
                after = min(at + BLOCK_BYTES, end)
                stop = after if after == end else next_line_start(file, after, end)
                if stop - at > LONGEST_BLOCK:
                    raise UnsureError
                yield url, at, stop
                at = stop


def inferred_struct(parts: Iterable[FilePart]) -> T.StructType:
    """Return the columns of files with the types that keep all values.

    Raises:
        UnsureError: Spark may infer others.
        OSError: A file cannot be read.
    """
    kind: Kind = {}
    for part in parts:
        for record in objects(part):
            kind = _widened(kind, record)
    dtype = _type_of(kind)
    if not isinstance(dtype, T.StructType) or len(dtype.fields) > MOST_COLUMNS:
        raise UnsureError
    return dtype


def record_texts(parts: Sequence[FilePart], struct: T.StructType) -> pa.StringArray:
    """Return the JSON text of each record.

    Args:
        parts: Whole lines of files.
        struct: The columns, in the order of the record.

    Raises:
        UnsureError: Spark may write another one.
        OSError: A file cannot be read.
    """
    convert = _Converters(_written_double).struct(struct)
    texts = [orjson.dumps(convert(record)) for part in parts for record in objects(part)]
    # `pa.array` would import pandas, which takes longer than most files.
    ends = array("i", accumulate(map(len, texts), initial=0))
    return pa.StringArray.from_buffers(
        len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts))
    )


def record_batch(part: FilePart, struct: T.StructType) -> pa.RecordBatch | None:
    """Return the rows of lines in the types of columns; None if Spark must read them."""
    try:
        convert = _Converters(float).struct(struct)
        rows = [convert(record) for record in objects(part)]
    except (UnsureError, OSError):
        return None
    return pa.RecordBatch.from_pylist(rows, schema=struct_to_arrow(struct))


def _object(line: bytes) -> dict[str, Any]:
    if line.count(b"{") + line.count(b"[") > MOST_BRACKETS:
        raise UnsureError
    try:
        # The first is strict, but it takes repeated names, and makes doubles of long integers.
        orjson.loads(line)
        record = _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise UnsureError from error
    if not isinstance(record, dict):
        raise UnsureError
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise UnsureError
    return record


def _double(text: str) -> float:
    """Read a number that a double keeps as it is written."""
    number = float(text)
    if repr(number) != text and not number_kind(text).in_double:
        raise UnsureError
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_double)


def _widened(kind: Kind, value: Any, depth: int = 0) -> Kind:
    """Return a kind that has a value too."""
    if value is None:
        return kind
    if depth > MOST_DEPTH:
        raise UnsureError
    if isinstance(value, dict):
        fields = {} if kind is None else kind
        if not isinstance(fields, dict):
            raise UnsureError
        for name, inner in value.items():
            fields[name] = _widened(fields.get(name), inner, depth + 1)
        return fields
    if isinstance(value, list):
        element: Kind = [None] if kind is None else kind
        if not isinstance(element, list):
            raise UnsureError
        for inner in value:
            element[0] = _widened(element[0], inner, depth + 1)
        return element
    return _widened_scalar(kind, value)


def _widened_scalar(kind: Kind, value: Any) -> T.DataType:
    dtype = _SCALARS[type(value)]
    if dtype == _LONG_TYPE and abs(value) > SAFE:
        if value not in _LONG:
            raise UnsureError
        dtype = _WIDE_TYPE
    if kind is None or kind == dtype:
        return dtype
    if isinstance(kind, T.DataType):
        both = {kind, dtype}
        if both in ({_LONG_TYPE, _DOUBLE_TYPE}, {_LONG_TYPE, _WIDE_TYPE}):
            return (both - {_LONG_TYPE}).pop()
    raise UnsureError


def _type_of(kind: Kind) -> T.DataType:
    if isinstance(kind, list):
        return T.ArrayType(_type_of(kind[0]), True)
    if isinstance(kind, dict):
        _check_names(kind)
        # Spark sorts names by their UTF-16 code units.
        names = sorted(kind, key=lambda name: name.encode("utf-16-be"))
        return T.StructType([T.StructField(name, _type_of(kind[name]), True) for name in names])
    if kind == _WIDE_TYPE:
        return _LONG_TYPE
    return T.StringType() if kind is None else kind


def _check_names(names: Mapping[str, Any]) -> None:
    alike = len({name.lower() for name in names}) < len(names)
    # Spark leaves out objects without fields.
    if alike or not names or not all(map(_is_plain, names)):
        raise UnsureError


def _is_plain(name: str) -> bool:
    is_usual = 0 < len(name) <= MOST_NAME and not name.startswith(_OWN_NAMES)
    return is_usual and not _CONTROLS.search(name)


class _Converters:
    """Make converters of values by their types.

    They raise UnsureError for a value that is not of its type, and once there are too many nulls.
    """

    def __init__(self, double: Convert) -> None:
        self._double = double
        self._left = ROW_BYTES

    def struct(self, struct: T.StructType) -> Convert:
        """Return what converts an object; missing fields become null, others are left out."""
        fields = {field.name: self._converter(field.dataType) for field in struct.fields}
        _check_names(fields)
        lower = {name.lower() for name in fields}
        size = sum(map(len, fields)) + VALUE_BYTES * len(fields)

        def convert(value: Any) -> dict[str, Any] | None:
            if value is None:
                return None
            self._left -= size
            if type(value) is not dict or self._left < 0:
                raise UnsureError
            for name in value.keys() - fields.keys():
                if name.lower() in lower or not _is_plain(name):
                    raise UnsureError
            return {name: change(value.get(name)) for name, change in fields.items()}

        return convert

    def _array(self, dtype: T.ArrayType) -> Convert:
        element = self._converter(dtype.elementType)

        def convert(value: Any) -> list[Any] | None:
            if value is None:
                return None
            if type(value) is not list:
                raise UnsureError
            return [element(inner) for inner in value]

        return convert

    def _converter(self, dtype: T.DataType) -> Convert:
        if isinstance(dtype, T.StructType):
            return self.struct(dtype)
        if isinstance(dtype, T.ArrayType):
            return self._array(dtype)
        if is_text(dtype):
            return _TEXT
        if isinstance(dtype, T.DoubleType):
            double = self._double
            return lambda value: None if value is None else double(_number(value))
        simple = _CONVERTERS.get(type(dtype))
        if simple is None:
            raise UnsureError
        return simple


def _unchanged(kind: type[object], among: range | None = None) -> Convert:
    """Return what passes on nulls, and values of exactly this type (and in this range)."""

    def convert(value: Any) -> Any:
        if value is None or (type(value) is kind and (among is None or value in among)):
            return value
        raise UnsureError

    return convert


def _number(value: Any) -> float:
    if type(value) is float or (type(value) is int and abs(value) <= SAFE):
        return float(value)
    raise UnsureError


def _written_double(number: float) -> Any:
    """Return what orjson writes as Java does; with more digits, versions of Java differ."""
    size = abs(number)
    if not size:
        return number
    if not _LEAST <= size < _MOST or float(f"{number:.15g}") != number:
        raise UnsureError
    if _LEAST_PLAIN <= size < _MOST_PLAIN:
        return number
    return orjson.Fragment(with_exponent(number))


_LONG_TYPE, _DOUBLE_TYPE = T.LongType(), T.DoubleType()
_WIDE_TYPE = T.DecimalType(19, 0)
"""Stands for a long that a double may round."""
_SCALARS: Mapping[type[object], T.DataType] = {
    str: T.StringType(),
    bool: T.BooleanType(),
    int: _LONG_TYPE,
    float: _DOUBLE_TYPE,
}
_TEXT = _unchanged(str)
_CONVERTERS: Mapping[type[T.DataType], Convert] = {
    T.BooleanType: _unchanged(bool),
    T.LongType: _unchanged(int, _LONG),
    T.IntegerType: _unchanged(int, _INT),
}
