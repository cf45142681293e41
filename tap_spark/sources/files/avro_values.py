"""Values of Avro that Spark reads raw, as what their schema means; on executors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.arrow_start import arrow_in_task
from shared.json.json_values import json_text
from shared.json.row_values import as_json_value, plain_values
from shared.types.arrow_types import spark_to_arrow
from tap_spark.sources.files.arrow_parquet import time_texts
from tap_spark.sources.files.avro_types import ARRAY, MAP, RECORD, UNION, Form
from tap_spark.sources.frame_helpers import FILE
from tap_spark.sources.source_failures import row_failure

HINT = "correct the file, leave the column out, or give it another type by 'schema'"
FINER_HINT = "to keep all its digits, give it the type STRING by 'schema'"
_DAY_MILLIS = 24 * 60 * 60 * 1000
_LONG_BYTES, _MORE = 10, 0x80


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
    if array.type.equals(kind):
        return array
    if form is not None and form.kind in _NESTED:
        return _NESTED[form.kind](array, form, kind)
    leaf = None if form is None else _LEAVES.get(form.kind)
    return _cast(array if form is None or leaf is None else leaf(array, form), kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind) and pa.types.is_timestamp(array.type):
        return time_texts(array)
    return array if array.type.equals(kind) else pc.cast(array, kind)


def _record(array: pa.Array, form: Form, kind: pa.DataType) -> pa.Array:
    parts = dict(form.parts)
    values = [
        converted(array.field(field.name), parts.get(field.name), field.type)
        if array.type.get_field_index(field.name) >= 0
        else pa.nulls(len(array), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(values, fields=list(kind), mask=array.is_null())


def _array(array: pa.Array, form: Form, kind: pa.DataType) -> pa.Array:
    values = converted(array.values, form.parts[0][1], kind.value_type)
    return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=_mask(array))


def _map(array: pa.Array, form: Form, kind: pa.DataType) -> pa.Array:
    items = converted(array.items, form.parts[0][1], kind.item_type)
    keys = _cast(array.keys, kind.key_type)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _union(array: pa.Array, form: Form, kind: pa.DataType) -> pa.Array:
    """Return texts, or the JSON of what is no text."""
    members = array.flatten()
    texts = [_texts(member, part) for member, (_, part) in zip(members, form.parts, strict=True)]
    return _cast(pc.coalesce(*texts), kind)


def _texts(array: pa.Array, form: Form) -> pa.Array:
    values = converted(array, form, spark_to_arrow(form.dtype))
    if pa.types.is_string(values.type):
        return values
    jsons = (as_json_value(value) for value in plain_values(values))
    texts = [v if v is None or isinstance(v, str) else json_text(v) for v in jsons]
    return pa.array(texts, pa.string())


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


def _uuid(value: bytes, _: int) -> str:
    return str(uuid.UUID(bytes=value))


def duration_text(value: bytes, _: int = 0) -> str:
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
    size, at = _long(value, 0)
    end = at + size
    if size < 0 or end > len(value):
        raise BadValueError(f"{value.hex()} is not a big-decimal")
    scale, after = _long(value, end)
    if after != len(value):
        raise BadValueError(f"{value.hex()} is not a big-decimal")
    return decimal_text(value[at:end], scale)


def _long(value: bytes, at: int) -> tuple[int, int]:
    """Read an integer in Avro's zigzag form; return where it ends, too."""
    number = 0
    for place, byte in enumerate(value[at : at + _LONG_BYTES]):
        number |= (byte & ~_MORE) << 7 * place
        if not byte & _MORE:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise BadValueError(f"{value.hex()} is not a big-decimal")


_NESTED: Mapping[str, Callable[[pa.Array, Form, pa.DataType], pa.Array]] = {
    RECORD: _record,
    ARRAY: _array,
    MAP: _map,
    UNION: _union,
}
_LEAVES: Mapping[str, Callable[[pa.Array, Form], pa.Array]] = {
    "timestamp-nanos": _nanos,
    "local-timestamp-nanos": _nanos,
    "time-millis": _time,
    "time-micros": _time,
    "duration": _each(duration_text),
    "uuid": _each(_uuid),
    "big-decimal": _each(big_decimal_text),
    "decimal": _each(decimal_text),
}
