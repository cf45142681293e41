"""Avro object container files, by fastavro (the extra `avro`); rows pass as Python objects.

What the values of a block take as Python objects is far more than their bytes: a block of zeros
that packs into a few kilobytes may be an array of a hundred million records.
https://avro.apache.org/docs/1.12.0/specification/#complex-types
"""

from __future__ import annotations

import bz2
import importlib
import io
import itertools
import json
import lzma
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from shared.formats.json_text import json_text
from shared.formats.line_encodings import TABLE_ROWS, ContentError, check_mark
from shared.formats.typed_rows import as_json_value, retyped
from shared.storage import limits
from shared.storage.access import StorageOptions
from shared.storage.files import open_input, open_output

_POINTER = 8
_OBJECT = 56
_DICT = 184
_ENCODED = {"null": 0, "float": 4, "double": 8}


@dataclass(frozen=True)
class ObjectSizes:
    """What a value of a schema takes.

    Attributes:
        encoded: Its bytes in a block at the least.
        python: Its bytes as an object, without what arrays and maps hold.
        growth: Bytes of objects for each encoded byte in the worst of its arrays and maps.
    """

    encoded: int
    python: int
    growth: float = 0.0


def _sizes(node: Any, named: dict[str, ObjectSizes]) -> ObjectSizes:
    """Return what a value of a part of a parsed Avro schema takes."""
    if isinstance(node, list):
        return _union_size([_sizes(choice, named) for choice in node])
    if isinstance(node, str):
        return named.get(node) or ObjectSizes(_ENCODED.get(node, 1), _OBJECT)
    return _complex(node, named)


def _complex(node: Mapping[str, Any], named: dict[str, ObjectSizes]) -> ObjectSizes:
    kind = node["type"]
    if kind in ("record", "error"):
        return _record_size(node, named)
    if kind == "array":
        return _repeated(_sizes(node["items"], named), key_bytes=0)
    if kind == "map":
        return _repeated(_sizes(node["values"], named), key_bytes=1)
    if kind in ("enum", "fixed"):
        size = node["size"] if kind == "fixed" else 1
        sizes = named[node.get("name", "")] = ObjectSizes(size, _OBJECT + size)
        return sizes
    return _sizes(kind, named)


def _record_size(node: Mapping[str, Any], named: dict[str, ObjectSizes]) -> ObjectSizes:
    name = node.get("name", "")
    named[name] = ObjectSizes(1, _DICT)  # for a field that is such a record again
    fields = [_sizes(field["type"], named) for field in node["fields"]]
    named[name] = ObjectSizes(
        sum(field.encoded for field in fields),
        _DICT + sum(2 * _POINTER + field.python for field in fields),
        max((field.growth for field in fields), default=0.0),
    )
    return named[name]


def _union_size(choices: list[ObjectSizes]) -> ObjectSizes:
    return ObjectSizes(
        1 + min((choice.encoded for choice in choices), default=0),
        max((choice.python for choice in choices), default=0),
        max((choice.growth for choice in choices), default=0.0),
    )


def _repeated(item: ObjectSizes, key_bytes: int) -> ObjectSizes:
    encoded = key_bytes + item.encoded
    python = _POINTER + item.python + key_bytes * (_POINTER + _OBJECT)
    return ObjectSizes(1, _OBJECT, max(item.growth, python / encoded if encoded else math.inf))


_ORIGINAL_NAME = "x-name"
_CODECS = {"none": "null", "deflate": "deflate", "zstd": "zstandard", "snappy": "snappy"}
_PLAIN = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
    "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_LOGICAL = {
    "int-date": pa.date32(),
    "int-time-millis": pa.time32("ms"),
    "long-time-micros": pa.time64("us"),
    **{f"long-timestamp-{name}": pa.timestamp(unit, "UTC") for name, unit in _UNITS.items()},
    **{f"long-local-timestamp-{name}": pa.timestamp(unit) for name, unit in _UNITS.items()},
    "string-uuid": pa.string(),
}

_DAMAGED = (ValueError, EOFError, KeyError, TypeError, IndexError, OverflowError, RecursionError,
            zlib.error, lzma.LZMAError)  # fmt: skip

Turn = Callable[[Any], Any]


class _AnyValue(pa.ExtensionScalar):  # type: ignore[misc]
    def as_py(self, **_: Any) -> Any:
        text = self.value and self.value.as_py()
        return text and json.loads(text, parse_float=Decimal)


class _AnyType(pa.ExtensionType):  # type: ignore[misc]
    """Values of any type, stored as JSON text."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "singer_spark.any")

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    def __arrow_ext_scalar_class__(self) -> type[_AnyValue]:
        return _AnyValue


_ANY = _AnyType()
_TEXTS = {_ANY: _ANY.storage_type}
_NUMBERS = {
    kind: pa.int64() if name.startswith("long") else pa.int32()
    for name, kind in _LOGICAL.items()
    if kind != pa.string()
}
_WIDEST = {("int", "long"): pa.int64(), ("float", "double"): pa.float64()}


class AvroFormat:
    """Avro with nullable fields; names that Avro does not allow are kept beside allowed ones.

    Non-finite numbers, decimals and instants are exact. Maps whose keys are not texts are arrays
    of key and value, as in Arrow.
    """

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`."""
        check_mark(url, b"Obj\x01", "avro", options, packed=True)
        with open_input(url, options) as source:
            try:
                blocks = _bounded(_fastavro()).block_reader(_BoundedFile(source))
                kind, turn = _from_avro(blocks.writer_schema)
                if not pa.types.is_struct(kind):
                    raise ContentError("its values are not records")
                stored = retyped(kind, _TEXTS)
                if stored == kind:
                    # Python lacks some times. In values of any type, numbers would not tell them.
                    _drop_logical_types(blocks.writer_schema)
                    stored = retyped(kind, _NUMBERS)
                names, stored = pa.schema(list(kind)), pa.schema(list(stored))
                for rows in _bounded_rows(blocks):
                    yield pa.Table.from_pylist([turn(row) for row in rows], stored).cast(names)
            except ContentError:
                raise
            except UnicodeError as error:
                raise ContentError("it has a text that is not UTF-8") from error
            except _DAMAGED as error:
                reason = str(error) or type(error).__name__
                raise ContentError(f"damaged or cut Avro file: {reason}") from error

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
    ) -> None:
        """See `Codec`."""
        avro, turn = _to_avro(pa.struct(list(schema)), itertools.count(1))
        rows = (
            turn(row)
            for table in tables
            for batch in table.to_batches(TABLE_ROWS)
            for row in batch.to_pylist()
        )
        with open_output(url, options=options) as sink:
            try:
                writer = _fastavro().write.Writer(sink, avro, _CODECS[compression])
            except ValueError as error:
                raise OSError(f"cannot write Avro: {error}") from error
            for row in rows:
                writer.write(row)
            writer.flush()


def _bounded_rows(blocks: Any) -> Iterator[list[Any]]:
    """Yield the rows of blocks in lists that take a bounded amount of memory.

    Raises:
        ContentError: A block may take more memory than any data does.
    """
    sizes = _sizes(blocks.writer_schema, {})
    rows: list[Any] = []
    taken = 0
    for block in blocks:
        plain = block.bytes_.getbuffer().nbytes
        grown = int(min(plain * sizes.growth, sys.maxsize)) if plain else 0
        without_bytes = 0 if sizes.encoded else block.num_records
        if grown + without_bytes > max(limits.FREE_OBJECT_BYTES, limits.MAX_RATIO * block.size):
            raise ContentError(limits.decoded_text())
        row_bytes = grown // max(1, block.num_records) + sizes.python
        for row in block:
            rows.append(row)
            taken += row_bytes
            if len(rows) == TABLE_ROWS or taken > limits.TABLE_BYTES:
                yield rows
                rows, taken = [], 0
    if rows:
        yield rows


def _fastavro() -> Any:
    return importlib.import_module("fastavro")


class _BoundedFile:
    """A file that limits each read to the size of a block, even if the file claims more."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._place = 0

    def tell(self) -> int:
        return self._place

    def read(self, count: int) -> bytes:
        if not 0 <= count <= limits.MAX_LINE_BYTES:
            raise _too_long()
        data = bytes(self._file.read(count))
        self._place += len(data)
        return data


def _too_long() -> ContentError:
    return ContentError(limits.long_text("a block"))


def _bounded(library: Any) -> Any:
    """Limit the size of the blocks that the library reads; return the library."""
    readers = library.read.BLOCK_READERS
    whole = readers["null"]

    def bounded(unpack: Callable[[bytes, int], bytes]) -> Callable[[Any], io.BytesIO]:
        def read(source: Any) -> io.BytesIO:
            plain = unpack(whole(source).read(), limits.MAX_LINE_BYTES + 1)
            if len(plain) > limits.MAX_LINE_BYTES:
                raise _too_long()
            return io.BytesIO(plain)

        return read

    readers.update({codec: bounded(unpack) for codec, unpack in _UNPACKED.items()})
    return library


def _unsnapped(data: bytes, most: int) -> bytes:
    snappy = importlib.import_module("cramjam").snappy
    if snappy.decompress_raw_len(data) >= most:
        raise _too_long()
    return bytes(snappy.decompress_raw(data[:-4]))  # a checksum ends the block


def _unzstd(data: bytes, most: int) -> bytes:
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        zstd = importlib.import_module("backports.zstd")
    try:
        return bytes(zstd.ZstdDecompressor().decompress(data, most))
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error


_UNPACKED: Mapping[str, Callable[[bytes, int], bytes]] = {
    "deflate": lambda data, most: zlib.decompressobj(-15).decompress(data, most),
    "bzip2": lambda data, most: bz2.BZ2Decompressor().decompress(data, most),
    "xz": lambda data, most: lzma.LZMADecompressor(memlimit=most).decompress(data, most),
    "snappy": _unsnapped,
    "zstandard": _unzstd,
}


def _allowed(names: Iterable[str]) -> list[str]:
    """Return names of fields as Avro allows them, all different."""
    allowed: dict[str, None] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
        while plain in allowed:
            plain += "_"
        allowed[plain] = None
    return list(allowed)


def _same(value: Any) -> Any:
    return value


def _to_avro(kind: pa.DataType, numbers: Iterator[int]) -> tuple[Any, Turn]:
    """Return the Avro schema of an Arrow type, and a function to convert Python values for it.

    Records are named by the next numbers.
    """
    if pa.types.is_struct(kind):
        return _record_to_avro(kind, numbers)
    if pa.types.is_map(kind):
        return _map_to_avro(kind, numbers)
    if pa.types.is_list(kind):
        items, turn = _nullable(kind.value_type, numbers)
        return {"type": "array", "items": items}, lambda value: [turn(item) for item in value]
    return _plain_to_avro(kind), _same


def _plain_to_avro(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **logical}
    if pa.types.is_timestamp(kind):
        logical_type = "timestamp-micros" if kind.tz else "local-timestamp-micros"
        return {"type": "long", "logicalType": logical_type}
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_time(kind):
        return {"type": "long", "logicalType": "time-micros"}
    if pa.types.is_integer(kind):
        return "int" if kind.bit_width < pa.int64().bit_width else "long"
    words = {pa.null(): "null", pa.bool_(): "boolean", pa.float32(): "float",
             pa.float64(): "double", pa.binary(): "bytes", pa.large_binary(): "bytes"}  # fmt: skip
    return words.get(kind, "string")


def _nullable(kind: pa.DataType, numbers: Iterator[int]) -> tuple[Any, Turn]:
    avro, turn = _to_avro(kind, numbers)
    if avro == "null" or turn is _same:
        return avro if avro == "null" else ["null", avro], _same
    return ["null", avro], lambda value: None if value is None else turn(value)


def _record_to_avro(kind: pa.StructType, numbers: Iterator[int]) -> tuple[Any, Turn]:
    record = f"record_{next(numbers)}"
    members, turns = [], []
    for field, name in zip(kind, _allowed(field.name for field in kind), strict=True):
        avro, turn = _nullable(field.type, numbers)
        node = {"name": name, "type": avro, "default": None}
        members.append(node if name == field.name else {**node, _ORIGINAL_NAME: field.name})
        turns.append((name, field.name, turn))

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: turn(row[original]) for name, original, turn in turns}

    return {"type": "record", "name": record, "fields": members}, convert


def _map_to_avro(kind: pa.MapType, numbers: Iterator[int]) -> tuple[Any, Turn]:
    if pa.types.is_string(kind.key_type):
        values, turn = _nullable(kind.item_type, numbers)
        return {"type": "map", "values": values}, lambda pairs: {k: turn(v) for k, v in pairs}
    entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
    items, turn = _to_avro(entry, numbers)
    return {"type": "array", "items": items, _ORIGINAL_NAME: "map"}, lambda pairs: [
        turn({"key": key, "value": value}) for key, value in pairs
    ]


def _from_avro(node: Any, named: dict[str, Any] | None = None) -> tuple[pa.DataType, Turn]:
    """Return the Arrow type of an Avro schema, and a function to convert Python values for it."""
    named = {} if named is None else named
    if isinstance(node, list):
        return _union(node, named)
    if isinstance(node, str):
        # A type within itself has no end, and one within a union has values of any type.
        return named.get(node) or ((_PLAIN[node], _same) if node in _PLAIN else (_ANY, _any_text))
    if isinstance(node["type"], dict | list):
        return _from_avro(node["type"], named)
    arrow = _named(node, named)
    if "name" in node:
        space = node.get("namespace")
        named[node["name"]] = named[f"{space}.{node['name']}" if space else node["name"]] = arrow
    return arrow


def _named(node: Mapping[str, Any], named: dict[str, Any]) -> tuple[pa.DataType, Turn]:
    kind, logical = node["type"], node.get("logicalType")
    if kind == "record":
        return _record(node, named)
    if kind == "array":
        return _array(node, named)
    if kind == "map":
        value, turn = _from_avro(node["values"], named)
        return pa.map_(pa.string(), value), lambda pairs: [(k, turn(v)) for k, v in pairs.items()]
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(node["precision"], node.get("scale", 0))
    if f"{kind}-{logical}" in _LOGICAL:
        return _LOGICAL[f"{kind}-{logical}"], str if logical == "uuid" else _same
    return named[kind] if kind in named else (_PLAIN[kind], _same)


def _decimal(digits: int, scale: int) -> tuple[pa.DataType, Turn]:
    for make, most in ((pa.decimal128, 38), (pa.decimal256, 76)):
        if digits <= most:
            return make(digits, scale), _same
    return _ANY, _any_text


def _drop_logical_types(node: Any) -> None:
    """Let the values of a parsed schema be read as the numbers and texts that are stored."""
    if isinstance(node, dict) and f"{node.get('type')}-{node.get('logicalType')}" in _LOGICAL:
        del node["logicalType"]
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _drop_logical_types(part)


def _any_text(value: Any) -> str | None:
    return None if value is None else json_text(as_json_value(value))


def _array(node: Mapping[str, Any], named: dict[str, Any]) -> tuple[pa.DataType, Turn]:
    item, turn = _from_avro(node["items"], named)
    if node.get(_ORIGINAL_NAME) == "map":
        pairs = pa.map_(item.field(0).type, item.field(1).type)
        return pairs, lambda items: [(e["key"], e["value"]) for e in map(turn, items)]
    return pa.list_(item), lambda items: [turn(value) for value in items]


def _record(node: Mapping[str, Any], named: dict[str, Any]) -> tuple[pa.DataType, Turn]:
    fields, turns = [], []
    for field in node["fields"]:
        kind, turn = _from_avro(field["type"], named)
        original = field.get(_ORIGINAL_NAME, field["name"])
        fields.append(pa.field(original, kind))
        turns.append((original, field["name"], turn))

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        return {original: turn(row[name]) for original, name, turn in turns}

    return pa.struct(fields), convert


def _union(choices: list[Any], named: dict[str, Any]) -> tuple[pa.DataType, Turn]:
    """Return a nullable type; that of several types keeps each value as it is."""
    others = [choice for choice in choices if choice != "null"]
    if len(others) == 1:
        kind, turn = _from_avro(others[0], named)
        return kind, lambda value: None if value is None else turn(value)
    for kinds, widest in _WIDEST.items():
        if all(choice in kinds for choice in others):
            return (widest if others else pa.null()), _same
    return _ANY, _any_text
