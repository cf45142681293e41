"""Values of Avro that Spark reads raw, as what their schema means: logical types and unions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.arrow_types import spark_to_arrow, with_parts
from shared.formats.spark_types import T
from shared.formats.typed_rows import plain_values, text_of
from shared.singer.platform import arrow_in_task
from tap_spark.sources.files.arrow_parquet import in_type
from tap_spark.sources.frame_helpers import FILE, MAX_DECIMAL
from tap_spark.sources.source_failures import row_failure

Node: TypeAlias = "str | list[Node] | dict[str, Any]"
"""A type as its schema writes it."""
UNION, RECORD, ARRAY, MAP = "union", "record", "array", "map"
_LOGICAL: Mapping[tuple[str, str], T.DataType] = {
    ("long", "timestamp-nanos"): T.TimestampType(),
    ("long", "local-timestamp-nanos"): T.TimestampNTZType(),
    ("int", "time-millis"): T.TimeType(),
    ("long", "time-micros"): T.TimeType(),
    ("fixed", "duration"): T.StringType(),
    ("fixed", "uuid"): T.StringType(),
    ("bytes", "big-decimal"): T.StringType(),
    ("bytes", "decimal"): T.StringType(),
    ("fixed", "decimal"): T.StringType(),
}
_SIZES = {"duration": 12, "uuid": 16}


class UnclearUnionError(Exception):
    """Spark makes one number of the members of a union; names the column."""


@dataclass(frozen=True)
class Form:
    """What the raw values of a column mean.

    Attributes:
        dtype: The type that keeps every value.
        kind: A logical type, or what it consists of; empty if Spark's values are right.
        scale: Of a decimal.
        parts: The forms of fields or members by name, or of elements.
    """

    dtype: T.DataType
    kind: str = ""
    scale: int = 0
    parts: tuple[tuple[str, Form], ...] = ()

    @property
    def is_fine(self) -> bool:
        """Return whether it has nanoseconds."""
        return self.kind.endswith("nanos") or any(part.is_fine for _, part in self.parts)

    def is_of(self, dtype: T.DataType) -> bool:
        """Return whether Spark itself reads the values in a type."""
        return not self.is_raw and self.dtype.simpleString() == dtype.simpleString()

    @property
    def is_raw(self) -> bool:
        """Return whether Spark's values are not yet those that Avro means."""
        is_own = self.kind not in ("", RECORD, ARRAY, MAP)
        return is_own or any(part.is_raw for _, part in self.parts)


def forms_of(schema: bytes, raw: T.StructType) -> dict[str, Form]:
    """Return the form of each column of files of a schema, which Spark reads in raw types.

    Raises:
        UnclearUnionError: Spark does not tell the members of a union apart.
    """
    node = json.loads(schema)
    form = _Forms(node).form(node, raw, "", "")
    return dict(form.parts) if form.kind == RECORD else {f.name: Form(f.dataType) for f in raw}


def readable(schema: bytes) -> str | None:
    """Return the schema with decimals that Spark refuses as bytes; None if it has none."""
    node = json.loads(schema)
    wide = [part for part in _parts(node) if isinstance(part, dict) and _is_wide(part)]
    for part in wide:
        del part["logicalType"]
    return json.dumps(node) if wide else None


def _is_wide(node: Mapping[str, Any]) -> bool:
    is_decimal = node.get("logicalType") == "decimal" and node.get("type") in ("bytes", "fixed")
    precision, scale = node.get("precision"), node.get("scale", 0)
    return (
        is_decimal
        and isinstance(precision, int)
        and isinstance(scale, int)
        and precision > MAX_DECIMAL
        and 0 <= scale <= precision
    )


def _parts(node: Node) -> Iterator[Node]:
    """Yield a type and all types inside it, not those that it names."""
    yield node
    if isinstance(node, list):
        inner = node
    elif isinstance(node, dict):
        inner = [node[name] for name in ("type", "items", "values") if name in node]
        inner += node.get("fields") or []
    else:
        return
    for part in inner:
        yield from _parts(part)


class _Forms:
    """Walks a schema beside Spark's types; types are named once and used by name."""

    def __init__(self, node: Node) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._add_names(node, "")

    def _add_names(self, node: Node, space: str) -> None:
        if isinstance(node, list):
            for part in node:
                self._add_names(part, space)
        if not isinstance(node, dict):
            return
        if isinstance(node.get("name"), str) and node.get("type") in ("record", "fixed", "enum"):
            full = _full_name(node["name"], node.get("namespace", space))
            space = full.rpartition(".")[0]
            self._named[full] = (node, space)
        for field in node.get("fields") or ():
            self._add_names(field.get("type"), space)
        for name in ("type", "items", "values"):
            self._add_names(node.get(name, ""), space)

    def form(self, node: Node, raw: T.DataType, space: str, path: str) -> Form:
        """Return the form of a type."""
        if isinstance(node, list):
            return self._union([part for part in node if part != "null"], raw, space, path)
        if isinstance(node, str):
            named = self._named.get(_full_name(node, space)) or self._named.get(node)
            return self.form(named[0], raw, named[1], path) if named else Form(raw)
        if not isinstance(node.get("type"), str):
            return self.form(node.get("type", "null"), raw, space, path)
        return (
            self._nested(node, raw, space, path)
            or _logical(node, raw)
            or (
                # A type by name, or a primitive one.
                self.form(node["type"], raw, space, path)
                if node["type"] not in ("fixed", "enum")
                else Form(raw)
            )
        )

    def _nested(self, node: dict[str, Any], raw: T.DataType, space: str, path: str) -> Form | None:
        kind = node["type"]
        if kind == RECORD and isinstance(raw, T.StructType):
            return self._record(node, raw, space, path)
        if kind == ARRAY and isinstance(raw, T.ArrayType):
            element = self.form(node["items"], raw.elementType, space, f"{path}[]")
            return Form(T.ArrayType(element.dtype, raw.containsNull), ARRAY, parts=(("", element),))
        if kind == MAP and isinstance(raw, T.MapType):
            value = self.form(node["values"], raw.valueType, space, f"{path}{{}}")
            dtype = T.MapType(raw.keyType, value.dtype, raw.valueContainsNull)
            return Form(dtype, MAP, parts=(("", value),))
        return Form(raw) if kind in (RECORD, ARRAY, MAP) else None

    def _record(self, node: dict[str, Any], raw: T.StructType, space: str, path: str) -> Form:
        if "name" in node:
            full = _full_name(node["name"], node.get("namespace", space))
            space = full.rpartition(".")[0]
        own = {field["name"]: field["type"] for field in node["fields"]}
        parts = [
            (f.name, self.form(own[f.name], f.dataType, space, f"{path}.{f.name}".lstrip(".")))
            for f in raw.fields
            if f.name in own
        ]
        fields = [T.StructField(name, part.dtype, True) for name, part in parts]
        return Form(T.StructType(fields), RECORD, parts=tuple(parts))

    def _union(self, members: list[Node], raw: T.DataType, space: str, path: str) -> Form:
        if len(members) < 2:  # noqa: PLR2004
            return self.form(members[0] if members else "null", raw, space, path)
        if isinstance(raw, T.StructType):
            parts = tuple(
                (field.name, self.form(member, field.dataType, space, path))
                for member, field in zip(members, raw.fields, strict=True)
            )
            return Form(T.StringType(), UNION, parts=parts)
        if any(isinstance(member, dict) and "logicalType" in member for member in members):
            raise UnclearUnionError(path)
        return Form(raw)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _logical(node: Mapping[str, Any], raw: T.DataType) -> Form | None:
    """Return the form of a logical type that Spark does not read; None for others."""
    kind, name = str(node["type"]), str(node.get("logicalType", ""))
    dtype = _LOGICAL.get((kind, name))
    is_other = dtype is None or node.get("size") != _SIZES.get(name, node.get("size"))
    if is_other or (name == "decimal" and not _is_wide(node)):
        return None
    return Form(dtype or raw, name, int(node.get("scale", 0) if name == "decimal" else 0))


HINT = "correct the file, leave the column out, or give it another type by 'schema'"
FINER_HINT = "to keep all its digits, give it the type STRING by 'schema'"
_DAY_MILLIS = 24 * 60 * 60 * 1000
LONGEST_BYTES = 64 * 1024**2
"""Bound of memory: bytes of a value after its size."""
_MORE = 0x80


class BadValueError(Exception):
    """A value has no meaning in its type, or the type of its column cannot keep it."""


@dataclass(frozen=True)
class AvroValues:
    """Converts rows, for `mapInArrow`: Spark's raw values in, those of the columns out.

    Attributes:
        forms: The forms of the columns that the files have.
        schema: The columns, in the types in which Spark takes them.
    """

    forms: Mapping[str, Form]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert batches; each has the column `FILE`, too."""
        arrow_in_task()
        for batch in batches:
            columns = [self._column(batch, field) for field in self.schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        form = self.forms.get(field.name)
        values = batch.column(field.name)
        try:
            return converted(values, form, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, BadValueError) as error:
            file = self._file(batch, form, field)
            problem = f"column '{field.name}' holds a value that cannot be kept: {error}"
            hint = FINER_HINT if form is not None and form.is_fine else HINT
            raise RuntimeError(row_failure(problem=problem, file=file, hint=hint)) from None

    def _file(self, batch: pa.RecordBatch, form: Form | None, field: pa.Field) -> str:
        """Return the first file of a batch whose values cannot be kept."""
        files = batch.column(FILE)
        names: list[str] = files.unique().to_pylist()
        for name in names[:-1]:
            part = batch.column(field.name).filter(pc.equal(files, name))
            try:
                converted(part, form, field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, BadValueError):
                return name
        return names[-1]


def converted(array: pa.Array, form: Form | None, kind: pa.DataType) -> pa.Array:
    """Return raw values as what they mean, in a type.

    Values stay raw if that is the type that is asked for.

    Raises:
        BadValueError: A value has no meaning.
        pyarrow.ArrowInvalid: The type cannot keep a value.
    """
    if form is None or array.type.equals(kind):
        return in_type(array, kind)
    if form.kind in _LEAVES:
        return in_type(_LEAVES[form.kind](array, form), kind)
    parts = dict(form.parts)
    whole = with_parts(
        array, kind, lambda values, own, name: converted(values, parts.get(name), own)
    )
    return in_type(array, kind) if whole is None else whole


def _union(array: pa.Array, form: Form) -> pa.Array:
    """Return texts, or the JSON of what is no text."""
    members = array.flatten()
    texts = (_texts(member, part) for member, (_, part) in zip(members, form.parts, strict=True))
    return pc.coalesce(*texts)


def _texts(array: pa.Array, form: Form) -> pa.Array:
    values = converted(array, form, spark_to_arrow(form.dtype))
    if pa.types.is_string(values.type):
        return values
    return pa.array(map(text_of, plain_values(values)), pa.string())


def _nanos(array: pa.Array, form: Form) -> pa.Array:
    zone = "UTC" if isinstance(form.dtype, T.TimestampType) else None
    return pc.cast(array, pa.timestamp("ns", zone))


def _time(array: pa.Array, form: Form) -> pa.Array:
    most, kind = _DAY_MILLIS, pa.time32("ms")
    if form.kind == "time-micros":
        most, kind = most * 1000, pa.time64("us")
    ends = pc.min_max(array)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is not None and (low < 0 or high >= most):
        raise BadValueError(f"{low if low < 0 else high} is not within a day ({form.kind})")
    return pc.cast(array, kind)


def _each(text: Callable[[bytes, int], str]) -> Callable[[pa.Array, Form], pa.Array]:
    def convert(array: pa.Array, form: Form) -> pa.Array:
        values: Iterable[bytes | None] = array.to_pylist()
        texts = [None if value is None else text(value, form.scale) for value in values]
        return pa.array(texts, pa.string())

    return convert


def avro_duration(value: bytes, _: int = 0) -> str:
    """Return months, days and milliseconds as an ISO 8601 duration."""
    months, days, millis = (int.from_bytes(value[at : at + 4], "little") for at in (0, 4, 8))
    text = f"{months}M" * bool(months) + f"{days}D" * bool(days)
    if millis or not text:
        seconds, rest = divmod(millis, 1000)
        text += f"T{seconds}" + f".{rest:03d}" * bool(rest) + "S"
    return f"P{text}"


def decimal_text(value: bytes, scale: int) -> str:
    """Return a number of any digits, written without exponent."""
    number = int.from_bytes(value, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return f"{Decimal((number < 0, digits, -scale)):f}"


def big_decimal_text(value: bytes, _: int = 0) -> str:
    """Return a number that holds its digits and its scale.

    Raises:
        BadValueError: It is not one.
    """
    file = BytesIO(value)
    try:
        digits, scale = read_bytes(file), read_long(file)
        if not file.read(1):
            return decimal_text(digits, scale)
    except (ValueError, EOFError):
        pass
    raise BadValueError(f"{value.hex()} is not a big-decimal")


def read_bytes(file: BinaryIO) -> bytes:
    """Read bytes after their size.

    Raises:
        ValueError: The file is damaged.
        EOFError: It is cut off.
    """
    size = read_long(file)
    if not 0 <= size <= LONGEST_BYTES:
        raise ValueError("its header is damaged")
    data = file.read(size)
    if len(data) != size:
        raise EOFError("it ends within its header")
    return bytes(data)


def read_long(file: BinaryIO) -> int:
    """Read an integer in Avro's zigzag form; raises as `read_bytes`."""
    value, shift = 0, 0
    while True:
        byte = file.read(1)
        if not byte:
            raise EOFError("it ends within its header")
        value |= (byte[0] & ~_MORE) << shift
        shift += 7
        if not byte[0] & _MORE:
            return (value >> 1) ^ -(value & 1)
        if shift > 63:  # noqa: PLR2004
            raise ValueError("its header is damaged")


_LEAVES: Mapping[str, Callable[[pa.Array, Form], pa.Array]] = {
    UNION: _union,
    "timestamp-nanos": _nanos,
    "local-timestamp-nanos": _nanos,
    "time-millis": _time,
    "time-micros": _time,
    "duration": _each(avro_duration),
    "uuid": _each(lambda value, _: str(uuid.UUID(bytes=value))),
    "big-decimal": _each(big_decimal_text),
    "decimal": _each(decimal_text),
}
