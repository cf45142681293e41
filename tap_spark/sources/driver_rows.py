"""Arrow batches of a source as the rows that threads send: filtered, selected, as JSON text."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Context, Decimal
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type

from shared.formats.arrow_types import holds, struct_to_arrow
from shared.formats.date_numbers import moment_text
from shared.formats.json_text import Number, json_text
from shared.formats.record_text import PLAIN_SCALE, is_plain_type
from shared.formats.typed_rows import as_json_value, plain_values
from tap_spark.sources.frame_helpers import prune
from tap_spark.sources.record_arrays import (
    LEAST_OF_JAVA,
    LEAST_PLAIN,
    MOST_PLAIN,
    RecordTexts,
    finite,
)
from tap_spark.state.stream_plans import DriverBlocks, DriverRows, Resume, RowForm, StreamPlan

_EXACT = Context(prec=76)
_KEYS = (T.IntegralType, T.DateType, T.TimestampType, T.TimestampNTZType)
_PLAIN = (T.StringType, T.BooleanType, T.FractionalType, T.BinaryType, *_KEYS)


def is_read_by_threads(plan: StreamPlan, struct: T.StructType) -> bool:
    """Return whether threads send the planned rows of a source as Spark does."""
    fields = {field.name: field for field in struct.fields}
    selected = T.StructType([fields[name] for name in plan.columns])
    if plan.as_text or prune(struct, plan.schema) != selected:
        return False
    if not all(is_plain(field.dataType) for field in selected.fields):
        return False
    if plan.resume is not Resume.REPLICATION_KEY:
        return plan.resume is Resume.NOTHING
    key = fields[str(plan.replication_key)]
    return isinstance(key.dataType, _KEYS) and not plan.config.sort_by_replication_key


def is_plain(dtype: T.DataType, *, inside: bool = False) -> bool:
    if isinstance(dtype, T.StructType):
        return all(is_plain(field.dataType, inside=True) for field in dtype.fields)
    if isinstance(dtype, T.ArrayType):
        return is_plain(dtype.elementType, inside=True)
    return isinstance(dtype, _PLAIN) and not (inside and isinstance(dtype, T.FloatType))


def driver_rows(
    plan: StreamPlan,
    struct: T.StructType,
    parts: Sequence[Iterator[pa.RecordBatch]],
    form: RowForm,
    read_at: datetime,
) -> DriverRows:
    """Return the planned rows of batches, which are read once they are sent.

    As many threads may read as there are parts. See `is_read_by_threads`.
    """
    fields = {field.name: field for field in struct.fields}
    selected = T.StructType([fields[name] for name in plan.columns])
    newest = _Newest(plan, struct_to_arrow(struct))
    schema = struct_to_arrow(selected)

    def kept(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in map(newest.within, batches):
            if batch.num_rows:
                yield batch.select(schema.names)

    rows = [kept(batches) for batches in parts]
    result = DriverRows(read_at=read_at, newest=newest.value, is_sure=True)
    if form is RowForm.RECORDS:
        records = (records_of_batch(batch, selected) for part in rows for batch in part)
        return replace(result, records=chain.from_iterable(records))
    return replace(result, blocks=DriverBlocks(schema, _PartReaders(rows, schema)))


class _PartReaders:
    """Readers of the blocks of parts: only one thread at a time reads a part."""

    def __init__(self, parts: Sequence[Iterator[pa.RecordBatch]], schema: pa.Schema) -> None:
        self._count, self._busy = len(parts), 0
        self._idle = list(parts)
        self._changed = threading.Condition()
        self._nothing = pa.RecordBatch.from_pylist([], schema)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Callable[[], pa.RecordBatch]]:
        return self

    def __next__(self) -> Callable[[], pa.RecordBatch]:
        """Return what reads the next block of a part; wait while others read all that are left."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle or not self._busy)
            if not self._idle:
                raise StopIteration
            self._busy += 1
            return partial(self._read, self._idle.pop())

    def _read(self, part: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        block = None
        try:
            block = next(part, None)
        finally:
            with self._changed:
                self._busy -= 1
                self._idle += [] if block is None else [part]
                self._changed.notify_all()
        return self._nothing if block is None else block


class _Newest:
    """The greatest replication key of the rows so far, and the bounds of all."""

    def __init__(self, plan: StreamPlan, schema: pa.Schema) -> None:
        self._name = plan.replication_key if plan.resume is Resume.REPLICATION_KEY else None
        self._takes_null = plan.null_keys
        self._lock = threading.Lock()
        self._start = self._end = self._best = None
        if self._name is not None:
            kind = schema.field(self._name).type
            self._start = _bound(plan.start_value, kind)
            self._end = _bound(plan.end_value, kind)

    def within(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows within the bounds of the plan."""
        if self._name is None:
            return batch
        key = batch.column(batch.schema.get_field_index(self._name))
        kept = key.is_valid()
        if self._start is not None:
            kept = pc.and_kleene(kept, pc.greater_equal(key, self._start))
        if self._end is not None:
            kept = pc.and_kleene(kept, pc.less(key, self._end))
        newest = pc.max(finite(key).filter(kept))
        with self._lock:
            if newest.is_valid and (self._best is None or _number(newest) > _number(self._best)):
                self._best = newest
        return batch.filter(pc.or_(kept, key.is_null()) if self._takes_null else kept)

    def value(self) -> Any:
        """Return it as in a record; None without one."""
        value = self._best
        if value is None or not pa.types.is_temporal(value.type):
            return None if value is None else value.as_py()
        kind = from_arrow_type(value.type, prefer_timestamp_ntz=True).typeName()
        return moment_text(_number(value), kind)


def _number(value: pa.Scalar) -> int:
    """Return a whole number that orders as the value does: days or microseconds of a moment."""
    if pa.types.is_temporal(value.type):
        value = value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64())
    return int(value.as_py())


def _bound(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Return a bound in the type of the key; None for one that does not fit, as Spark has it."""
    with suppress(pa.ArrowInvalid):
        return None if value is None else pa.scalar(str(value)).cast(kind)
    return None


def records_of_batch(batch: pa.RecordBatch, struct: T.StructType) -> Iterator[pa.StringArray]:
    """Return the JSON text of rows in the types of `shared.formats.arrow_types`.

    Their columns are of plain types, and of structs and arrays of them.
    """
    ready = frozenset(n for n, field in enumerate(struct) if not is_plain_type(field.dataType))
    columns = [
        pa.array(_value_texts(values, field.dataType), pa.string()) if n in ready else values
        for n, (values, field) in enumerate(zip(batch.columns, struct, strict=True))
    ]
    return RecordTexts(struct.names, ready).of(columns)


def _value_texts(values: pa.Array, dtype: T.DataType) -> Iterator[str | None]:
    spelled = _spelled if holds(dtype, (T.DoubleType, T.DecimalType)) else as_json_value
    for value in plain_values(values):
        yield None if value is None else json_text(spelled(value))


def _spelled(value: Any) -> Any:
    """Return `as_json_value` with the numbers inside of it as Spark writes them."""
    if isinstance(value, dict):
        return {name: _spelled(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_spelled(part) for part in value]
    if isinstance(value, Decimal) and -int(value.as_tuple().exponent) > PLAIN_SCALE:
        return Number(f"{value.normalize(_EXACT):f}")
    is_odd = isinstance(value, float) and value and not LEAST_PLAIN <= abs(value) < MOST_PLAIN
    return Number(with_exponent(value)) if is_odd and math.isfinite(value) else as_json_value(value)


def with_exponent(number: float) -> str:
    """Write a number as Java does if it is very large or small."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + int(exponent)
    written = f"{text[0]}.{text[1:] or '0'}E{power}"
    return ("-" if sign else "") + LEAST_OF_JAVA.get(written, written)
